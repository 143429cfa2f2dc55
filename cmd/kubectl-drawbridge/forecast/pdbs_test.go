package forecast

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/internal/disruption"
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
		want pdb
	}{
		"maxUnavailable":                {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("2")}, four, pdb{spare: 1, text: "it needs 2 of 4 pods, and 3 are healthy"}},
		"maxUnavailable in percent":     {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("30%")}, four, pdb{spare: 1, text: "it needs 2 of 4 pods, and 3 are healthy"}},
		"more may be unavailable":       {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("9")}, four, pdb{spare: 3, text: "it needs 0 of 4 pods, and 3 are healthy"}},
		"minAvailable":                  {policyv1.PodDisruptionBudgetSpec{MinAvailable: value("3")}, four, pdb{spare: 0, text: "it needs 3 of 4 pods, and 3 are healthy"}},
		"minAvailable in percent":       {policyv1.PodDisruptionBudgetSpec{MinAvailable: value("30%")}, four, pdb{spare: 1, text: "it needs 2 of 4 pods, and 3 are healthy"}},
		"no pods":                       {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")}, nil, pdb{never: true, text: "it needs 0 of 0 pods, and 0 are healthy"}},
		"neither: it allows nothing":    {policyv1.PodDisruptionBudgetSpec{}, four, pdb{spare: 3, never: true, text: "it needs 0 of 0 pods, and 3 are healthy"}},
		"what the API server refuses":   {policyv1.PodDisruptionBudgetSpec{MinAvailable: value("x")}, four, pdb{spare: 3, text: "it needs 0 of 4 pods, and 3 are healthy"}},
		"healthy pods that are leaving": {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: value("1")}, []*corev1.Pod{pod("gone", "b", leaving)}, pdb{never: true, text: "it needs 0 of 0 pods, and 0 are healthy"}},
	} {
		t.Run(name, func(t *testing.T) {
			from := builder.Budget("shop", "web").Obj()
			from.Spec, from.Generation = test.spec, 3
			from.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: 9, DisruptionsAllowed: 9}
			test.want.namespace, test.want.name = "shop", "web"
			test.want.text += ", so that it does not allow the eviction"
			if diff := cmp.Diff(test.want, pdbOf(from, test.pods), cmp.AllowUnexported(pdb{}), withoutRemedy); diff != "" {
				t.Errorf("budget (-want +got):\n%s", diff)
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

var withoutRemedy = cmpopts.IgnoreFields(pdb{}, "remedy")

// A status may be older than the labels of the pods: what it allows goes, and not more.
func TestABudgetWithAnOldStatus(t *testing.T) {
	lost := func(p *corev1.Pod) { p.Labels = nil }
	cases := map[string]struct {
		allowed int32
		pods    []*corev1.Pod
		want    pdb
	}{
		"two of four have lost the label": {2, []*corev1.Pod{pod("a", "a"), pod("b", "b"), pod("c", "b", lost), pod("d", "b", lost)}, pdb{spare: 1, text: "it needs 2 of 2 pods, and 2 are healthy, so that it does not allow the eviction"}},
		"the status allows none":          {0, []*corev1.Pod{pod("a", "a"), pod("b", "b"), pod("c", "b", lost)}, pdb{spare: 0, text: "it can never allow a disruption (minAvailable is 2 of 2 pods)"}},
		"all have lost it":                {0, []*corev1.Pod{pod("a", "a", lost)}, pdb{spare: -2, never: true, text: "it needs 2 of 0 pods, and 0 are healthy, so that it does not allow the eviction"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := builder.Budget("shop", "web").Selects("app", "web").MinAvailable("2").Allows(tc.allowed).Obj()
			b.Status.ExpectedPods, b.Status.CurrentHealthy, b.Status.DesiredHealthy = 2+tc.allowed, 2+tc.allowed, 2
			tc.want.namespace, tc.want.name = "shop", "web"
			if diff := cmp.Diff(tc.want, pdbOf(b, disruption.Selected(b, tc.pods)), cmp.AllowUnexported(pdb{}), withoutRemedy); diff != "" {
				t.Errorf("budget (-want +got):\n%s", diff)
			}
		})
	}
}
