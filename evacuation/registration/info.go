package registration

import "github.com/drawbridge-dev/drawbridge/api/v1alpha1"

// Info describes the interceptor of an accepted EvictionInterceptor or EvacuationHook.
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
	// Guard says when the pods are protected by a budget.
	Guard v1alpha1.GuardPolicy
}

// Lookup says who may act under an interceptor's name.
type Lookup interface {
	// Registration returns the accepted registration of that name. It answers from
	// memory and is safe for concurrent use. Names without an accepted
	// EvictionInterceptor or EvacuationHook are not found.
	Registration(name string) (Info, bool)
}
