package registration

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Info describes the interceptor of an accepted EvictionInterceptor or EvacuationHook, or
// that of all EvictionBudgets.
type Info struct {
	// Name of the interceptor.
	Name string
	// Priority orders interceptors, higher first.
	Priority int32
	// Usernames of the service accounts that act under the name, as the API server
	// knows them ("system:serviceaccount:NAMESPACE:NAME"). Empty means that any account
	// with the permission may.
	Usernames []string
	// Evicts: the interceptor terminates the pod itself.
	Evicts bool
	// HeartbeatDeadline is how long the interceptor may be silent; 0 if the registration does
	// not say.
	HeartbeatDeadline time.Duration
	// Guard says when the pods are protected by a budget.
	Guard v1alpha1.GuardPolicy
}

// Lookup says who may act under an interceptor's name.
type Lookup interface {
	// Registration returns the accepted registration of that name. It answers from
	// memory and is safe for concurrent use. Names without an accepted
	// EvictionInterceptor or EvacuationHook are not found. v1alpha1.BudgetInterceptor is
	// found while EvictionBudgets are enforced.
	Registration(name string) (Info, bool)
}

// DeadlineOf is how long an interceptor may be silent, by its registration in the Lookup; 0 if it
// has none, or one that does not say.
func DeadlineOf(l Lookup) func(name string) time.Duration {
	return func(name string) time.Duration {
		found, _ := l.Registration(name)
		return found.HeartbeatDeadline
	}
}

// PodLookup is a Lookup for one pod, in the same way.
type PodLookup interface {
	// RegistrationOf is Registration with the guard of that pod: that of
	// v1alpha1.BudgetInterceptor depends on which EvictionBudgets cover it.
	RegistrationOf(name string, pod *corev1.Pod) (Info, bool)
}
