package builder

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// BudgetWrapper builds a PodDisruptionBudget.
type BudgetWrapper struct{ policyv1.PodDisruptionBudget }

// Budget begins with a budget that selects nothing and says nothing.
func Budget(namespace, name string) *BudgetWrapper {
	return &BudgetWrapper{policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}}
}

// Obj returns the budget.
func (w *BudgetWrapper) Obj() *policyv1.PodDisruptionBudget { return &w.PodDisruptionBudget }

// Clone returns an independent copy.
func (w *BudgetWrapper) Clone() *BudgetWrapper { return &BudgetWrapper{*w.DeepCopy()} }

// UID sets metadata.uid.
func (w *BudgetWrapper) UID(uid types.UID) *BudgetWrapper {
	w.PodDisruptionBudget.UID = uid
	return w
}

// Generation sets metadata.generation.
func (w *BudgetWrapper) Generation(generation int64) *BudgetWrapper {
	w.PodDisruptionBudget.Generation = generation
	return w
}

// Selects makes it select pods with this label, and with those of earlier calls.
func (w *BudgetWrapper) Selects(key, value string) *BudgetWrapper {
	if w.Spec.Selector == nil {
		w.Spec.Selector = &metav1.LabelSelector{}
	}
	setKey(&w.Spec.Selector.MatchLabels, key, value)
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
