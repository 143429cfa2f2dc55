package guard

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The policy of budgets is that of the pod's own, the strictest of them.
func TestTheGuardOfBudgets(t *testing.T) {
	const budgets = v1alpha1.BudgetInterceptor
	budget := func(name, app string, guard v1alpha1.GuardPolicy) v1alpha1.EvictionBudget {
		return v1alpha1.EvictionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       v1alpha1.EvictionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Guard: guard},
		}
	}
	running := request("web-1", budgets).Active(budgets, t0)
	tests := map[string]struct {
		budgets []v1alpha1.EvictionBudget
		er      *builder.EvictionRequestWrapper
		want    State
	}{
		"without any, nobody intercepts":                 {nil, nil, StateNone},
		"by default it is closed while it evacuates":     {[]v1alpha1.EvictionBudget{budget("a", "web", "")}, running, StateClosed},
		"and open before":                                {[]v1alpha1.EvictionBudget{budget("a", "web", "")}, nil, StateOpen},
		"always is closed before":                        {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardAlways)}, nil, StateClosed},
		"never is never closed":                          {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardNever)}, running, StateNone},
		"always is stricter than never":                  {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardNever), budget("b", "web", v1alpha1.GuardAlways)}, nil, StateClosed},
		"the default is stricter than never":             {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardNever), budget("b", "web", "")}, running, StateClosed},
		"a budget of other pods does not count":          {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardNever), budget("b", "db", v1alpha1.GuardAlways)}, running, StateNone},
		"a plan keeps the name of a budget that is gone": {nil, running, StateClosed},
		"one that the plan does not have counts, too":    {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardAlways)}, request("web-1"), StateClosed},
		"when all had their turn it opens":               {[]v1alpha1.EvictionBudget{budget("a", "web", v1alpha1.GuardAlways)}, request("web-1", budgets).Processed(budgets).Active(imperative, t0), StateOpen},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{}
			if tc.er != nil {
				objects = append(objects, tc.er.Clone().Obj())
			}
			b := newBench(t, objects...)
			registry := registration.Static(registration.Options{Namespace: "drawbridge-system", Budgets: true}, registration.Known{Budgets: tc.budgets})
			b.Resolver, b.Registrations = registry, registry
			_, d, err := b.decide(t.Context(), webPod("web-1").Interceptors().Obj())
			if err != nil {
				t.Fatal(err)
			}
			b.want("state", tc.want.String(), d.State.String())
		})
	}
}
