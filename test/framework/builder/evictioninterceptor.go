package builder

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionInterceptorWrapper builds an EvictionInterceptor.
type EvictionInterceptorWrapper struct {
	*v1alpha1.EvictionInterceptor
	common[*EvictionInterceptorWrapper, *v1alpha1.EvictionInterceptor]
	chooser[*EvictionInterceptorWrapper]
}

func wrapEvictionInterceptor(object *v1alpha1.EvictionInterceptor) *EvictionInterceptorWrapper {
	w := share(&EvictionInterceptorWrapper{EvictionInterceptor: object}, object, wrapEvictionInterceptor)
	spec := &object.Spec
	w.chooser = chooser[*EvictionInterceptorWrapper]{w, &spec.PodSelector, &spec.MatchConditions, &spec.Priority, &spec.Guard}
	return w
}

// EvictionInterceptor begins with a registration that selects all pods, as it is
// when it has just been created: generation 1.
func EvictionInterceptor(name string) *EvictionInterceptorWrapper {
	return wrapEvictionInterceptor(&v1alpha1.EvictionInterceptor{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
	})
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

// Minimum sets spec.minimum and spec.onShortNotice.
func (w *EvictionInterceptorWrapper) Minimum(minimum time.Duration, onShortNotice v1alpha1.ShortNoticePolicy) *EvictionInterceptorWrapper {
	w.Spec.Minimum, w.Spec.OnShortNotice = &metav1.Duration{Duration: minimum}, onShortNotice
	return w
}

// OnNodeLost sets spec.onNodeLost.
func (w *EvictionInterceptorWrapper) OnNodeLost(policy v1alpha1.NodeLostPolicy) *EvictionInterceptorWrapper {
	w.Spec.OnNodeLost = policy
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

// After adds a label to spec.after.podSelector.
func (w *EvictionInterceptorWrapper) After(key, value string) *EvictionInterceptorWrapper {
	addLabel(&w.order().PodSelector, key, value)
	return w
}

// AfterWhere adds a requirement to spec.after.podSelector.
func (w *EvictionInterceptorWrapper) AfterWhere(key string, operator metav1.LabelSelectorOperator, values ...string) *EvictionInterceptorWrapper {
	addRequirement(&w.order().PodSelector, key, operator, values)
	return w
}

// AfterNamespaces adds a label to spec.after.namespaceSelector.
func (w *EvictionInterceptorWrapper) AfterNamespaces(key, value string) *EvictionInterceptorWrapper {
	addLabel(&w.order().NamespaceSelector, key, value)
	return w
}

// AfterTimeout sets spec.after.timeout.
func (w *EvictionInterceptorWrapper) AfterTimeout(timeout time.Duration) *EvictionInterceptorWrapper {
	w.order().Timeout = &metav1.Duration{Duration: timeout}
	return w
}

func (w *EvictionInterceptorWrapper) order() *v1alpha1.EvictionOrder {
	if w.Spec.After == nil {
		w.Spec.After = &v1alpha1.EvictionOrder{}
	}
	return w.Spec.After
}

// NativeKey sets spec.nativeKey.
func (w *EvictionInterceptorWrapper) NativeKey(key string) *EvictionInterceptorWrapper {
	w.Spec.NativeKey = key
	return w
}
