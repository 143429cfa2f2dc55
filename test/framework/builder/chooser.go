package builder

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// chooser is what the wrappers share of the kinds that choose pods and have a place in
// their order.
type chooser[W any] struct {
	self       W
	pods       **metav1.LabelSelector
	conditions *[]v1alpha1.MatchCondition
	priority   **int32
	guard      *v1alpha1.GuardPolicy
}

// Pods selects pods by a label more.
func (c chooser[W]) Pods(key, value string) W {
	addLabel(c.pods, key, value)
	return c.self
}

// PodsWhere selects pods by a requirement more.
func (c chooser[W]) PodsWhere(key string, operator metav1.LabelSelectorOperator, values ...string) W {
	addRequirement(c.pods, key, operator, values)
	return c.self
}

// When adds matchConditions, named c0, c1 and so on.
func (c chooser[W]) When(expressions ...string) W {
	for _, expression := range expressions {
		*c.conditions = append(*c.conditions, v1alpha1.MatchCondition{
			Name: "c" + strconv.Itoa(len(*c.conditions)), Expression: expression,
		})
	}
	return c.self
}

// Priority sets the priority.
func (c chooser[W]) Priority(priority int32) W {
	*c.priority = &priority
	return c.self
}

// Guard sets when a budget protects the pods.
func (c chooser[W]) Guard(guard v1alpha1.GuardPolicy) W {
	*c.guard = guard
	return c.self
}

func addLabel(selector **metav1.LabelSelector, key, value string) {
	if *selector == nil {
		*selector = &metav1.LabelSelector{}
	}
	setKey(&(*selector).MatchLabels, key, value)
}

func addRequirement(selector **metav1.LabelSelector, key string, operator metav1.LabelSelectorOperator, values []string) {
	if *selector == nil {
		*selector = &metav1.LabelSelector{}
	}
	(*selector).MatchExpressions = append((*selector).MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values})
}
