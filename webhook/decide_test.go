package webhook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	alice    = "alice.users.drawbridge.dev"
	evictor  = v1alpha1.ImperativeEvictionInterceptor
	interA   = "a.example.com"
	interB   = "b.example.com"
	ownAdmin = "system:serviceaccount:drawbridge-system:drawbridge"
)

var t0 = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// leaseN1 is alice's lease for node n1.
var leaseN1 = translate.LeaseName(alice, "n1")

// db0 is a running pod on n1 with two interceptors.
func db0() *builder.PodWrapper {
	return builder.Pod("shop", "db-0").UID("uid-1").ResourceVersion("7").Node("n1").Phase(corev1.PodRunning).Interceptors(interA, interB)
}

// er is the request for db0, seen by the controller, wanted by alice.
func er() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").NodeName("n1").Interceptors(interA, interB).
		Leased(alice, leaseN1)
}

// call is alice's kubectl, by name.
func call() Call {
	return Call{Namespace: "shop", Pod: "db-0", Username: "alice",
		Caller: translate.Recognize(translate.CallerInput{Username: "alice", Manager: "kubectl"})}
}

// input is a call for db0 without a request.
func input(changes ...func(*Input)) Input {
	in := Input{
		Call: call(), Now: t0, Pod: db0().Obj(), Interceptors: []string{interA, interB},
		LeaseName: leaseN1, LeaseAlive: true, Replacement: ReplacementNotFound, ReplacementWindow: 15 * time.Minute,
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

// during is a call for db0 while the request is there.
func during(request *builder.EvictionRequestWrapper, changes ...func(*Input)) Input {
	in := input(func(in *Input) { in.Request, in.Interceptors = request.Obj(), nil })
	for _, change := range changes {
		change(&in)
	}
	return in
}

// as makes the pod another one.
func as(pod *builder.PodWrapper) func(*Input) { return func(in *Input) { in.Pod = pod.Obj() } }

// plain makes it a pod nobody intercepts.
func plain(in *Input) {
	in.Interceptors = nil
	delete(in.Pod.Annotations, v1alpha1.InterceptorsAnnotation)
}

func live(in *Input) { in.PodSource = Live }
func inGroup(in *Input) {
	in.Pod = in.Pod.DeepCopy()
	in.Pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
}

// finished is a request that is over, of a pod whose interceptors are known.
func finished(w *builder.EvictionRequestWrapper) func(*Input) {
	return func(in *Input) { in.Request = w.Obj() }
}

func byUID(in *Input)  { in.Call.UID = "uid-1" }
func cached(in *Input) { in.PodSource = Cached }
func dryRun(in *Input) { in.Call.DryRun = true }
func own(in *Input) {
	in.Own, in.Call.Username, in.Call.UID = true, ownAdmin, in.Pod.UID
	in.Call.Caller = translate.Recognize(translate.CallerInput{Username: ownAdmin})
}
func liveRequest(in *Input) { in.RequestSource = Live }
func withUID(in *Input)     { in.Call.UID = in.Pod.UID }
func grace(seconds int64) func(*Input) {
	return func(in *Input) { in.Call.GracePeriodSeconds = &seconds }
}
func written(request string) func(*Input) {
	return func(in *Input) { in.Written.Request = types.UID("er-" + request) }
}

// after makes the pod a replacement on n2, seen live, while predecessors left
// others behind.
func after(predecessors ...*builder.EvictionRequestWrapper) Input {
	in := input(as(db0().UID("uid-2").Node("n2")), live)
	in.LeftLease = LeftLease{Stands: true, HeardAt: t0.Add(-5 * time.Second), RenewEvery: 40 * time.Second}
	for _, p := range predecessors {
		in.Predecessors = append(in.Predecessors, *p.Obj())
	}
	return in
}

// got is a decision in the words of a table.
type got struct {
	need    string
	action  string
	outcome string
	reason  translate.Reason
	message string
	warning string
	left    string
}

func inWords(d Decision) got {
	if d.Need != NeedNothing {
		return got{need: d.Need.String()}
	}
	g := got{outcome: d.Verdict.Outcome.String(), reason: d.Verdict.Reason, message: d.Verdict.Message, warning: d.Verdict.Warning, left: d.LeftNode}
	if d.Action != ActNothing {
		g.action = d.Action.String()
	}
	return g
}

const (
	textAccepted   = "Eviction triggered evacuation: accepted, the pod's interceptors come first"
	textRestarting = "Eviction triggered evacuation: it was canceled and restarts on the next try"
	textWaitingA   = `Eviction triggered evacuation: waiting for interceptor "a.example.com" (1 of 3)`
	textLeft       = `the pod already left node "n1"; its replacement on node "n2" is not evicted`
)

func allowed(reason translate.Reason) got { return got{outcome: "allowed", reason: reason} }
func conflict(text string) got {
	return got{outcome: "conflict", reason: "precondition-failed", message: "Precondition failed: " + text}
}
func deniedEvicting() got {
	return deniedLast("its interceptors are done, its eviction comes next (3 of 3)")
}

func deniedLast(text string) got {
	return got{outcome: "denied", reason: "waiting", message: "Eviction triggered evacuation: " + text}
}

func heldBy(finalizer string) got {
	return got{outcome: "denied", reason: "request-held", message: `Eviction triggered evacuation: its request is being deleted, but finalizer "` + finalizer + `" holds it`}
}

func deniedWaiting() got              { return got{outcome: "denied", reason: "waiting", message: textWaitingA} }
func deniedAccepted() got             { return got{outcome: "denied", reason: "accepted", message: textAccepted} }
func restarting() got                 { return got{outcome: "denied", reason: "restarting", message: textRestarting} }
func (g got) after(action Action) got { g.action = action.String(); return g }
func needs(n Need) got                { return got{need: n.String()} }
func warned(answer string) got {
	return got{outcome: "allowed", reason: "dry-run", warning: warningOf("db-0", answer)}
}

// warningOf is the warning of a dry run whose real call would get the answer.
func warningOf(pod, answer string) string {
	return translate.DryRunWarning + "shop/" + pod + translate.DryRunAnswered + answer
}

func TestDecide(t *testing.T) {
	full := er().Active(interA, t0)
	for i := len(full.Spec.Requesters); i < v1alpha1.MaxRequesters; i++ {
		full.Requesters(translate.RequesterName("user" + string(rune('a'+i/26)) + string(rune('a'+i%26))))
	}
	strangers := er().Active(interA, t0)
	strangers.Spec.Requesters = nil
	strangers.Requesters("native.example.com")
	noRequesters := er().Active(interA, t0)
	noRequesters.Spec.Requesters = nil
	nativeAlice := er().Active(interA, t0)
	nativeAlice.Spec.Requesters = nil
	nativeAlice.Requesters(alice)
	vanishing := er().Active(interA, t0)
	vanishing.DeletionTimestamp = &metav1.Time{Time: t0}
	held := vanishing.Clone()
	held.Finalizers = []string{"example.com/audit", "example.com/more"}
	heldPlain := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors().Processed(evictor)
	heldPlain.DeletionTimestamp, heldPlain.Finalizers = vanishing.DeletionTimestamp, held.Finalizers
	heldEarly := builder.EvictionRequest("shop", "db-0", "uid-1")
	heldEarly.DeletionTimestamp, heldEarly.Finalizers = vanishing.DeletionTimestamp, held.Finalizers
	grouped := db0()
	grouped.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}

	cases := map[string]struct {
		in   Input
		want got
	}{
		// The pod.
		"a pod the cache does not have is looked at":                     {input(func(in *Input) { in.Pod = nil }), needs(NeedLivePod)},
		"a pod that is not there is the registry's":                      {input(live, func(in *Input) { in.Pod = nil }), allowed("pod-not-found")},
		"another UID in the cache proves nothing":                        {input(func(in *Input) { in.Call.UID = "uid-0" }), needs(NeedLivePod)},
		"another UID is a conflict":                                      {input(live, func(in *Input) { in.Call.UID = "uid-0" }), conflict("another pod has that name now, the one that was meant is gone")},
		"another version is a conflict":                                  {input(live, func(in *Input) { in.Call.ResourceVersion = "6" }), conflict("the pod has changed since the resource version that was given")},
		"a UID that was seen to be gone stays a conflict without a look": {input(func(in *Input) { in.Call.UID, in.Stale = "uid-0", true }), conflict("another pod has that name now, the one that was meant is gone")},
		"what was seen before does not count for the pod that is meant":  {input(func(in *Input) { in.Call.UID, in.Stale = "uid-1", true }), deniedAccepted().after(ActApply)},
		"the right UID and version go on":                                {input(func(in *Input) { in.Call.UID, in.Call.ResourceVersion = "uid-1", "7" }), deniedAccepted().after(ActApply)},
		"a terminating pod is looked at":                                 {input(as(db0().Deleting(t0))), needs(NeedLivePod)},
		"a terminating pod is let go":                                    {input(as(db0().Deleting(t0)), live), allowed("pod-terminating")},
		"a plain terminating pod costs nothing":                          {input(as(db0().Deleting(t0)), plain), allowed("pod-terminating")},
		"a terminating pod is let go in the middle of a request": {during(er().Active(interA, t0), as(db0().Deleting(t0)), live),
			allowed("pod-terminating")},
		"a terminating pod whose successor has its name is held while its request runs": {during(er().Processed(interA, interB).Active(evictor, t0),
			as(db0().OwnedBy("StatefulSet", "db").Deleting(t0))), deniedLast("the pod is terminating")},
		"one that finalizers hold is told so": {during(er().Processed(interA, interB).Active(evictor, t0).Refused(2, "web"),
			as(db0().OwnedBy("StatefulSet", "db").Finalizer("a.example.com/x").Deleting(t0))), deniedLast("the pod is terminating (finalizers a.example.com/x)")},
		"one that terminates in an interceptor's turn is told so": {during(er().Active(interA, t0), as(db0().OwnedBy("StatefulSet", "db").Deleting(t0))), deniedLast("the pod is terminating")},
		"such a pod is let go with a UID": {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("StatefulSet", "db").Deleting(t0)), live, withUID),
			allowed("pod-terminating")},
		"such a pod that nobody intercepts is let go": {during(builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").Leased(alice, leaseN1).Interceptors().Active(evictor, t0),
			as(db0().OwnedBy("StatefulSet", "db").Deleting(t0)), live), allowed("pod-terminating").after(ActNotifyEnd)},
		"such a pod is let go when its request was canceled": {during(er().Canceled(v1alpha1.ReasonNoRequesters, t0), as(db0().OwnedBy("StatefulSet", "db").Deleting(t0)), live),
			allowed("pod-terminating")},
		"such a pod is let go without a request":      {input(as(db0().OwnedBy("StatefulSet", "db").Deleting(t0)), live), allowed("pod-terminating")},
		"a terminating pod of a ReplicaSet is let go": {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("ReplicaSet", "db").Deleting(t0)), live), allowed("pod-terminating")},
		"a succeeded pod is looked at":                {input(as(db0().Phase(corev1.PodSucceeded))), needs(NeedLivePod)},
		"a succeeded pod is let go":                   {input(as(db0().Phase(corev1.PodSucceeded)), live), allowed("pod-terminal")},
		"a failed pod is let go":                      {input(as(db0().Phase(corev1.PodFailed)), live), allowed("pod-terminal")},
		"a pending pod is looked at":                  {input(as(db0().Phase(corev1.PodPending))), needs(NeedLivePod)},
		"a pending pod is let go":                     {input(as(db0().Phase(corev1.PodPending)), live), allowed("pod-pending")},
		"a plain pending pod costs nothing": {input(as(db0().Phase(corev1.PodPending)), plain),
			allowed("no-interceptors")},
		"a DaemonSet's pod is let go": {input(as(db0().DaemonSet("agent"))), allowed("daemonset-pod")},
		"a mirror pod is let go":      {input(as(db0().Mirror())), allowed("mirror-pod")},
		"a group's pod is let go":     {input(as(grouped)), allowed("group-pod")},

		// No request yet.
		"nobody intercepts":                       {input(plain), allowed("no-interceptors")},
		"somebody intercepts":                     {input(), deniedAccepted().after(ActApply)},
		"somebody intercepts, the lease is dead":  {input(func(in *Input) { in.LeaseAlive = false }), deniedAccepted().after(ActApply)},
		"written a moment ago, not in the cache":  {input(written("1")), deniedAccepted()},
		"our own call never makes us a requester": {input(own, liveRequest), got{outcome: "denied", reason: "own-call", message: "Eviction could not be coordinated yet: the request is not in the imperative stage, retry"}},
		"our own call is looked into first":       {input(own), needs(NeedLiveRequest)},
		"our own call for a plain pod":            {input(own, plain), allowed("no-interceptors")},

		// A request decides.
		"the controller has not looked yet":                                    {during(builder.EvictionRequest("shop", "db-0", "uid-1").Leased(alice, leaseN1)), deniedAccepted()},
		"the first interceptor works":                                          {during(er().Active(interA, t0)), deniedWaiting()},
		"the second interceptor works":                                         {during(er().Processed(interA).Active(interB, t0)), got{outcome: "denied", reason: "waiting", message: `Eviction triggered evacuation: waiting for interceptor "b.example.com" (2 of 3)`}},
		"the annotation is gone, the plan is not":                              {during(er().Active(interA, t0), plain), deniedWaiting()},
		"pending in the middle of a request":                                   {during(er().Active(interA, t0), as(db0().Phase(corev1.PodPending))), deniedWaiting()},
		"the imperative stage, by name, is looked":                             {during(er().Processed(interA, interB).Active(evictor, t0)), needs(NeedLivePod)},
		"the imperative stage":                                                 {during(er().Processed(interA, interB).Active(evictor, t0), live), allowed("imperative-stage")},
		"the imperative stage with a UID":                                      {during(er().Processed(interA, interB).Active(evictor, t0), withUID), allowed("imperative-stage")},
		"the imperative stage, by name, of a pod whose successor has its name": {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("StatefulSet", "db"))), deniedEvicting()},
		"the budget that blocks such a pod is named": {during(er().Processed(interA, interB).Active(evictor, t0).Refused(2, "web"),
			as(db0().OwnedBy("StatefulSet", "db"))), deniedLast("waiting for the pod's disruption budget web (3 of 3)")},
		"the budgets that block such a pod are named": {during(er().Processed(interA, interB).Active(evictor, t0).Refused(2, "db", "web"),
			as(db0().OwnedBy("StatefulSet", "db"))), deniedLast("waiting until only one disruption budget selects the pod, not all of db, web (3 of 3)")},
		"the imperative stage, by name, live, of such a pod": {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("StrimziPodSet", "db")), live), deniedEvicting()},
		"the imperative stage of such a pod, for a stranger": {during(func() *builder.EvictionRequestWrapper {
			r := er().Processed(interA, interB).Active(evictor, t0)
			r.Spec.Requesters = nil
			return r.Requesters("native.example.com")
		}(), as(db0().OwnedBy("StatefulSet", "db"))), deniedEvicting().after(ActApply)},
		"the imperative stage of such a pod, with a UID":             {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("StatefulSet", "db")), withUID), allowed("imperative-stage")},
		"the imperative stage of such a pod that nobody intercepts":  {during(builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").Leased(alice, leaseN1).Interceptors().Active(evictor, t0), as(db0().OwnedBy("StatefulSet", "db")), live), allowed("imperative-stage")},
		"the imperative stage of a pod whose successor gets another": {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("ReplicaSet", "db")), live), allowed("imperative-stage")},
		"the imperative stage for a stranger": {during(func() *builder.EvictionRequestWrapper {
			r := er().Processed(interA, interB).Active(evictor, t0)
			r.Spec.Requesters = nil
			return r.Requesters("native.example.com")
		}(), live), allowed("imperative-stage").after(ActApply)},
		"the imperative stage for the hundred and first": {during(full, live, func(in *Input) {
			in.Call.Caller.Requester = "late.users.drawbridge.dev"
			in.Request = in.Request.DeepCopy()
			in.Request.Status = er().Processed(interA, interB).Active(evictor, t0).Status
		}), allowed("imperative-stage")},
		"the imperative stage, the lease is dead": {during(er().Processed(interA, interB).Active(evictor, t0), live, func(in *Input) { in.LeaseAlive = false }),
			allowed("imperative-stage").after(ActApply)},
		"the imperative stage of a request that is canceled": {during(func() *builder.EvictionRequestWrapper {
			r := er().Processed(interA, interB).Active(evictor, t0)
			r.Spec.Requesters = nil
			return r
		}(), live), restarting()},
		"evicted, by name, is looked at":                   {during(er().Evicted(v1alpha1.ReasonPodDeleted, t0)), needs(NeedLivePod)},
		"evicted, by UID, is looked at":                    {during(er().Evicted(v1alpha1.ReasonPodDeleted, t0), byUID), needs(NeedLivePod)},
		"evicted, but it runs":                             {input(finished(er().Evicted(v1alpha1.ReasonPodDeleted, t0)), live), deniedAccepted().after(ActRestart)},
		"evicted, by UID, but it runs":                     {input(finished(er().Evicted(v1alpha1.ReasonPodDeleted, t0)), live, byUID), deniedAccepted().after(ActRestart)},
		"evicted, and nobody intercepts":                   {during(er().Evicted(v1alpha1.ReasonPodDeleted, t0), live, plain), allowed("no-interceptors")},
		"about to be canceled":                             {during(noRequesters), restarting()},
		"about to be deleted":                              {during(vanishing), restarting()},
		"held by a finalizer":                              {during(held), heldBy("example.com/audit")},
		"held before it had a plan":                        {during(heldEarly, func(in *Input) { in.Interceptors = []string{interA} }), heldBy("example.com/audit")},
		"held, of a pod that nobody intercepts":            {during(heldPlain, plain), needs(NeedLivePod)},
		"held, of a pod that nobody intercepts, seen live": {during(heldPlain, plain, live), allowed("no-interceptors")},
		"held, though nobody would intercept the pod now":  {during(held, plain, live), heldBy("example.com/audit")},
		"canceled": {input(func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }),
			deniedAccepted().after(ActRestart)},
		"canceled, and nobody intercepts any more": {during(er().Canceled(v1alpha1.ReasonNoRequesters, t0), plain), allowed("no-interceptors")},
		"canceled, the new one is written": {during(er().Canceled(v1alpha1.ReasonNoRequesters, t0), written("2")),
			deniedAccepted()},
		"canceled right after we wrote it": {input(written("1"), func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }),
			deniedAccepted().after(ActRestart)},
		"refused for this very pod":                          {during(er().Canceled(v1alpha1.ReasonValidationFailed, t0), live, inGroup), allowed("request-refused")},
		"refused for this very pod, which does not show why": {during(er().Canceled(v1alpha1.ReasonValidationFailed, t0), live, func(in *Input) { in.GroupsHidden = true }), allowed("request-refused")},
		"refused, but there is no reason for it":             {input(finished(er().Canceled(v1alpha1.ReasonValidationFailed, t0)), live), deniedAccepted().after(ActRestart)},
		"refused because its target was named wrongly": {input(func(in *Input) {
			in.Request = er().Canceled(v1alpha1.ReasonValidationFailed, t0).Obj()
			in.Request.Spec.Target.Pod.Name = "db-1"
		}), deniedAccepted().after(ActRestart)},
		"our own call in the imperative stage":        {during(er().Processed(interA, interB).Active(evictor, t0), own), allowed("imperative-stage")},
		"our own call, the cache lags":                {during(er().Active(interB, t0), own), needs(NeedLiveRequest)},
		"our own call before the imperative stage":    {during(er().Active(interB, t0), own, liveRequest), got{outcome: "denied", reason: "own-call", message: "Eviction could not be coordinated yet: the request is not in the imperative stage, retry"}},
		"our own call after the request was canceled": {during(noRequesters, own, liveRequest), restarting()},

		// Joining.
		"another requester joins":                     {during(strangers), deniedWaiting().after(ActApply)},
		"another requester joined a moment ago":       {during(strangers, written("1")), deniedWaiting()},
		"the lease is dead":                           {during(er().Active(interA, t0), func(in *Input) { in.LeaseAlive = false }), deniedWaiting().after(ActApply)},
		"the lease is another one":                    {during(er().Active(interA, t0), func(in *Input) { in.LeaseName = "other" }), deniedWaiting().after(ActApply)},
		"a native requester of that name stays":       {during(nativeAlice, func(in *Input) { in.LeaseAlive = false }), deniedWaiting()},
		"a grace period longer than the pod's own":    {during(er().Active(interA, t0), grace(31)), deniedWaiting().after(ActApply)},
		"a longer grace period":                       {during(withGrace(er().Active(interA, t0), 10), grace(30)), deniedWaiting().after(ActApply)},
		"a grace period shorter than the pod's own":   {during(er().Active(interA, t0), grace(29)), deniedWaiting()},
		"the pod's own where there was a shorter one": {during(withGrace(er().Active(interA, t0), 0)), deniedWaiting().after(ActApply)},
		"the pod's own where there was a longer one":  {during(withGrace(er().Active(interA, t0), 60)), deniedWaiting()},
		"a shorter grace period changes nothing":      {during(withGrace(er().Active(interA, t0), 60), grace(30)), deniedWaiting()},
		"the hundred and first requester":             {during(full, func(in *Input) { in.Call.Caller.Requester = "late.users.drawbridge.dev" }), got{outcome: "denied", reason: "too-many-requesters", message: "Eviction triggered evacuation: in progress, but it has too many requesters to add one more"}},
		"one of a hundred may still renew its lease":  {during(full, func(in *Input) { in.LeaseAlive = false }), deniedWaiting().after(ActApply)},

		// Dry run.
		"a dry run of a denial":          {during(er().Active(interA, t0), dryRun), warned("429: " + textWaitingA)},
		"a dry run that would create":    {input(dryRun), warned("429: " + textAccepted)},
		"a dry run that would restart":   {input(dryRun, func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }), warned("429: " + textAccepted)},
		"a dry run for a plain pod":      {input(dryRun, plain), allowed("dry-run")},
		"a dry run for no pod is looked": {input(dryRun, func(in *Input) { in.Pod = nil }), needs(NeedLivePod)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, inWords(Decide(tc.in)), cmp.AllowUnexported(got{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func with(in Input, changes ...func(*Input)) Input {
	for _, change := range changes {
		change(&in)
	}
	return in
}

func withGrace(w *builder.EvictionRequestWrapper, seconds int64) *builder.EvictionRequestWrapper {
	w.Spec.Requesters[0].GracePeriodSeconds = &seconds
	return w
}
