//go:build unix

package karpenter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

const (
	// preparer is the interceptor of the pods here.
	preparer = "preparer.example.com"
	// prepares is how long it needs.
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
	// blocks is what happens to a protected pod if there is no time.
	blocks = outcome{Refused: true, Node: stays}
	// prepared is what happens to a pod whose interceptor has the time.
	prepared = outcome{Ends: []string{evicted}, Refused: true, Prepared: true, Node: gone}
	// moved is what happens to a pod whose replacement comes first.
	moved = outcome{Ends: []string{evicted}, Refused: true, Node: gone}
)

var deletions = map[string]deletion{
	"a plain pod is evicted":                                  {"", plainPod, atOnce, atOnce},
	"a plain pod is evicted within a minute":                  {"60s", plainPod, atOnce, atOnce},
	"a plain pod is evicted within an hour":                   {"1h", plainPod, atOnce, atOnce},
	"a plain pod has less than its grace period":              {"10s", plainPod, cutShort, cutShort},
	"an intercepted pod is prepared":                          {"", interceptedPod, atOnce, prepared},
	"an intercepted pod is prepared within a minute":          {"60s", interceptedPod, atOnce, prepared},
	"an intercepted pod is prepared within an hour":           {"1h", interceptedPod, atOnce, prepared},
	"an intercepted pod has less than its grace period":       {"10s", interceptedPod, cutShort, cutShort},
	"a single replica is moved":                               {"", single, blocks, moved},
	"a single replica is moved within a minute":               {"60s", single, forced, moved},
	"a single replica is moved within an hour":                {"1h", single, blocks, moved},
	"a single replica has less than its grace period":         {"10s", single, cutShort, cutShort},
	"a pod of a StatefulSet is prepared":                      {"", setPod, atOnce, prepared},
	"a pod of a StatefulSet is prepared within a minute":      {"60s", setPod, atOnce, prepared},
	"a pod of a StatefulSet is prepared within an hour":       {"1h", setPod, atOnce, prepared},
	"a pod of a StatefulSet has less than its grace period":   {"10s", setPod, cutShort, cutShort},
	"a pod that is not to be disrupted stays":                 {"", undisruptable, outcome{Node: stays}, outcome{Node: stays}},
	"a pod that is not to be disrupted stays for its minute":  {"60s", undisruptable, cutShort, cutShort},
	"a pod that is not to be disrupted stays within its hour": {"1h", undisruptable, outcome{Node: stays}, outcome{Node: stays}},
}

// run deletes the NodeClaim, and waits until what is expected has happened.
func (d deletion) run(t *testing.T, want outcome, w *worker) {
	t.Helper()
	v := onItsNode(t, d.create(t, newPool(t, d.terminationGracePeriod)))
	v.deleteClaim(t)
	switch {
	case want.Node == gone:
		v.waitGone(t)
	case want.Refused:
		v.waitStays(t)
	default:
		v.waitDraining(t)
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
