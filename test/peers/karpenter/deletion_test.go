//go:build unix

package karpenter

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

const (
	// preparer is the interceptor of those pods that name one, guarded that of pods with the
	// label, whose guard is always closed.
	preparer, guarded = "preparer.example.com", "guarded.example.com"
	guardLabel        = "test.example.com/guard"
	// prepares is how long both need.
	prepares = 3 * time.Second
)

// deletion is a NodeClaim that is deleted.
type deletion struct {
	terminationGracePeriod string
	// create creates the pod of the node, and what is around it. Its grace period is 30 s.
	create func(*testing.T, *pool) *corev1.Pod
	// alone is what happens without Drawbridge, together with it.
	alone, together outcome
}

func plainPod(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	return p.pod(t, "plain")
}

func interceptedPod(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	return p.pod(t, "intercepted", func(w *builder.PodWrapper) { w.Interceptors(preparer) })
}

// heldPod is a pod with an interceptor, behind a budget that allows nothing.
func heldPod(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	cluster.Create(t, admin, builder.Budget(p.name, "none").Selects(builder.AppLabel, "held").MaxUnavailable("0").Obj())
	return p.pod(t, "held", func(w *builder.PodWrapper) { w.Label(builder.AppLabel, "held").Interceptors(preparer) })
}

// undisruptable is a pod that Karpenter is asked to spare.
func undisruptable(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	return p.pod(t, "spared", func(w *builder.PodWrapper) { w.Annotation("karpenter.sh/do-not-disrupt", "true") })
}

// single is the pod of a Deployment of one replica that surges, behind a budget that allows nothing.
func single(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	cluster.Create(t, admin,
		builder.Deployment(p.name, "web").Rolling("1", "0").Pods(p.here(func(w *builder.PodWrapper) { w.Label(surge.OptInLabel, "enabled") })).Obj(),
		builder.Budget(p.name, "web").Selects(builder.AppLabel, "web").MaxUnavailable("0").Obj())
	return p.ready(t, "web-")[0]
}

// setPod is the pod of a StatefulSet, with an interceptor.
func setPod(t *testing.T, p *pool) *corev1.Pod {
	t.Helper()
	cluster.Create(t, admin, builder.StatefulSet(p.name, "db").Pods(p.here(func(w *builder.PodWrapper) { w.Interceptors(preparer) })).Obj())
	return p.ready(t, "db-0")[0]
}

var (
	// atOnce is what happens to a pod that nobody protects.
	atOnce = outcome{Ends: []string{evicted}, Node: gone}
	// cutShort is what happens if the node has to be gone before the pod could end.
	cutShort = outcome{Ends: []string{deleted}, Node: gone}
	// forced is what happens to a protected pod when the time is over.
	forced = outcome{Ends: []string{deleted}, Refused: true, Node: gone}
	// blocks is what happens to a protected pod if it may take for ever.
	blocks = outcome{Refused: true, Node: stays}
	// untouched is what happens to a pod that Karpenter does not call for.
	untouched = outcome{Node: stays}
	// prepared is what happens to a pod whose interceptor has the time.
	prepared = outcome{Ends: []string{evicted}, Refused: true, Prepared: true, Node: gone}
	// moved is what happens to a pod whose replacement comes first.
	moved = outcome{Ends: []string{evicted}, Refused: true, Node: gone}
)

var deletions = map[string]deletion{
	"a plain pod is evicted":                                  {"", plainPod, atOnce, atOnce},
	"a plain pod is evicted within a minute":                  {"60s", plainPod, atOnce, atOnce},
	"a plain pod is evicted within an hour":                   {"1h", plainPod, atOnce, atOnce},
	"an intercepted pod is prepared":                          {"", interceptedPod, atOnce, prepared},
	"an intercepted pod is prepared within a minute":          {"60s", interceptedPod, atOnce, prepared},
	"an intercepted pod is prepared within an hour":           {"1h", interceptedPod, atOnce, prepared},
	"a prepared pod is still held by its budget":              {"60s", heldPod, forced, outcome{Ends: []string{deleted}, Refused: true, Prepared: true, Node: gone}},
	"a single replica is moved":                               {"", single, blocks, moved},
	"a single replica is moved within a minute":               {"60s", single, forced, moved},
	"a single replica is moved within an hour":                {"1h", single, blocks, moved},
	"a pod of a StatefulSet is prepared":                      {"", setPod, atOnce, prepared},
	"a pod of a StatefulSet is prepared within a minute":      {"60s", setPod, atOnce, prepared},
	"a pod of a StatefulSet is prepared within an hour":       {"1h", setPod, atOnce, prepared},
	"a pod that is not to be disrupted stays":                 {"", undisruptable, untouched, untouched},
	"a pod that is not to be disrupted stays for its minute":  {"60s", undisruptable, cutShort, cutShort},
	"a pod that is not to be disrupted stays within its hour": {"1h", undisruptable, untouched, untouched},
}

// hurry is a NodeClaim that has less time than the grace period of its pod. Karpenter deletes
// the pod at once and asks nobody, unless it has not yet read the time that it has written
// itself: then its first call is an eviction.
type hurry struct {
	create func(*testing.T, *pool) *corev1.Pod
	// alone and together are what may happen then.
	alone, together []outcome
}

var (
	free = []outcome{cutShort, atOnce}
	// kept is for a pod whose eviction is refused, and repeated, until it is deleted.
	kept    = []outcome{cutShort, forced, moved}
	hurries = map[string]hurry{
		"a plain pod":            {plainPod, free, free},
		"an intercepted pod":     {interceptedPod, free, kept},
		"a single replica":       {single, []outcome{cutShort, forced}, kept},
		"a pod of a StatefulSet": {setPod, free, kept},
	}
)

// run deletes the NodeClaim, and waits until the node is gone.
func (h hurry) run(t *testing.T, want []outcome, w *peer.Worker) {
	t.Helper()
	v := onItsNode(t, h.create(t, newPool(t, "10s")))
	v.deleteClaim(t)
	v.waitGone(t)
	got := v.outcome(t, w)
	if !slices.ContainsFunc(want, func(o outcome) bool { return cmp.Equal(o, got) }) {
		t.Errorf("what became of the pod (-want +got):\n%s", cmp.Diff(want[0], got))
	}
}

// run deletes the NodeClaim, and waits until what is expected has happened.
func (d deletion) run(t *testing.T, want outcome, w *peer.Worker) {
	t.Helper()
	v := onItsNode(t, d.create(t, newPool(t, d.terminationGracePeriod)))
	v.deleteClaim(t)
	v.judge(t, want, w, "FailedDraining", "1 pods are waiting to be evicted")
}

// judge waits until what is expected has happened. If nobody was asked, Karpenter says why.
func (v *victim) judge(t *testing.T, want outcome, w *peer.Worker, reason, text string) {
	t.Helper()
	switch {
	case want.Node == gone:
		v.waitGone(t)
	case want.Refused:
		v.waitStays(t)
	default:
		v.waitSays(t, reason, text)
	}
	if diff := cmp.Diff(want, v.outcome(t, w)); diff != "" {
		t.Errorf("what became of the pod (-want +got):\n%s", diff)
	}
}

// Drawbridge keeps a pod until it is prepared or replaced, if Karpenter gives it the time,
// and takes nothing away from Karpenter otherwise.
func TestADeletedNodeClaim(t *testing.T) {
	together(t)
	for name, d := range deletions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.run(t, d.together, preparing)
		})
	}
}

// A terminationGracePeriod that is shorter than the grace period of the pod leaves nobody any
// time.
func TestADeletedNodeClaimInAHurry(t *testing.T) {
	together(t)
	for name, h := range hurries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.run(t, h.together, preparing)
		})
	}
}
