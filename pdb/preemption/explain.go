package preemption

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// Explanation is the input of Explain.
type Explanation struct {
	Pod *corev1.Pod
	// Class is the pod's PriorityClass; nil when it has none or it is gone.
	Class *schedulingv1.PriorityClass
	// Budgets are those of the pod's namespace.
	Budgets []policyv1.PodDisruptionBudget
}

// Explain says in sentences what the scheduler may do to the budgets of a pod; none
// if no value concerns it. It only reads.
func Explain(e Explanation) []string {
	var sentences []string
	stamp, err := translate.AllowDisruption(e.Pod.Annotations)
	if err != nil {
		sentences = append(sentences, fmt.Sprintf("The pod's %s; it is ignored.", err))
	}
	var current *int32
	if e.Class != nil {
		if current, err = translate.AllowDisruption(e.Class.Annotations); err != nil {
			sentences = append(sentences, fmt.Sprintf("PriorityClass %s: %s; it is ignored.", e.Class.Name, err))
		}
	}
	value, source := stamp, "its annotation says so since it was created"
	if value == nil {
		if current == nil {
			return sentences
		}
		value, source = current, fmt.Sprintf(
			"PriorityClass %s says so; where Drawbridge stamps pods, this holds only for those created since", e.Class.Name)
	}
	sentences = append(sentences, fmt.Sprintf("Only pods of priority %d or more may violate its budgets by preemption (%s).", *value, source))
	if stamp != nil && current != nil && *stamp != *current {
		sentences = append(sentences, fmt.Sprintf("PriorityClass %s says %d by now, which holds for pods created since.", e.Class.Name, *current))
	}
	return append(sentences, budgetSentence(e))
}

// budgetSentence says how much room the pod's budgets leave.
func budgetSentence(e Explanation) string {
	var room []string
	for i := range e.Budgets {
		pdb := &e.Budgets[i]
		if ofGuard(pdb) || pdb.Namespace != e.Pod.Namespace || pdb.Spec.Selector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(e.Pod.Labels)) {
			continue
		}
		room = append(room, fmt.Sprintf("%s allows %d", pdb.Name, NewBudget(pdb).Allowed))
	}
	if len(room) == 0 {
		return "No PodDisruptionBudget selects it, so any pod of a higher priority may preempt it."
	}
	return fmt.Sprintf("Disruptions now: %s.", strings.Join(room, ", "))
}
