package webhook

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// TestDecideOnEverything walks over all combinations of what an input can be, and
// checks what must hold for each of them.
func TestDecideOnEverything(t *testing.T) {
	pods := []*builder.PodWrapper{
		nil, db0(), db0().Deleting(t0), db0().Phase(corev1.PodPending), db0().Phase(corev1.PodSucceeded), db0().DaemonSet("d"),
		db0().UID("uid-2").Node("n2"), db0().UID("uid-2").OwnedBy("StatefulSet", "db"), db0().UID("uid-2").Node("").Phase(corev1.PodPending),
	}
	noRequesters := er().Active(interA, t0)
	noRequesters.Spec.Requesters = nil
	requests := []*builder.EvictionRequestWrapper{
		nil, er(), er().Active(interA, t0), er().Active(evictor, t0), noRequesters,
		er().Evicted(v1alpha1.ReasonPodDeleted, t0), er().Canceled(v1alpha1.ReasonNoRequesters, t0), er().Canceled(v1alpha1.ReasonValidationFailed, t0),
	}
	// Each of these goes with everything but the nodes, which do not matter then.
	settings := []func(*Input){
		func(*Input) {},
		func(in *Input) { in.Acts = []string{interA} },
		func(in *Input) { in.Acts = []string{interB} },
		func(in *Input) { in.AskFirst = true },
		answers(says(interA, preflight.Allow, "")),
		answers(says(interA, preflight.Deny, "no")),
		func(in *Input) { in.Start = StartLimited },
		func(in *Input) { in.Start = StartRefused },
	}
	nodes := []translate.NodeView{{}, {Known: true}, {Known: true, Gone: true}, {Known: true, Markers: []string{"unschedulable"}}}
	n := 0
	for _, pod := range pods {
		for _, request := range requests {
			for i := range len(nodes) + len(settings) - 1 {
				node, setting := nodes[max(0, i-len(settings)+1)], settings[0]
				if i < len(settings) {
					setting = settings[i]
				}
				for bits := range 1 << 9 {
					bit := func(i int) bool { return bits&(1<<i) != 0 }
					in := Input{Call: call(), Now: t0, LeaseName: leaseN1, Replacement: ReplacementNotFound, ReplacementWindow: DefaultReplacementWindow, Node: node}
					if pod != nil {
						in.Pod = pod.Obj()
					}
					if request != nil && (pod == nil || pod.Pod.UID == "uid-1") {
						in.Request = request.Obj()
					}
					in.Own, in.LeaseAlive, in.Call.DryRun = bit(0), bit(1), bit(2)
					if bit(3) {
						in.Interceptors = []string{interA}
					}
					if bit(4) {
						in.PodSource = Live
					}
					if bit(5) {
						in.RequestSource = Live
					}
					if bit(6) {
						in.Call.UID = "uid-1"
					}
					if bit(7) {
						in.Written.Request = "er-1"
					}
					if bit(8) {
						in.Predecessors = []v1alpha1.EvictionRequest{*er().Evicted(v1alpha1.ReasonPodDeleted, t0).Obj()}
						in.LeftLease.Stands = bit(1)
						in.LivePredecessor = bit(4) && bit(5)
					}
					setting(&in)
					mustHold(t, in, Decide(in))
					n++
				}
			}
		}
	}
	if n < 100_000 {
		t.Errorf("only %d inputs", n)
	}
}

func mustHold(t *testing.T, in Input, d Decision) {
	t.Helper()
	must := func(ok bool, what string) {
		if !ok {
			t.Fatalf("%s: input %+v, decision %+v", what, in, d)
		}
	}
	if d.Need != NeedNothing {
		must(d.Action == ActNothing && d.Verdict == translate.Verdict{}, "a decision that needs a look is none")
		must(d.Need != NeedLivePod || in.PodSource != Live, "the pod is looked at once")
		must(d.Need != NeedLiveRequest || in.RequestSource != Live && (in.Own || len(in.Acts) > 0), "the request is looked at once, and only for ourselves and interceptors")
		must(d.Need != NeedPreflights || in.AskFirst && in.Preflights == nil && len(in.Interceptors) > 0, "interceptors are asked once, and only if they have a say")
		must(d.Need != NeedStart || in.Start == StartLimited && !in.Call.DryRun, "room is taken once, and never for a dry run")
		must(d.Need != NeedPredecessor || !in.LivePredecessor && in.Call.byName(), "the predecessor is looked at once, and only for calls by name")
		must(d.Need != NeedLiveNode || !in.Node.Known && in.Call.UID == "", "the node is looked at once, and only for calls by name")
		return
	}
	v := d.Verdict
	must(v.Outcome != 0 && v.Reason != translate.ReasonInternalError, "there is a verdict")
	must(!in.Call.DryRun || d.Action == ActNothing && v.Outcome == translate.Allow, "a dry run changes nothing and is allowed")
	must(!in.Own || d.Action == ActNothing, "we never become a requester of ourselves")
	starts := d.Action == ActRestart || d.Action == ActApply && in.Request == nil
	must(!starts || in.Start == StartFree, "nothing starts without room")
	must(!starts || !in.AskFirst || in.Preflights != nil && in.Preflights[0].Verdict.Outcome != preflight.Deny, "nothing starts without the interceptors' say")
	must(d.Action == ActNothing || d.Action == ActNotifyEnd || len(in.Acts) == 0 || in.Request == nil || slices.ContainsFunc(in.Request.Spec.Requesters, in.isEntry) || d.Action == ActRestart, "an interceptor is not made a requester of what it intercepts")
	must(v.Reason != translate.ReasonActiveInterceptor || in.RequestSource == Live && slices.Contains(in.Acts, in.Request.Status.ActiveInterceptors[0]), "an interceptor evicts only in its turn, seen live")
	must(d.Action == ActNothing || d.Action == ActNotifyEnd || in.Pod != nil && in.Pod.DeletionTimestamp == nil, "nothing is asked for a pod that is not there or going")
	must(d.Action != ActNotifyEnd || d.Ended != nil && in.Call.byName() && !wasNotified(d.Ended, in.Call.Caller.Requester), "the end is told once, to calls by name")
	must(v.Outcome != translate.NotFound || d.Action == ActNotifyEnd && in.LivePredecessor, "404 is recorded, against what the API server has")
	must(d.Action != ActRestart || in.Request != nil, "only a request that exists restarts")
	must(v.Outcome != translate.NotFound || in.Call.byName(), "404 is only for calls by name")
	if v.Outcome == translate.Allow && !in.Call.DryRun && in.Call.UID == "" && in.Request != nil && in.Pod != nil &&
		v.Reason != translate.ReasonNoInterceptors && v.Reason != translate.ReasonDaemonSetPod {
		must(in.PodSource == Live, "a call by name about an intercepted pod is let through only after a live look")
	}
}
