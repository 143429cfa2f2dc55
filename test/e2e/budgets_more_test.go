//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// A pod is available when it has been ready for some time, and not before.
func TestABudgetLetsPodsSettle(t *testing.T) {
	shareManager(t)
	const settle = 4 * time.Second
	p := newPaced(t, 3, func(b *builder.EvictionBudgetWrapper) { b.Settle(settle) })
	p.room(t)
	watcher := p.watch(t)
	mark := kube.RequestLog().Mark()
	p.leaves(t, startDrain(t, "alice", p.node))
	oneAtATime(t, watcher, pacedSet)
	done := p.evictions(t, mark)
	for n, next := range done[1:] {
		successor := readyPod(t, p.namespace, done[n].Name)
		i := slices.IndexFunc(successor.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if after := next.Time.Sub(successor.Status.Conditions[i].LastTransitionTime.Time); after < settle {
			t.Errorf("pod %s was evicted when the successor of pod %s had been ready for %s, want at least %s", next.Name, done[n].Name, after, settle)
		}
	}
}

// A budget that allows nothing holds all pods, until somebody skips it or breaks the glass.
func TestABudgetThatAllowsNothing(t *testing.T) {
	shareManager(t)
	p := newPaced(t, 3, func(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("0").Guard(v1alpha1.GuardNever) })
	p.room(t)
	waitBudget(t, p.budget, "warn", budgetIs(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "It allows no pod to be unavailable", "skip"))
	drain := startDrain(t, "alice", p.node)
	for i := range p.pods {
		waitBudgetsSay(t, &p.pods[i], "EvictionBudget pace: it allows no pod to be unavailable.")
	}
	waitBudget(t, p.budget, "allow nothing", refusesWith(v1alpha1.ReasonNothingAllowed))
	p.live(t)

	plugin(t, "skip", p.pods[0].Name, v1alpha1.BudgetInterceptor, "-n", p.namespace, "--reason=the rack burns")
	gone(t, &p.pods[0])
	er := waitRequest(t, &p.pods[0], "Evicted", isTrue(v1alpha1.ConditionEvicted))
	if diff := cmp.Diff("Skipped by olga: the rack burns", v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	p.live(t, p.pods[0].Name)

	config := must(kube.ConfigFor("fiona", drainers, firefighters))(t)
	fiona := must(client.New(config, client.Options{Scheme: scheme}))(t)
	if err := fiona.SubResource("eviction").Create(t.Context(), p.pods[1].DeepCopy(), &policyv1.Eviction{}); err != nil {
		t.Errorf("the eviction by a firefighter: %v", err)
	}
	gone(t, &p.pods[1])
	drainGoesOn(t, drain)
	p.live(t, p.pods[0].Name, p.pods[1].Name)
	p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.MaxUnavailable.IntVal = 1 })
	p.leaves(t, drain)
}

// Pods of which two budgets cover some: both must grant, and none waits endlessly while the
// other one has a grant.
func TestTwoBudgetsMustBothGrant(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	labelled := func(keys ...string) func(*builder.PodWrapper) {
		return func(w *builder.PodWrapper) {
			for _, key := range keys {
				w.Label(key, "yes")
			}
		}
	}
	first := createSet(t, namespace, "first", 2, node, labelled("in-a"))
	both := createSet(t, namespace, "both", 2, node, labelled("in-a", "in-b"))
	last := createSet(t, namespace, "last", 2, node, labelled("in-b"))
	// The order of creation is not that of the names.
	b := createEvictionBudget(t, builder.EvictionBudget(namespace, "b", "in-b", "yes"), 4)
	a := createEvictionBudget(t, builder.EvictionBudget(namespace, "a", "in-a", "yes"), 4)
	inA, inB := watchGroup(t, namespace, "in-a", "yes", 4), watchGroup(t, namespace, "in-b", "yes", 4)

	unschedulable(t, node, true)
	patch(t, &both[0], func() { both[0].Finalizers = []string{"e2e.drawbridge.dev/stays"} })
	ask(t, &both[0])
	for _, budget := range []*v1alpha1.EvictionBudget{a, b} {
		waitBudget(t, budget, "have a grant", grants(both[0].Name))
	}
	ask(t, &first[0], &last[0], &both[1])
	waitBudgetsSay(t, &first[0], "EvictionBudget a: at most 1 of its pods may be unavailable, and as many are.")
	waitBudgetsSay(t, &last[0], "EvictionBudget b: at most 1 of its pods may be unavailable, and as many are.")
	waitBudgetsSay(t, &both[1], "EvictionBudget a: at most 1 of its pods may be unavailable, and as many are.")
	for _, pod := range []*corev1.Pod{&first[0], &first[1], &both[1], &last[0], &last[1]} {
		lives(t, pod)
	}

	for _, budget := range []*v1alpha1.EvictionBudget{a, b} {
		waitBudget(t, budget, "keep the grant", grants(both[0].Name))
	}

	patch(t, &both[0], func() { both[0].Finalizers = nil })
	addNodes(t, namespace, 1)
	finishWell(t, startDrain(t, "alice", node))
	oneAtATime(t, inA, "yes")
	oneAtATime(t, inB, "yes")
	for _, budget := range []*v1alpha1.EvictionBudget{a, b} {
		waitBudget(t, budget, "have no grant", grants())
	}
}

// A PodDisruptionBudget has the last word: what was granted keeps its place meanwhile, and
// others wait for it.
func TestAPodDisruptionBudgetCountsAfterwards(t *testing.T) {
	shareManager(t)
	p := newPaced(t, 3, func(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("1") })
	p.room(t)
	pdb := createBudget(t, builder.Budget(p.namespace, "quorum").Selects(builder.AppLabel, pacedSet).MinAvailable("3").Obj(), 3)
	drain := startDrain(t, "alice", p.node)
	now := waitBudget(t, p.budget, "grant one and let two wait", func(s *v1alpha1.EvictionBudgetStatus) bool { return len(s.Grants) == 1 && *s.Waiting == 2 })
	granted := now.Status.Grants[0].Pod
	for i := range p.pods {
		if pod := &p.pods[i]; pod.Name == granted {
			waitRequest(t, pod, "refused by the PodDisruptionBudget", blocked)
		} else {
			waitBudgetsSay(t, pod, "EvictionBudget pace: at most 1 of its pods may be unavailable, and as many are.")
		}
	}
	p.live(t)
	want := v1alpha1.BudgetGroup{Expected: 3, Available: 2, Disrupted: 1, Waiting: 2}
	if now = waitBudget(t, p.budget, "count the grant", groupIs(want)); !grants(granted)(&now.Status) {
		t.Errorf("grants: want the one of pod %s still, got %v", granted, grantedPods(&now.Status))
	}

	deleteObject(t, pdb)
	p.leaves(t, drain)
}

// Pods that leave or fail by themselves take the place of an eviction. One that is not ready
// may go: that makes nothing worse.
func TestPodsThatFailCountForABudget(t *testing.T) {
	shareManager(t)
	for name, tc := range map[string]struct {
		fail func(*testing.T, *corev1.Pod)
		// goes: the pod that failed is evicted.
		goes bool
	}{
		"one that is deleted":   {fail: func(t *testing.T, pod *corev1.Pod) { t.Helper(); deleteObject(t, pod) }},
		"one that is not ready": {fail: func(t *testing.T, pod *corev1.Pod) { t.Helper(); ready(t, pod, "false") }, goes: true},
		"one that has crashed": {fail: func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			before := pod.DeepCopy()
			pod.Status.Phase = corev1.PodFailed
			if err := admin.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPaced(t, 3, func(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("1") })
			unschedulable(t, p.node, true)
			tc.fail(t, p.pods[1].DeepCopy())
			waitBudget(t, p.budget, "count the failure", groupIs(v1alpha1.BudgetGroup{Expected: 3, Available: 2, Disrupted: 1}))
			ask(t, &p.pods[0], &p.pods[2])
			for _, i := range []int{0, 2} {
				waitBudgetsSay(t, &p.pods[i], "EvictionBudget pace: at most 1 of its pods may be unavailable, and as many are.")
			}
			drain := startDrain(t, "alice", p.node)
			if tc.goes {
				er := waitRequest(t, &p.pods[1], "Evicted", isTrue(v1alpha1.ConditionEvicted))
				saysAll(t, "the report", v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message, "Granted by EvictionBudget pace.")
			}
			gone(t, &p.pods[1])
			waitBudget(t, p.budget, "let the others wait", groupIs(v1alpha1.BudgetGroup{Expected: 3, Available: 2, Disrupted: 1, Waiting: 2}))
			p.live(t, p.pods[1].Name)
			watcher := watchGroup(t, p.namespace, builder.AppLabel, pacedSet, 2)
			p.room(t)
			p.leaves(t, drain)
			if seen := must(watcher.Stop())(t); seen.Times != 0 {
				t.Errorf("less than 2 pods were ready: %s", seen.Worst)
			}
		})
	}
}

// What a budget does can be seen: in events, in metrics, and in a list of budgets.
func TestABudgetCanBeSeen(t *testing.T) {
	m := shareManager(t)
	p := newPaced(t, 2, func(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("50%") })
	before := budgetMetric(t, m, "drawbridge_budget_grants_total", "")
	unschedulable(t, p.node, true)
	ask(t, &p.pods[0])
	gone(t, &p.pods[0])
	er := waitRequest(t, &p.pods[0], "Evicted", isTrue(v1alpha1.ConditionEvicted))
	ask(t, &p.pods[1])
	waitBudget(t, p.budget, "let the other pod wait", func(s *v1alpha1.EvictionBudgetStatus) bool { return *s.Waiting == 1 })

	const note = "The eviction of pod db-0 is granted by EvictionBudget pace."
	for _, about := range []client.Object{&p.pods[0], er} {
		if diff := cmp.Diff(note, waitEvent(t, about, events.ReasonEvictionGranted).Note); diff != "" {
			t.Errorf("event of %T (-want +got):\n%s", about, diff)
		}
	}
	if got := budgetMetric(t, m, "drawbridge_budget_grants_total", ""); got < before+1 {
		t.Errorf("drawbridge_budget_grants_total: want one more than %v, got %v", before, got)
	}
	eventually(t, "the metric to follow the status", func(context.Context) error {
		if got := budgetMetric(t, m, "drawbridge_budget_waiting", p.namespace); got != 1 {
			return fmt.Errorf("drawbridge_budget_waiting: want 1, got %v", got)
		}
		return nil
	})
	created := must(getRequest(t.Context(), &p.pods[1]))(t).CreationTimestamp
	if got := budgetMetric(t, m, "drawbridge_budget_waiting_since_timestamp_seconds", p.namespace); got < float64(created.Unix()) || got > float64(time.Now().Unix()) {
		t.Errorf("drawbridge_budget_waiting_since_timestamp_seconds: want a time since %d, got %v", created.Unix(), got)
	}

	shown := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "get", "evb", "-n", p.namespace))(t)
	lines := strings.Split(strings.TrimSpace(shown.Stdout), "\n")
	want := [][]string{
		{"NAME", "MAX-GROUPS", "MAX-UNAVAILABLE", "ALLOWED", "WAITING", "GRANTING", "PODS", "AGE"},
		{"pace", "50%", "0", "1", "PodsUnavailable", "2"},
	}
	var got [][]string
	for _, line := range lines {
		got = append(got, strings.Fields(line))
	}
	if last := len(got) - 1; last > 0 {
		got[last] = slices.DeleteFunc(got[last][:len(got[last])-1], func(s string) bool { return s == "<none>" }) // Without the age.
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubectl get evb (-want +got):\n%s", diff)
	}

	p.room(t)
	gone(t, &p.pods[1])
	eventually(t, "the series to go", func(context.Context) error {
		if got := budgetMetric(t, m, "drawbridge_budget_waiting", p.namespace); got != 0 {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

// budgetMetric is the sum of the series of a metric, or the one of a namespace.
func budgetMetric(t *testing.T, m *manager.Manager, name, namespace string) (sum float64) {
	t.Helper()
	for _, family := range must(m.Metrics.Gather())(t) {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if label.GetName() == "namespace" && label.GetValue() == namespace {
					return series.GetGauge().GetValue()
				}
			}
			sum += series.GetCounter().GetValue()
		}
	}
	return sum
}
