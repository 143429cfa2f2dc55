package why

import (
	"slices"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestTheStoryTellsWhosePreemptionMayViolateTheBudgets(t *testing.T) {
	facts := Facts{
		Now:     time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC),
		Pod:     builder.Pod("shop", "web-1").UID("u").Label("app", "web").Priority("low", 100).Annotation(v1alpha1.AllowDisruptionAnnotation, "1000").Ready().Obj(),
		Class:   &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "low"}, Value: 100},
		Budgets: []policyv1.PodDisruptionBudget{*builder.Budget("shop", "web").Selects("app", "web").Allows(1).Obj()},
	}
	notes := Tell(facts).Notes
	for _, want := range []string{
		"Only pods of priority 1000 or more may violate its budgets by preemption (its annotation says so since it was created).",
		"Disruptions now: web allows 1.",
	} {
		if !slices.Contains(notes, want) {
			t.Errorf("the notes lack %q: %q", want, notes)
		}
	}
	facts.Pod.Annotations = nil
	if notes := Tell(facts).Notes; len(notes) != 0 {
		t.Errorf("a pod without a value has notes: %q", notes)
	}
}
