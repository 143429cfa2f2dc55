package forecast

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// A budget that the disruption controller has not looked at says nothing in its status.
func TestABudgetThatIsNotCountedYet(t *testing.T) {
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }
	four := []*corev1.Pod{pod("a", "a"), pod("b", "b"), pod("c", "b"), pod("d", "b", unready), pod("gone", "b", leaving)}
	value := func(text string) *intstr.IntOrString { return new(intstr.Parse(text)) }
	for name, test := range map[string]struct {
		spec policyv1.PodDisruptionBudgetSpec
		pods []*corev1.Pod
		want policyv1.PodDisruptionBudgetStatus
	}{
		"maxUnavailable":                {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("2")}, four, policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ExpectedPods: 4, CurrentHealthy: 3, DesiredHealthy: 2}},
		"maxUnavailable in percent":     {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("30%")}, four, policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ExpectedPods: 4, CurrentHealthy: 3, DesiredHealthy: 2}},
		"more may be unavailable":       {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("9")}, four, policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3, ExpectedPods: 4, CurrentHealthy: 3}},
		"minAvailable":                  {policyv1.PodDisruptionBudgetSpec{MinAvailable: value("3")}, four, policyv1.PodDisruptionBudgetStatus{ExpectedPods: 4, CurrentHealthy: 3, DesiredHealthy: 3}},
		"minAvailable in percent":       {policyv1.PodDisruptionBudgetSpec{MinAvailable: value("30%")}, four, policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ExpectedPods: 4, CurrentHealthy: 3, DesiredHealthy: 2}},
		"no pods":                       {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")}, nil, policyv1.PodDisruptionBudgetStatus{}},
		"neither: it allows nothing":    {policyv1.PodDisruptionBudgetSpec{}, four, policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3}},
		"what the API server refuses":   {policyv1.PodDisruptionBudgetSpec{MinAvailable: value("x")}, four, policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 3, ExpectedPods: 4, CurrentHealthy: 3}},
		"healthy pods that are leaving": {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")}, []*corev1.Pod{pod("gone", "b", leaving)}, policyv1.PodDisruptionBudgetStatus{}},
	} {
		t.Run(name, func(t *testing.T) {
			from := builder.Budget("shop", "web").Obj()
			from.Spec, from.Generation = test.spec, 3
			test.want.ObservedGeneration = 3
			if diff := cmp.Diff(test.want, countedNow(from, test.pods).Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}

	// Its pods go one after the other, and the guess is said.
	in := input(pod("x", "a"), pod("y", "a"), pod("z", "a"))
	b := builder.Budget("shop", "web").Selects("app", "web").Obj()
	b.Generation, b.Spec.MaxUnavailable = 1, value("1")
	in.PDBs = []*policyv1.PodDisruptionBudget{b}
	told := Of(in)
	if told.Verdict != Done || told.P50Seconds < 10 || told.P50Seconds > 13 {
		t.Errorf("%s", told.Headline)
	}
	if !slices.ContainsFunc(told.LeftOut, func(s string) bool { return strings.Contains(s, "PodDisruptionBudget shop/web") }) {
		t.Errorf("the guess is not said: %q", told.LeftOut)
	}
	if b.Status.ExpectedPods != 0 {
		t.Error("the budget that was given has changed")
	}
}
