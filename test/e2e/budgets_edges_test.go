//go:build unix

package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Groups are those of the nodes: while a zone is being drained, and its pods find no room,
// no pod of another one goes.
func TestABudgetGroupsPodsByTheirNodes(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	inZone := func(zone string) string {
		t.Helper()
		return must(kube.AddNodes(t.Context(), 1, func(node *corev1.Node) {
			node.Labels[testLabel], node.Labels[corev1.LabelTopologyZone] = namespace, zone
		}))(t)[0]
	}
	nodes := map[string]string{}
	for _, zone := range zones {
		nodes[zone] = inZone(zone)
	}
	create(t, builder.Deployment(namespace, "web").Replicas(6).Pods(onNodesOf(namespace, func(w *builder.PodWrapper) {
		w.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: "web"}},
		}}
	})).Obj())
	pods := map[string][]corev1.Pod{}
	for _, zone := range zones {
		pods[zone] = readyPods(t, namespace, 2, nodes[zone])
	}
	b := createEvictionBudget(t, builder.EvictionBudget(namespace, "zones", builder.AppLabel, "web").ByNodeLabel(corev1.LabelTopologyZone, 1).MaxUnavailable("100%"), 6)

	first := startDrain(t, "alice", nodes["a"])
	for i := range pods["a"] {
		gone(t, &pods["a"][i])
	}
	finishWell(t, first)
	second := startDrain(t, "bob", nodes["b"])
	for i := range pods["b"] {
		waitBudgetsSay(t, &pods["b"][i], `EvictionBudget zones: group "a" is disrupted, and at most 1 may be at a time.`)
	}
	// The requests say that they wait before the budget counts both.
	waitBudget(t, b, "let zone b wait", func(s *v1alpha1.EvictionBudgetStatus) bool {
		return refusesWith(v1alpha1.ReasonGroupsDisrupted)(s) && cmp.Equal(s.Groups, []v1alpha1.BudgetGroup{
			{Name: "a", Expected: 2, Disrupted: 2},
			{Name: "b", Expected: 2, Available: 2, Waiting: 2},
			{Name: "c", Expected: 2, Available: 2},
		})
	})
	for _, zone := range []string{"b", "c"} {
		for i := range pods[zone] {
			lives(t, &pods[zone][i])
		}
	}

	inZone("a")
	inZone("b")
	finishWell(t, second)
	for i := range pods["c"] {
		lives(t, &pods["c"][i])
	}
}

// Pods without the label are a group as well, and the budget says how many they are.
func TestPodsWithoutTheLabelAreAGroup(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	member := func(w *builder.PodWrapper) { w.Label(groupLabel, "ingester") }
	lacking := createSet(t, namespace, "lacking", 2, node, member)
	zoned := createSet(t, namespace, "zoned", 2, node, member, func(w *builder.PodWrapper) { w.Label(zoneLabel, "a") })
	b := createEvictionBudget(t, builder.EvictionBudget(namespace, "zones", groupLabel, "ingester").ByPodLabel(zoneLabel, 1).MaxUnavailable("100%"), 4)
	waitBudget(t, b, "count those without the label", budgetIs(v1alpha1.ConditionCovers, metav1.ConditionTrue, v1alpha1.ReasonCoversPods,
		`It covers 4 pods. 2 of them lack the label zone and are the group "".`))

	unschedulable(t, node, true)
	ask(t, &lacking[0])
	gone(t, &lacking[0])
	ask(t, &zoned[0])
	waitBudgetsSay(t, &zoned[0], `EvictionBudget zones: group "" is disrupted, and at most 1 may be at a time.`)
	waitBudget(t, b, "count the disruption", groupIs(v1alpha1.BudgetGroup{Name: "", Expected: 2, Available: 1, Disrupted: 1}))
	lives(t, &zoned[0])
	ask(t, &lacking[1])
	gone(t, &lacking[1]) // It is of the same group.
	lives(t, &zoned[0])
	addNodes(t, namespace, 1)
	gone(t, &zoned[0])
}

// A pod whose successor finds no room keeps the others waiting, and the budget says so. When
// it is not wanted any more, they go.
func TestAPodThatNeverComesBackHoldsTheOthers(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	sets := map[string][]corev1.Pod{}
	for _, zone := range []string{"a", "b"} {
		sets[zone] = createSet(t, namespace, "ingester-"+zone, 2, node, func(w *builder.PodWrapper) { w.Label(zoneLabel, zone).Label(groupLabel, "ingester") })
	}
	b := createEvictionBudget(t, builder.EvictionBudget(namespace, "zones", groupLabel, "ingester").ByPodLabel(zoneLabel, 1).MaxUnavailable("100%"), 4)
	unschedulable(t, node, true)
	lost, other := &sets["a"][1], &sets["b"][0]
	ask(t, lost)
	gone(t, lost)
	ask(t, other)
	waitBudgetsSay(t, other, `EvictionBudget zones: group "a" is disrupted, and at most 1 may be at a time.`)
	now := waitBudget(t, b, "let the other zone wait", refusesWith(v1alpha1.ReasonGroupsDisrupted, `group "a" is disrupted`))
	want := []v1alpha1.BudgetGroup{
		{Name: "a", Expected: 2, Available: 1, Disrupted: 1},
		{Name: "b", Expected: 2, Available: 2, Waiting: 1},
	}
	if diff := cmp.Diff(want, now.Status.Groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	lives(t, other)

	set := &appsv1.StatefulSet{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ingester-a"}, set); err != nil {
		t.Fatal(err)
	}
	patch(t, set, func() { set.Spec.Replicas = new(int32(1)) })
	gone(t, other)
	lives(t, &sets["a"][0])
	lives(t, &sets["b"][1])
}

// A budget that is deleted holds nobody any more.
func TestPodsOfADeletedBudgetGoOn(t *testing.T) {
	shareManager(t)
	p := newPaced(t, 2, func(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("0") })
	p.room(t)
	drain := startDrain(t, "alice", p.node)
	for i := range p.pods {
		waitBudgetsSay(t, &p.pods[i], "it allows no pod to be unavailable")
	}
	p.live(t)
	deleteObject(t, p.budget)
	p.leaves(t, drain)
	for i := range p.pods {
		er := waitRequest(t, &p.pods[i], "Evicted", isTrue(v1alpha1.ConditionEvicted))
		if diff := cmp.Diff("No EvictionBudget covers the pod.", v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message); diff != "" {
			t.Errorf("report of pod %s (-want +got):\n%s", p.pods[i].Name, diff)
		}
	}
}

// A budget that comes when the interceptors of an eviction are settled is not asked, and one
// that selects nothing holds nothing.
func TestABudgetThatHasNoSayHoldsNobody(t *testing.T) {
	m := shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const flush = "flush.example.com"
	pods := createSet(t, namespace, pacedSet, 1, node, intercepted(flush))
	none := createEvictionBudget(t, builder.EvictionBudget(namespace, "none", builder.AppLabel, "nobody").MaxUnavailable("0"), 0)
	waitBudget(t, none, "cover nothing", budgetIs(v1alpha1.ConditionCovers, metav1.ConditionFalse, v1alpha1.ReasonCoversNone, "It covers no pods."))
	addNodes(t, namespace, 1)

	drain := startDrain(t, "alice", node)
	waitRequest(t, &pods[0], "in progress", activeIs(flush))
	late := createEvictionBudget(t, builder.EvictionBudget(namespace, "late", builder.AppLabel, pacedSet).MaxUnavailable("0"), 1)
	complete(t, &pods[0], flush, m.Clock.Now)
	er := evicted(t, drain, &pods[0])
	if names := targets(er); slices.Contains(names, v1alpha1.BudgetInterceptor) {
		t.Errorf("interceptors: want none of budgets, got %v", names)
	}
	waitBudget(t, late, "have no grant", grants())
}

// The guard protects what waits for a budget while the manager is away.
func TestTheGuardProtectsWhatWaitsForABudget(t *testing.T) {
	m, labels := startGuarded(t, nil)
	p := newPaced(t, 1, func(b *builder.EvictionBudgetWrapper) { b.MaxUnavailable("0") })
	p.room(t)
	pod := &p.pods[0]
	drain := startDrain(t, "heidi", p.node)
	waitBudgetsSay(t, pod, "it allows no pod to be unavailable")
	waitGuard(t, pod, true)
	outage(t, m)
	waitLine(t, drain, "Cannot evict pod as it would violate the pod's disruption budget.")
	if got := evict(t, "heidi", pod, eviction(pod)); got.code != http.StatusTooManyRequests {
		t.Errorf("while we are down: want a 429, got %d %s", got.code, got.body)
	}
	p.live(t)
	back(t, nil, pod, labels)
	p.live(t)
	p.spec(t, func(s *v1alpha1.EvictionBudgetSpec) { s.MaxUnavailable.IntVal = 1 })
	p.leaves(t, drain)
}
