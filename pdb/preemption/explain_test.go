package preemption

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestExplain(t *testing.T) {
	const name = "annotation " + v1alpha1.AllowDisruptionAnnotation
	const noBudget = "No PodDisruptionBudget selects it, so any pod of a higher priority may preempt it."
	stamped := pod("a").Annotation(v1alpha1.AllowDisruptionAnnotation, "1000")
	guard := builder.Budget("shop", v1alpha1.GuardBudgetName).SelectsAll().Obj()
	guard.Labels = map[string]string{v1alpha1.GuardBudgetLabel: "true"}
	cases := map[string]struct {
		pod     *builder.PodWrapper
		class   *schedulingv1.PriorityClass
		budgets []policyv1.PodDisruptionBudget
		want    []string
	}{
		"a pod without a class":              {pod: pod("a")},
		"a pod of a class without a value":   {pod: pod("a"), class: priorityClass("low", "")},
		"a stamped pod":                      {pod: stamped, class: priorityClass("low", "1000"), want: []string{"Only pods of priority 1000 or more may violate its budgets by preemption (its annotation says so since it was created).", noBudget}},
		"a stamped pod whose class has gone": {pod: stamped, want: []string{"Only pods of priority 1000 or more may violate its budgets by preemption (its annotation says so since it was created).", noBudget}},
		"a stamped pod whose class has a budget": {
			pod: stamped, class: priorityClass("low", "5"),
			budgets: []policyv1.PodDisruptionBudget{*web(1, "1"), *builder.Budget("shop", "all").SelectsAll().Obj(), *builder.Budget("shop", "api").Selects("app", "api").Obj(), *guard},
			want: []string{
				"Only pods of priority 1000 or more may violate its budgets by preemption (its annotation says so since it was created).",
				"PriorityClass low says 5 by now, which holds for pods created since.", "Disruptions now: web allows 1, all allows 0.",
			},
		},
		"a pod that is not stamped": {
			pod: pod("a"), class: priorityClass("low", "1000"),
			want: []string{"Only pods of priority 1000 or more may violate its budgets by preemption (PriorityClass low says so; where Drawbridge stamps pods, this holds only for those created since).", noBudget},
		},
		"a class that cannot be read": {
			pod: pod("a"), class: priorityClass("low", "x"),
			want: []string{"PriorityClass low: " + name + `: "x" is no int32 in plain decimal digits, such as 100000; it is ignored.`},
		},
		"a pod that cannot be read": {
			pod:  pod("a").Annotation(v1alpha1.AllowDisruptionAnnotation, "x"),
			want: []string{"The pod's " + name + `: "x" is no int32 in plain decimal digits, such as 100000; it is ignored.`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Explain(Explanation{Pod: tc.pod.Obj(), Class: tc.class, Budgets: tc.budgets})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sentences (-want +got):\n%s", diff)
			}
		})
	}
}
