package registration

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Info describes the interceptor of an accepted EvictionInterceptor or EvacuationHook, or
// that of all EvictionBudgets, of native responders, or of the order of a node's pods.
type Info struct {
	// Name of the interceptor.
	Name string
	// Priority orders interceptors, higher first. Those of native responders and of the order
	// have none.
	Priority int32
	// Usernames of the service accounts that act under the name, as the API server
	// knows them ("system:serviceaccount:NAMESPACE:NAME"). Empty means that any account
	// with the permission may.
	Usernames []string
	// Evicts: the interceptor terminates the pod itself.
	Evicts bool
	// Planned is what requests keep of the registration, without the name: how long the
	// interceptor may be silent, and how long it needs.
	Planned v1alpha1.Interceptor
	// Guard says when the pods are protected by a budget.
	Guard v1alpha1.GuardPolicy
	// After says which pods of the node are to leave first; nil if the registration does not.
	After *After
}

// Lookup says who may act under an interceptor's name.
type Lookup interface {
	// Registration returns the accepted registration of that name. It answers from
	// memory and is safe for concurrent use. Names without an accepted
	// EvictionInterceptor or EvacuationHook are not found. v1alpha1.BudgetInterceptor is
	// found while EvictionBudgets are enforced, v1alpha1.NativeInterceptor where the
	// registry has Options.Native, whatever that answers, and v1alpha1.OrderInterceptor always.
	Registration(name string) (Info, bool)
}

// PlannedOf is what the plan of a request says of an interceptor, by its registration in the
// Lookup: only its name if it has none.
func PlannedOf(l Lookup) func(name string) v1alpha1.Interceptor {
	return func(name string) v1alpha1.Interceptor {
		found, _ := l.Registration(name)
		found.Planned.Name = name
		return found.Planned
	}
}

// PodLookup is a Lookup for one pod, in the same way.
type PodLookup interface {
	// RegistrationOf is Registration with the guard of that pod: that of
	// v1alpha1.BudgetInterceptor depends on which EvictionBudgets cover it, and that of
	// v1alpha1.OrderInterceptor on by which registrations it waits for others.
	RegistrationOf(name string, pod *corev1.Pod) (Info, bool)
}
