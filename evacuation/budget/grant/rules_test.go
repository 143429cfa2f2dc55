package grant

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestWhatASpecMeans(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	unreadable := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Maybe"}}}
	usual := func(change func(*Rules)) Rules {
		r := Rules{MaxGroups: 1, MaxUnavailable: intstr.FromInt32(1)}
		change(&r)
		return r
	}
	half := intstr.FromString("50%")
	cases := map[string]struct {
		spec     v1alpha1.EvictionBudgetSpec
		want     Rules
		selects  bool
		problems int
	}{
		"nothing but a selector": {v1alpha1.EvictionBudgetSpec{Selector: web}, usual(func(*Rules) {}), true, 0},
		"all of it": {
			v1alpha1.EvictionBudgetSpec{
				Selector: web, GroupBy: &v1alpha1.BudgetGroupBy{PodLabel: "shard"}, MaxGroups: new(int32(2)), MaxUnavailable: &half,
				Settle: &metav1.Duration{Duration: time.Minute}, MinInterval: &metav1.Duration{Duration: time.Hour}, OutsideWindow: v1alpha1.OutsideWindowContinue,
			},
			Rules{Grouped: true, MaxGroups: 2, MaxUnavailable: half, Settle: time.Minute, MinInterval: time.Hour, Continue: true}, true, 0,
		},
		"a label that differs between the pods of an owner spreads them": {
			v1alpha1.EvictionBudgetSpec{Selector: web, GroupBy: &v1alpha1.BudgetGroupBy{PodLabel: appsv1.PodIndexLabel}},
			usual(func(r *Rules) { r.Grouped, r.Spread = true, true }), true, 0,
		},
		"nodes spread them": {
			v1alpha1.EvictionBudgetSpec{Selector: web, GroupBy: &v1alpha1.BudgetGroupBy{NodeLabel: "zone"}},
			usual(func(r *Rules) { r.Grouped, r.Spread = true, true }), true, 0,
		},
		"a selector and a window that cannot be read": {
			v1alpha1.EvictionBudgetSpec{Selector: unreadable, Windows: []v1alpha1.BudgetWindow{{Schedule: "now"}}},
			usual(func(r *Rules) { r.Refused = v1alpha1.ReasonInvalidSelector }), false, 2,
		},
		"a window that cannot be read": {
			v1alpha1.EvictionBudgetSpec{Selector: web, Windows: []v1alpha1.BudgetWindow{{Schedule: "now"}}},
			usual(func(r *Rules) { r.Refused = v1alpha1.ReasonInvalidWindow }), true, 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, selector, problems := RulesOf(&tc.spec)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Window{})); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			if selector.Matches(labels.Set{"app": "web"}) != tc.selects {
				t.Errorf("selects the pods: %t, want %t", !tc.selects, tc.selects)
			}
			if len(problems) != tc.problems {
				t.Errorf("problems %v, want %d", problems, tc.problems)
			}
			for _, problem := range problems {
				if !strings.HasPrefix(problem.Error(), "spec.") {
					t.Errorf("%q does not say where", problem)
				}
			}
		})
	}
}
