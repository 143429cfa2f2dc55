package builder

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionInterceptorWrapper builds an EvictionInterceptor.
type EvictionInterceptorWrapper struct{ v1alpha1.EvictionInterceptor }

// EvictionInterceptor begins with a registration that selects all pods, as it is
// when it has just been created: generation 1.
func EvictionInterceptor(name string) *EvictionInterceptorWrapper {
	return &EvictionInterceptorWrapper{v1alpha1.EvictionInterceptor{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
	}}
}

// Obj returns the registration.
func (w *EvictionInterceptorWrapper) Obj() *v1alpha1.EvictionInterceptor {
	return &w.EvictionInterceptor
}

// Clone returns an independent copy.
func (w *EvictionInterceptorWrapper) Clone() *EvictionInterceptorWrapper {
	return &EvictionInterceptorWrapper{*w.DeepCopy()}
}

// UID sets metadata.uid.
func (w *EvictionInterceptorWrapper) UID(uid types.UID) *EvictionInterceptorWrapper {
	w.EvictionInterceptor.UID = uid
	return w
}

// Generation sets metadata.generation.
func (w *EvictionInterceptorWrapper) Generation(generation int64) *EvictionInterceptorWrapper {
	w.EvictionInterceptor.Generation = generation
	return w
}

// Pods selects pods by a label more.
func (w *EvictionInterceptorWrapper) Pods(key, value string) *EvictionInterceptorWrapper {
	addLabel(&w.Spec.PodSelector, key, value)
	return w
}

// PodsWhere selects pods by a requirement more.
func (w *EvictionInterceptorWrapper) PodsWhere(key string, operator metav1.LabelSelectorOperator, values ...string) *EvictionInterceptorWrapper {
	addRequirement(&w.Spec.PodSelector, key, operator, values)
	return w
}

// Namespaces selects namespaces by a label more.
func (w *EvictionInterceptorWrapper) Namespaces(key, value string) *EvictionInterceptorWrapper {
	addLabel(&w.Spec.NamespaceSelector, key, value)
	return w
}

// NamespacesWhere selects namespaces by a requirement more.
func (w *EvictionInterceptorWrapper) NamespacesWhere(key string, operator metav1.LabelSelectorOperator, values ...string) *EvictionInterceptorWrapper {
	addRequirement(&w.Spec.NamespaceSelector, key, operator, values)
	return w
}

// InNamespace selects one namespace, by its name.
func (w *EvictionInterceptorWrapper) InNamespace(name string) *EvictionInterceptorWrapper {
	return w.Namespaces("kubernetes.io/metadata.name", name)
}

// HeartbeatDeadline sets spec.heartbeatDeadline.
func (w *EvictionInterceptorWrapper) HeartbeatDeadline(deadline time.Duration) *EvictionInterceptorWrapper {
	w.Spec.HeartbeatDeadline = &metav1.Duration{Duration: deadline}
	return w
}

// When adds matchConditions, named c0, c1 and so on.
func (w *EvictionInterceptorWrapper) When(expressions ...string) *EvictionInterceptorWrapper {
	for _, expression := range expressions {
		w.Spec.MatchConditions = append(w.Spec.MatchConditions, v1alpha1.MatchCondition{
			Name: "c" + strconv.Itoa(len(w.Spec.MatchConditions)), Expression: expression,
		})
	}
	return w
}

// Priority sets the priority.
func (w *EvictionInterceptorWrapper) Priority(priority int32) *EvictionInterceptorWrapper {
	w.Spec.Priority = &priority
	return w
}

// ActedBy adds a service account.
func (w *EvictionInterceptorWrapper) ActedBy(namespace, name string) *EvictionInterceptorWrapper {
	w.Spec.ServiceAccounts = append(w.Spec.ServiceAccounts, v1alpha1.ServiceAccountReference{Namespace: namespace, Name: name})
	return w
}

// Evicts says that the interceptor terminates the pod itself.
func (w *EvictionInterceptorWrapper) Evicts() *EvictionInterceptorWrapper {
	w.Spec.Evicts = true
	return w
}

// Guard sets when a budget protects the pods.
func (w *EvictionInterceptorWrapper) Guard(guard v1alpha1.GuardPolicy) *EvictionInterceptorWrapper {
	w.Spec.Guard = guard
	return w
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
