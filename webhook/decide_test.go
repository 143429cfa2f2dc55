package webhook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/builder"
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
		LeaseName: leaseN1, LeaseAlive: true, Guard: GuardNotFound, GuardWindow: 15 * time.Minute,
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

func live(in *Input)   { in.PodSource = Live }
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
func deniedEvicting() got {
	return got{outcome: "denied", reason: "waiting", message: `Eviction triggered evacuation: waiting for interceptor "imperative-eviction.k8s.io" (3 of 3)`}
}

func deniedWaiting() got              { return got{outcome: "denied", reason: "waiting", message: textWaitingA} }
func deniedAccepted() got             { return got{outcome: "denied", reason: "accepted", message: textAccepted} }
func restarting() got                 { return got{outcome: "denied", reason: "restarting", message: textRestarting} }
func (g got) after(action Action) got { g.action = action.String(); return g }
func needs(n Need) got                { return got{need: n.String()} }
func warned() got {
	return got{outcome: "allowed", reason: "dry-run", warning: translate.DryRunWarning}
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
	grouped := db0()
	grouped.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	gone := func() *builder.EvictionRequestWrapper {
		return er().Evicted(v1alpha1.ReasonPodDeleted, t0.Add(-time.Minute))
	}
	known := func(markers ...string) func(*Input) {
		return func(in *Input) { in.Node = translate.NodeView{Known: true, Markers: markers} }
	}

	cases := map[string]struct {
		in   Input
		want got
	}{
		// The pod.
		"a pod the cache does not have is looked at": {input(func(in *Input) { in.Pod = nil }), needs(NeedLivePod)},
		"a pod that is not there is the registry's":  {input(live, func(in *Input) { in.Pod = nil }), allowed("pod-not-found")},
		"another UID in the cache proves nothing":    {input(func(in *Input) { in.Call.UID = "uid-0" }), needs(NeedLivePod)},
		"another UID is the registry's":              {input(live, func(in *Input) { in.Call.UID = "uid-0" }), allowed("precondition-failed")},
		"another version is the registry's":          {input(live, func(in *Input) { in.Call.ResourceVersion = "6" }), allowed("precondition-failed")},
		"the right UID and version go on":            {input(func(in *Input) { in.Call.UID, in.Call.ResourceVersion = "uid-1", "7" }), deniedAccepted().after(ActApply)},
		"a terminating pod is looked at":             {input(as(db0().Deleting(t0))), needs(NeedLivePod)},
		"a terminating pod is let go":                {input(as(db0().Deleting(t0)), live), allowed("pod-terminating")},
		"a plain terminating pod costs nothing":      {input(as(db0().Deleting(t0)), plain), allowed("pod-terminating")},
		"a terminating pod is let go in the middle of a request": {during(er().Active(interA, t0), as(db0().Deleting(t0)), live),
			allowed("pod-terminating")},
		"a terminating pod whose successor has its name is held while its request runs": {during(er().Processed(interA, interB).Active(evictor, t0),
			as(db0().OwnedBy("StatefulSet", "db").Deleting(t0))), deniedEvicting()},
		"such a pod is let go with a UID": {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("StatefulSet", "db").Deleting(t0)), live, withUID),
			allowed("pod-terminating")},
		"such a pod that nobody intercepts is let go": {during(builder.EvictionRequest("shop", "db-0", "uid-1").UID("er-1").Leased(alice, leaseN1).Interceptors().Active(evictor, t0),
			as(db0().OwnedBy("StatefulSet", "db").Deleting(t0)), live), allowed("pod-terminating")},
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
		"the imperative stage, by name, live, of such a pod":                   {during(er().Processed(interA, interB).Active(evictor, t0), as(db0().OwnedBy("StrimziPodSet", "db")), live), deniedEvicting()},
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
		"the imperative stage of a request that is called off": {during(func() *builder.EvictionRequestWrapper {
			r := er().Processed(interA, interB).Active(evictor, t0)
			r.Spec.Requesters = nil
			return r
		}(), live), restarting()},
		"evicted, by name, is looked at": {during(er().Evicted(v1alpha1.ReasonPodDeleted, t0)), needs(NeedLivePod)},
		"evicted":                        {during(er().Evicted(v1alpha1.ReasonPodDeleted, t0), live), allowed("evicted")},
		"about to be canceled":           {during(noRequesters), restarting()},
		"about to be deleted":            {during(vanishing), restarting()},
		"canceled": {input(func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }),
			deniedAccepted().after(ActRestart)},
		"canceled, and nobody intercepts any more": {during(er().Canceled(v1alpha1.ReasonNoRequesters, t0), plain), allowed("no-interceptors")},
		"canceled, the new one is written": {during(er().Canceled(v1alpha1.ReasonNoRequesters, t0), written("2")),
			deniedAccepted()},
		"canceled right after we wrote it": {input(written("1"), func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }),
			deniedAccepted().after(ActRestart)},
		"refused for this very pod": {during(er().Canceled(v1alpha1.ReasonValidationFailed, t0), live), allowed("request-refused")},
		"refused because its target was named wrongly": {input(func(in *Input) {
			in.Request = er().Canceled(v1alpha1.ReasonValidationFailed, t0).Obj()
			in.Request.Spec.Target.Pod.Name = "db-1"
		}), deniedAccepted().after(ActRestart)},
		"our own call in the imperative stage":          {during(er().Processed(interA, interB).Active(evictor, t0), own), allowed("imperative-stage")},
		"our own call, the cache lags":                  {during(er().Active(interB, t0), own), needs(NeedLiveRequest)},
		"our own call before the imperative stage":      {during(er().Active(interB, t0), own, liveRequest), got{outcome: "denied", reason: "own-call", message: "Eviction could not be coordinated yet: the request is not in the imperative stage, retry"}},
		"our own call after the request was called off": {during(noRequesters, own, liveRequest), restarting()},

		// Joining.
		"another requester joins":                    {during(strangers), deniedWaiting().after(ActApply)},
		"another requester joined a moment ago":      {during(strangers, written("1")), deniedWaiting()},
		"the lease is dead":                          {during(er().Active(interA, t0), func(in *Input) { in.LeaseAlive = false }), deniedWaiting().after(ActApply)},
		"the lease is another one":                   {during(er().Active(interA, t0), func(in *Input) { in.LeaseName = "other" }), deniedWaiting().after(ActApply)},
		"a native requester of that name stays":      {during(nativeAlice, func(in *Input) { in.LeaseAlive = false }), deniedWaiting()},
		"a grace period where there was none":        {during(er().Active(interA, t0), grace(30)), deniedWaiting().after(ActApply)},
		"a longer grace period":                      {during(withGrace(er().Active(interA, t0), 10), grace(30)), deniedWaiting().after(ActApply)},
		"a shorter grace period changes nothing":     {during(withGrace(er().Active(interA, t0), 60), grace(30)), deniedWaiting()},
		"the hundred and first requester":            {during(full, func(in *Input) { in.Call.Caller.Requester = "late.users.drawbridge.dev" }), got{outcome: "denied", reason: "too-many-requesters", message: "Eviction triggered evacuation: in progress, but it has too many requesters to add one more"}},
		"one of a hundred may still renew its lease": {during(full, func(in *Input) { in.LeaseAlive = false }), deniedWaiting().after(ActApply)},

		// Dry run.
		"a dry run of a denial":          {during(er().Active(interA, t0), dryRun), warned()},
		"a dry run that would create":    {input(dryRun), warned()},
		"a dry run that would restart":   {input(dryRun, func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }), warned()},
		"a dry run for a plain pod":      {input(dryRun, plain), allowed("dry-run")},
		"a dry run for no pod is looked": {input(dryRun, func(in *Input) { in.Pod = nil }), needs(NeedLivePod)},
		"a dry run about a replacement":  {with(after(gone()), dryRun, known()), allowed("dry-run")},

		// The replacement guard.
		"a replacement is looked at itself":       {with(after(gone()), cached), needs(NeedLivePod)},
		"a replacement: its node is looked at":    {after(gone()), needs(NeedLiveNode)},
		"a replacement on a node nobody drains":   {with(after(gone()), known()), got{outcome: "not_found", reason: "replacement", message: textLeft, left: "n1"}},
		"a replacement on a node that is drained": {with(after(gone()), known("unschedulable")), deniedAccepted().after(ActApply)},
		"a replacement on a node that is gone":    {with(after(gone()), func(in *Input) { in.Node = translate.ViewNode(nil) }), deniedAccepted().after(ActApply)},
		"a replacement nobody intercepts":         {with(after(gone()), known(), plain), got{outcome: "not_found", reason: "replacement", message: textLeft, left: "n1"}},
		"a replacement without a node":            {with(after(gone()), as(db0().UID("uid-2").Node("").Phase(corev1.PodPending))), got{outcome: "not_found", reason: "replacement", message: `the pod already left node "n1"; its replacement without a node is not evicted`, left: "n1"}},
		"a replacement on the same node":          {with(after(gone()), as(db0().UID("uid-2"))), deniedAccepted().after(ActApply)},
		"a replacement, the call has a UID":       {with(after(gone()), withUID), deniedAccepted().after(ActApply)},
		"a replacement, somebody else's request":  {with(after(gone()), func(in *Input) { in.Call.Caller.Requester = "bob.users.drawbridge.dev" }), deniedAccepted().after(ActApply)},
		"a replacement after the window":          {after(er().Evicted(v1alpha1.ReasonPodDeleted, t0.Add(-15*time.Minute-1))), deniedAccepted().after(ActApply)},
		"a replacement at the end of the window":  {after(er().Evicted(v1alpha1.ReasonPodDeleted, t0.Add(-15*time.Minute))), needs(NeedLiveNode)},
		"the first pod was never evicted":         {after(er().Canceled(v1alpha1.ReasonNoRequesters, t0)), deniedAccepted().after(ActApply)},
		"the controller has not noticed its end":  {after(er().Processed(interA, interB).Active(evictor, t0)), needs(NeedLiveNode)},
		"the node it left is not known":           {after(gone().NodeName("")), deniedAccepted().after(ActApply)},
		"it came back to the node it left last": {after(gone(), builder.EvictionRequest("shop", "db-0", "uid-0").NodeName("n2").Leased(alice, leaseN1).
			Evicted(v1alpha1.ReasonPodDeleted, t0.Add(-time.Second))), deniedAccepted().after(ActApply)},
		"the guard is off": {with(after(gone()), func(in *Input) { in.Guard = GuardEvict }), deniedAccepted().after(ActApply)},
		"the guard denies, which needs no live pod": {with(after(gone()), known(), cached, func(in *Input) { in.Guard = GuardTooManyRequests }), got{
			outcome: "denied", reason: "replacement", left: "n1",
			message: "Eviction could not be coordinated yet: the pod already left its node and a replacement has its name, retry later"}},
		"a request for the replacement goes on": {with(after(gone()), func(in *Input) {
			in.Request = builder.EvictionRequest("shop", "db-0", "uid-2").UID("er-2").NodeName("n2").Interceptors(interA, interB).Active(interA, t0).Leased(alice, leaseN1).Obj()
		}), deniedWaiting()},
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
