package webhook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// actorA is the service account that acts as interceptor A.
const actorA = "system:serviceaccount:shop:failover"

// acting makes the caller a service account that may act as these interceptors.
func acting(names ...string) func(*Input) {
	return func(in *Input) {
		in.Acts, in.Call.Username = names, actorA
		in.Call.Caller = translate.Recognize(translate.CallerInput{Username: actorA})
		in.LeaseName, in.LeaseAlive = translate.LeaseName(in.Call.Caller.Requester, "n1"), false
	}
}

// answers makes the interceptors with a Preflight have said this.
func answers(answers ...Asked) func(*Input) {
	return func(in *Input) { in.AskFirst, in.Preflights = true, answers }
}

func says(name string, outcome preflight.Outcome, text string) Asked {
	return Asked{Interceptor: name, Verdict: preflight.Verdict{Outcome: outcome, Text: text}}
}

func trouble(reason translate.Reason, text string) got {
	return got{outcome: "denied", reason: reason, message: "Eviction could not be coordinated yet: " + text + ", retry"}
}

func TestDecideOnInterceptorsCalls(t *testing.T) {
	working, evicting := er().Active(interA, t0), er().Processed(interA, interB).Active(evictor, t0)
	withActor := func(r *builder.EvictionRequestWrapper) *builder.EvictionRequestWrapper {
		return r.Clone().Leased(translate.RequesterName(actorA), translate.LeaseName(translate.RequesterName(actorA), "n1"))
	}
	noRequesters := er().Active(interA, t0)
	noRequesters.Spec.Requesters = nil
	canceled := func(ago time.Duration) func(*Input) {
		return func(in *Input) {
			in.Request = er().Active(interA, t0).Canceled(v1alpha1.ReasonNoRequesters, t0.Add(-ago)).Obj()
		}
	}
	const notItsTurn = "it is not the turn of the caller's interceptor"
	cases := map[string]struct {
		in   Input
		want got
	}{
		"its turn, as the cache has it, is looked at": {during(working, acting(interA)), needs(NeedLiveRequest)},
		"its turn, by name, the pod is looked at":     {during(working, acting(interA), liveRequest), needs(NeedLivePod)},
		"its turn, by name":                           {during(working, acting(interA), liveRequest, live), allowed("active-interceptor")},
		"its turn, with a UID":                        {during(working, acting(interA), liveRequest, withUID), allowed("active-interceptor")},
		"its turn, the UID of another pod":            {during(working, acting(interA), liveRequest, live, func(in *Input) { in.Call.UID = "uid-2" }), conflict("another pod has that name now, the one that was meant is gone")},
		"its turn under another of its names":         {during(working, acting(interB, interA), liveRequest, live), allowed("active-interceptor")},
		"its turn, in a dry run":                      {during(working, acting(interA), liveRequest, live, dryRun), allowed("dry-run")},
		"its turn, our own account":                   {during(working, own, acting(interA), liveRequest, withUID), allowed("active-interceptor")},
		"its turn, but nobody wants it any longer":    {during(noRequesters, acting(interA), liveRequest, live), restarting()},
		"its turn, but the request is being deleted": {during(working, acting(interA), liveRequest, live, func(in *Input) {
			in.Request = in.Request.DeepCopy()
			in.Request.DeletionTimestamp = at(0)
		}), restarting()},
		"before its turn it waits and does not join":      {during(working, acting(interB)), deniedWaiting()},
		"before any turn it waits and does not join":      {during(er(), acting(interB)), deniedAccepted()},
		"after its turn it waits and does not join":       {during(er().Processed(interA).Active(interB, t0), acting(interA)), got{outcome: "denied", reason: "waiting", message: `Eviction triggered evacuation: waiting for interceptor "b.example.com" (2 of 3)`}},
		"before its turn in a dry run":                    {during(working, acting(interB), dryRun), warned("429: " + textWaitingA)},
		"a requester besides stays one":                   {during(withActor(working), acting(interB)), deniedWaiting().after(ActApply)},
		"in the imperative stage it passes, without join": {during(evicting, acting(interA), live), allowed("imperative-stage")},
		"there a requester besides stays one":             {during(withActor(evicting), acting(interA), live), allowed("imperative-stage").after(ActApply)},
		"the account of no interceptor in the plan joins": {during(working, acting(), live), deniedWaiting().after(ActApply)},
		"without a request it is a caller like any other": {input(acting(), live), deniedAccepted().after(ActApply)},

		"its turn, but the request was deleted meanwhile":  {input(acting(interA), liveRequest), trouble("not-its-turn", notItsTurn)},
		"its turn, but the request was canceled meanwhile": {input(acting(interA), liveRequest, canceled(0)), trouble("not-its-turn", notItsTurn)},
		"right after the cancel it restarts nothing":       {input(acting(interA), canceled(time.Minute-1)), trouble("not-its-turn", notItsTurn)},
		"later it restarts like any other":                 {input(acting(interA), canceled(time.Minute)), deniedAccepted().after(ActRestart)},
		"late for a pod nobody intercepts any more":        {input(acting(interA), liveRequest, plain), allowed("no-interceptors")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, inWords(Decide(tc.in)), cmp.AllowUnexported(got{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideBeforeARequestStarts(t *testing.T) {
	const proceed, allow, deny = preflight.Proceed, preflight.Allow, preflight.Deny
	failed := Asked{Interceptor: interA, Failed: true}
	ask := func(in *Input) { in.AskFirst = true }
	start := func(s Start) func(*Input) { return func(in *Input) { in.Start = s } }
	canceled := func(in *Input) { in.Request = er().Canceled(v1alpha1.ReasonNoRequesters, t0).Obj() }
	node := func(in *Input) { in.Node = translate.NodeView{Known: true} }
	refused := got{outcome: "denied", reason: "preflight-denied", message: "not now"}
	tooMany := got{outcome: "denied", reason: "too-many-new", message: "Eviction could not be started yet: too many evacuations began on this node in the last minute, retry later"}
	cases := map[string]struct {
		in   Input
		want got
	}{
		"interceptors with a say are asked":          {input(ask), needs(NeedPreflights)},
		"so they are in a dry run":                   {input(ask, dryRun), needs(NeedPreflights)},
		"so they are before a restart":               {input(ask, canceled), needs(NeedPreflights)},
		"not while a request runs":                   {during(er().Active(interA, t0), ask), deniedWaiting()},
		"not about a request of a moment ago":        {input(ask, written("1")), deniedAccepted()},
		"not for a pod that cannot be evicted so":    {input(ask, as(db0().DaemonSet("d"))), allowed("daemonset-pod")},
		"all proceed":                                {input(answers(says(interA, proceed, ""), says(interB, proceed, ""))), deniedAccepted().after(ActApply)},
		"one proceeds, one allows":                   {input(answers(says(interA, allow, ""), says(interB, proceed, ""))), deniedAccepted().after(ActApply)},
		"one allows, one has no say":                 {input(answers(says(interA, allow, ""))), deniedAccepted().after(ActApply)},
		"all allow, on what the cache has":           {input(answers(says(interA, allow, ""), says(interB, allow, ""))), needs(NeedLivePod)},
		"all allow":                                  {input(live, answers(says(interA, allow, ""), says(interB, allow, ""))), allowed("preflight-allowed")},
		"all allow a restart":                        {input(live, canceled, answers(says(interA, allow, ""), says(interB, allow, ""))), allowed("preflight-allowed")},
		"one denies":                                 {input(answers(says(interA, deny, "not now"))), refused},
		"one denies, one allows":                     {input(answers(says(interA, allow, ""), says(interB, deny, "not now"))), refused},
		"one denies, one could not be asked":         {input(answers(failed, says(interB, deny, "not now"))), refused},
		"one allows, one could not be asked":         {input(answers(failed, says(interB, allow, ""))), trouble("preflight-failed", "an interceptor of the pod could not be asked")},
		"one proceeds, one could not be asked":       {input(answers(failed, says(interB, proceed, ""))), trouble("preflight-failed", "an interceptor of the pod could not be asked")},
		"a dry run of a refusal":                     {input(dryRun, answers(says(interA, deny, "not now"))), warned("429: not now")},
		"a dry run of what all allow is looked at":   {input(dryRun, answers(says(interA, allow, ""), says(interB, allow, ""))), needs(NeedLivePod)},
		"a limited caller needs room":                {input(start(StartLimited)), needs(NeedStart)},
		"a limited caller has room":                  {input(start(StartGranted)), deniedAccepted().after(ActApply)},
		"a limited caller has none":                  {input(start(StartRefused)), tooMany},
		"a restart needs room as well":               {input(start(StartLimited), canceled), needs(NeedStart)},
		"interceptors are asked before room is":      {input(start(StartLimited), ask), needs(NeedPreflights)},
		"a refusal takes no room":                    {input(start(StartLimited), answers(says(interA, deny, "not now"))), refused},
		"a dry run takes no room":                    {input(start(StartLimited), dryRun), warned("429: " + textAccepted)},
		"a plain pod takes no room":                  {input(start(StartLimited), plain), allowed("no-interceptors")},
		"to join takes no room":                      {during(er().Active(interA, t0), start(StartLimited), func(in *Input) { in.Call.Caller.Requester = "b.example.com" }), deniedWaiting().after(ActApply)},
		"to wait takes no room":                      {during(er().Active(interA, t0), start(StartLimited)), deniedWaiting()},
		"to repeat what was written takes no room":   {input(start(StartLimited), written("1")), deniedAccepted()},
		"the replacement of a pod takes no room":     {with(after(er().Evicted(v1alpha1.ReasonPodDeleted, t0)), start(StartLimited), node, seen), got{outcome: "not_found", reason: "replacement", message: textLeft, left: "n1"}.after(ActNotifyEnd)},
		"our own call is refused before all of this": {input(own, ask, liveRequest, start(StartLimited)), trouble("own-call", "the request is not in the imperative stage")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, inWords(Decide(tc.in)), cmp.AllowUnexported(got{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
