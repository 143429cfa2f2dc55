package builder

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// BudgetWrapper builds a PodDisruptionBudget.
type BudgetWrapper struct {
	*policyv1.PodDisruptionBudget
	common[*BudgetWrapper, *policyv1.PodDisruptionBudget]
}

func wrapBudget(object *policyv1.PodDisruptionBudget) *BudgetWrapper {
	return share(&BudgetWrapper{PodDisruptionBudget: object}, object, wrapBudget)
}

// Budget begins with a budget that selects nothing and says nothing.
func Budget(namespace, name string) *BudgetWrapper {
	return wrapBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	})
}

// Selects makes it select pods with this label, and with those of earlier calls.
func (w *BudgetWrapper) Selects(key, value string) *BudgetWrapper {
	addLabel(&w.Spec.Selector, key, value)
	return w
}

// SelectsAll makes it select every pod of its namespace.
func (w *BudgetWrapper) SelectsAll() *BudgetWrapper {
	w.Spec.Selector = &metav1.LabelSelector{}
	return w
}

// MinAvailable sets spec.minAvailable: a number, or a percentage such as "50%".
func (w *BudgetWrapper) MinAvailable(value string) *BudgetWrapper {
	w.Spec.MinAvailable = ptr.To(intstr.Parse(value))
	return w
}

// MaxUnavailable sets spec.maxUnavailable: a number, or a percentage such as "50%".
func (w *BudgetWrapper) MaxUnavailable(value string) *BudgetWrapper {
	w.Spec.MaxUnavailable = ptr.To(intstr.Parse(value))
	return w
}

// Allows makes it a budget that was observed at its present generation and allows
// this many disruptions.
func (w *BudgetWrapper) Allows(disruptions int32) *BudgetWrapper {
	w.Status.ObservedGeneration = w.PodDisruptionBudget.Generation
	w.Status.DisruptionsAllowed = disruptions
	return w
}
