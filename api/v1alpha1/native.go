package v1alpha1

// Names between this API and lifecycle.k8s.io, the API that Kubernetes itself has for
// KEP-4563 since 1.37. There a requester or responder is a key with a domain as its prefix.
const (
	// NativeInterceptor is the interceptor of all responders of a pod (spec.evictionResponders):
	// it asks natively in the name of the request's requesters, and is done as soon as
	// NativeResponder has its turn. It is also the requester of requests that a native Eviction
	// needs.
	NativeInterceptor = "native." + GroupName
	// NativeResponder is the one responder of a native Eviction that stands for all interceptors
	// of its pod.
	NativeResponder = GroupName + "/interceptors"
	// DefaultNativePriority is the priority of NativeResponder, the lowest that the API server
	// allows to anybody but Kubernetes: the pod's responders come first.
	DefaultNativePriority = 1000
	// MaxNativeResponders is the largest number of responders that a pod may name. Then there is
	// no place left for NativeResponder in its Eviction, which has one more.
	MaxNativeResponders = 10
)
