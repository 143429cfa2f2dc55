package builder

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionBudgetWrapper builds an EvictionBudget.
type EvictionBudgetWrapper struct {
	*v1alpha1.EvictionBudget
	common[*EvictionBudgetWrapper, *v1alpha1.EvictionBudget]
}

func wrapEvictionBudget(object *v1alpha1.EvictionBudget) *EvictionBudgetWrapper {
	return share(&EvictionBudgetWrapper{EvictionBudget: object}, object, wrapEvictionBudget)
}

// EvictionBudget begins with a budget for the pods with a label.
func EvictionBudget(namespace, name, key, value string) *EvictionBudgetWrapper {
	return wrapEvictionBudget(&v1alpha1.EvictionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.EvictionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}},
	})
}

// ByPodLabel groups by a label of the pods, of which so many may be disrupted.
func (w *EvictionBudgetWrapper) ByPodLabel(key string, maxGroups int32) *EvictionBudgetWrapper {
	w.Spec.GroupBy, w.Spec.MaxGroups = &v1alpha1.BudgetGroupBy{PodLabel: key}, &maxGroups
	return w
}

// ByNodeLabel groups by a label of the nodes, of which so many may be disrupted.
func (w *EvictionBudgetWrapper) ByNodeLabel(key string, maxGroups int32) *EvictionBudgetWrapper {
	w.Spec.GroupBy, w.Spec.MaxGroups = &v1alpha1.BudgetGroupBy{NodeLabel: key}, &maxGroups
	return w
}

// MaxUnavailable is a number or a percentage.
func (w *EvictionBudgetWrapper) MaxUnavailable(n string) *EvictionBudgetWrapper {
	w.Spec.MaxUnavailable = new(intstr.Parse(n))
	return w
}

// Settle sets how long a pod must be ready.
func (w *EvictionBudgetWrapper) Settle(d time.Duration) *EvictionBudgetWrapper {
	w.Spec.Settle = &metav1.Duration{Duration: d}
	return w
}

// MinInterval sets the time between two evictions.
func (w *EvictionBudgetWrapper) MinInterval(d time.Duration) *EvictionBudgetWrapper {
	w.Spec.MinInterval = &metav1.Duration{Duration: d}
	return w
}

// Window adds a window in UTC.
func (w *EvictionBudgetWrapper) Window(schedule string, duration time.Duration) *EvictionBudgetWrapper {
	w.Spec.Windows = append(w.Spec.Windows, v1alpha1.BudgetWindow{Schedule: schedule, Duration: metav1.Duration{Duration: duration}, TimeZone: "UTC"})
	return w
}

// Outside sets what happens outside of the windows.
func (w *EvictionBudgetWrapper) Outside(what v1alpha1.OutsideWindow) *EvictionBudgetWrapper {
	w.Spec.OutsideWindow = what
	return w
}

// When adds a condition over an object of the namespace.
func (w *EvictionBudgetWrapper) When(config v1alpha1.BudgetConfig, expression string) *EvictionBudgetWrapper {
	w.Spec.Config = &config
	w.Spec.Conditions = append(w.Spec.Conditions, v1alpha1.MatchCondition{Name: "is-healthy", Expression: expression})
	return w
}

// Guard sets when the guard protects the pods.
func (w *EvictionBudgetWrapper) Guard(guard v1alpha1.GuardPolicy) *EvictionBudgetWrapper {
	w.Spec.Guard = guard
	return w
}

// Exhausted has a pod deleted after that time, if a PodDisruptionBudget can never let it go.
func (w *EvictionBudgetWrapper) Exhausted(after time.Duration) *EvictionBudgetWrapper {
	w.Spec.Exhausted = &v1alpha1.BudgetExhausted{Action: v1alpha1.ExhaustedEvict, After: &metav1.Duration{Duration: after}}
	return w
}
