package preemption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestWhatCountsOfABudget(t *testing.T) {
	cases := map[string]struct {
		pdb  *builder.BudgetWrapper
		want Budget
	}{
		"it allows some": {builder.Budget("shop", "web").Allows(2), Budget{Allowed: 2}},
		"the disruption controller has not observed it": {
			builder.Budget("shop", "web").Allows(2).Generation(2), Budget{Allowed: 0},
		},
		"less than nothing is nothing": {builder.Budget("shop", "web").Allows(-1), Budget{Allowed: 0}},
		"enough healthy ones": {
			changed(func(pdb *policyv1.PodDisruptionBudget) { pdb.Status.CurrentHealthy, pdb.Status.DesiredHealthy = 2, 2 }), Budget{UnhealthyFree: true},
		},
		"too few healthy ones": {
			changed(func(pdb *policyv1.PodDisruptionBudget) { pdb.Status.CurrentHealthy, pdb.Status.DesiredHealthy = 1, 2 }), Budget{},
		},
		"none desired": {builder.Budget("shop", "web"), Budget{}},
		"unhealthy pods may always go": {
			changed(func(pdb *policyv1.PodDisruptionBudget) {
				pdb.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
			}), Budget{UnhealthyFree: true},
		},
		"some are counted already": {
			changed(func(pdb *policyv1.PodDisruptionBudget) {
				pdb.Status.DisruptedPods = map[string]metav1.Time{"a": {}}
			}), Budget{Disrupted: map[string]struct{}{"a": {}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Namespace, tc.want.Name = "shop", "web"
			if diff := cmp.Diff(&tc.want, NewBudget(tc.pdb.Obj())); diff != "" {
				t.Errorf("budget (-want +got):\n%s", diff)
			}
		})
	}
}

func changed(change func(*policyv1.PodDisruptionBudget)) *builder.BudgetWrapper {
	w := builder.Budget("shop", "web")
	change(w.Obj())
	return w
}

func TestTheBudgetsOfAPod(t *testing.T) {
	guard := builder.Budget("shop", v1alpha1.GuardBudgetName).SelectsAll().Obj()
	guard.Labels = map[string]string{v1alpha1.GuardBudgetLabel: "true"}
	expression := builder.Budget("shop", "by-expression").Obj()
	expression.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "api"}},
	}}
	broken := builder.Budget("shop", "broken").Obj()
	broken.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Maybe"}}}
	x := newBudgetIndex()
	for _, pdb := range []*policyv1.PodDisruptionBudget{
		builder.Budget("shop", "web").Selects("app", "web").Obj(),
		builder.Budget("shop", "web-blue").Selects("app", "web").Selects("color", "blue").Obj(),
		builder.Budget("shop", "api").Selects("app", "api").Obj(),
		builder.Budget("shop", "all").SelectsAll().Obj(),
		builder.Budget("shop", "nobody").Obj(),
		builder.Budget("other", "web").Selects("app", "web").Obj(),
		guard, expression, broken,
	} {
		x.set(pdb)
	}
	names := func(labels map[string]string) []string {
		var names []string
		for _, b := range x.of("shop", labels) {
			names = append(names, b.Name)
		}
		return names
	}
	check := func(what string, labels map[string]string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names(labels)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("a pod of web", map[string]string{"app": "web"}, "all", "by-expression", "web")
	check("a blue pod of web", map[string]string{"app": "web", "color": "blue"}, "all", "by-expression", "web", "web-blue")
	check("a pod of api", map[string]string{"app": "api"}, "all", "api", "by-expression")
	check("a pod without labels", nil, "all")

	// A budget of somebody else that has the guard's name counts.
	x.set(builder.Budget("shop", v1alpha1.GuardBudgetName).UID("2").Selects("app", "api").Obj())
	check("with the guard's name", map[string]string{"app": "api"}, "all", "api", "by-expression", v1alpha1.GuardBudgetName)
	// A selector that changes leaves nothing behind.
	moved := builder.Budget("shop", "web").UID("2").Selects("app", "db").Obj()
	x.set(moved)
	check("after web has moved to db", map[string]string{"app": "web"}, "all", "by-expression")
	check("a pod of db", map[string]string{"app": "db"}, "all", "web")
	for _, name := range []string{"web", "web-blue", "api", "all", "by-expression", v1alpha1.GuardBudgetName} {
		x.remove(types.NamespacedName{Namespace: "shop", Name: name})
	}
	check("when all are gone", map[string]string{"app": "db"})
	if len(x.byBucket) != 1 || len(x.byName) != 1 {
		t.Errorf("the index keeps what is gone: %v, %v", x.byBucket, x.byName)
	}
}

func TestTheValueThatCounts(t *testing.T) {
	stamped := func(value string) *corev1.Pod {
		return pod("a").Priority("low", 1).Annotation(v1alpha1.AllowDisruptionAnnotation, value).Obj()
	}
	plain := pod("a").Priority("low", 1).Obj()
	cases := map[string]struct {
		stamps bool
		pod    *corev1.Pod
		class  string
		want   *int32
	}{
		"stamped, as it was when the class said something else":  {true, stamped("5"), "7", ptr.To[int32](5)},
		"not stamped: created before, or of a class without one": {true, plain, "7", nil},
		"stamped with what cannot be read":                       {true, stamped("x"), "7", nil},
		"without stamps the class decides":                       {false, plain, "7", ptr.To[int32](7)},
		"without stamps the pod's annotation is ignored":         {false, stamped("5"), "7", ptr.To[int32](7)},
		"without stamps and a value of the class":                {false, stamped("5"), "", nil},
		"without stamps, the class cannot be read":               {false, plain, "x", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, _ := newTestView(tc.stamps, priorityClass("low", tc.class), tc.pod)
			got, _ := v.lookUp("uid-a")
			if diff := cmp.Diff(tc.want, got.Value); diff != "" {
				t.Errorf("value (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a class that is gone has no value", func(t *testing.T) {
		v, _ := newTestView(false, priorityClass("low", "7"), plain)
		v.removeClass(priorityClass("low", "7"))
		if got, _ := v.lookUp("uid-a"); got.Value != nil {
			t.Errorf("value %d, want none", *got.Value)
		}
	})
	t.Run("a value that a class loses does not count any more", func(t *testing.T) {
		v, _ := newTestView(false, priorityClass("low", "7"), plain)
		for _, text := range []string{"x", "7", ""} {
			fill(v, priorityClass("low", text))
			got, _ := v.lookUp("uid-a")
			if has, want := got.Value != nil, text == "7"; has != want {
				t.Errorf("with %q there is a value: %v, want %v", text, has, want)
			}
		}
	})
}

func TestGather(t *testing.T) {
	terminating := pod("leaving").Priority("low", 1).Deleting(t0).Obj()
	plain := pod("plain").Priority("plain", 1).Obj()
	plain.Labels = map[string]string{"app": "other"}
	objects := []client.Object{
		priorityClass("lowest", "10"), priorityClass("low", "1000"), priorityClass("plain", ""), web(1, "1"),
		pod("a").Priority("low", 1).Obj(), pod("unready").Priority("low", 1).Unready().Obj(),
		pod("pending").Priority("low", 1).Phase(corev1.PodPending).Obj(), terminating, plain,
	}
	v, _ := newTestView(false, objects...)
	in := Input{Preemptor: preemptor(999), Candidates: []Candidate{
		{Node: "node-1", Victims: []Victim{uidOnly("a"), uidOnly("unready"), uidOnly("pending"), uidOnly("leaving"), uidOnly("plain"), uidOnly("new"), uidOnly("sent")}},
		{Node: "node-2", Victims: []Victim{uidOnly("plain")}},
	}}
	sent := pod("sent").Priority("low", 1).Node("node-1").Obj()
	v.gather(&in, map[types.UID]*corev1.Pod{"uid-sent": sent})

	value := ptr.To[int32](1000)
	budgets := in.Candidates[0].Victims[0].Budgets
	if len(budgets) != 1 || budgets[0].Name != "web" {
		t.Fatalf("budgets: %v", budgets)
	}
	known := func(name string, ready, free bool) Victim {
		return Victim{Pod: Pod{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}, NodeName: "node-1", Value: value, Ready: ready, Free: free, Budgets: budgets}
	}
	want := []Candidate{
		{Node: "node-1", Victims: []Victim{
			known("a", true, false), known("unready", false, false), known("pending", true, true), known("leaving", true, true),
			with(known("plain", true, false), func(v *Victim) { v.Value, v.Budgets = nil, nil }),
			with(uidOnly("new"), func(v *Victim) { v.Unknown, v.Value = true, value }),
			known("sent", true, false),
		}},
		{Node: "node-2", Victims: []Victim{with(known("plain", true, false), func(v *Victim) { v.Value, v.Budgets = nil, nil })}},
	}
	if diff := cmp.Diff(want, in.Candidates); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
}

func uidOnly(name string) Victim { return Victim{Pod: Pod{UID: types.UID("uid-" + name)}} }

// The scheduler deletes, and the budget learns of it a moment later.
func TestDisruptionsThatABudgetDoesNotCountYetAreCharged(t *testing.T) {
	cases := map[string]struct {
		pod  *corev1.Pod
		then func(*View, *corev1.Pod)
		want int32
	}{
		"nothing has happened": {pod("b").Obj(), func(*View, *corev1.Pod) {}, 0},
		"a pod was deleted":    {pod("b").Obj(), func(v *View, p *corev1.Pod) { v.removePod(p) }, 1},
		"a pod is being deleted": {pod("b").Obj(), func(v *View, _ *corev1.Pod) {
			v.setPod(pod("b").Deleting(t0).Obj())
		}, 1},
		"and then it is gone": {pod("b").Obj(), func(v *View, _ *corev1.Pod) {
			v.setPod(pod("b").Deleting(t0).Obj())
			v.removePod(pod("b").Deleting(t0).Obj())
		}, 1},
		"a pod that was not Ready": {pod("b").Unready().Obj(), func(v *View, p *corev1.Pod) { v.removePod(p) }, 0},
		"a pod that had ended":     {pod("b").Phase(corev1.PodSucceeded).Obj(), func(v *View, p *corev1.Pod) { v.removePod(p) }, 0},
		"a pod that the eviction API has told the budget of": {pod("b").Obj(), func(v *View, p *corev1.Pod) {
			pdb := web(1, "2")
			pdb.Status.DisruptedPods = map[string]metav1.Time{"b": {}}
			v.setBudget(pdb)
			v.removePod(p)
		}, 0},
		"the budget has changed since": {pod("b").Obj(), func(v *View, p *corev1.Pod) {
			v.removePod(p)
			v.setBudget(web(0, "2"))
		}, 0},
		"the budget was only seen again": {pod("b").Obj(), func(v *View, p *corev1.Pod) {
			v.removePod(p)
			v.setBudget(web(1, "1"))
		}, 1},
		"only its state was seen again": {pod("b").Obj(), func(v *View, p *corev1.Pod) { v.setPod(p) }, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, clock := newTestView(false, priorityClass("low", "1000"), web(1, "1"), pod("a").Priority("low", 1).Obj(), tc.pod)
			tc.then(v, tc.pod)
			charged := func() int32 {
				in := Input{Preemptor: preemptor(999), Candidates: []Candidate{{Node: "node-1", Victims: []Victim{uidOnly("a")}}}}
				v.gather(&in, nil)
				return in.Charges[in.Candidates[0].Victims[0].Budgets[0]]
			}
			if diff := cmp.Diff(tc.want, charged()); diff != "" {
				t.Errorf("charge (-want +got):\n%s", diff)
			}
			clock.Step(uncountedFor - time.Nanosecond)
			if diff := cmp.Diff(tc.want, charged()); diff != "" {
				t.Errorf("charge a little later (-want +got):\n%s", diff)
			}
			clock.Step(time.Nanosecond)
			if diff := cmp.Diff(int32(0), charged()); diff != "" {
				t.Errorf("charge when the budget must have counted it (-want +got):\n%s", diff)
			}
		})
	}
}
