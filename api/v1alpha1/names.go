package v1alpha1

// Words of the API that live outside its fields.
const (
	// ImperativeEvictionInterceptor is the default interceptor, always the last
	// one of status.targetInterceptors: it calls the pod's eviction subresource.
	// KEP-4563, "Eviction" (000:L312).
	ImperativeEvictionInterceptor = "imperative-eviction.k8s.io"

	// InterceptorsAnnotation names a pod's interceptors: fully qualified domain
	// names separated by commas, in the order in which they run. It stands in for
	// the KEP's pod field spec.evictionInterceptors and, like it, holds at most
	// MaxPodInterceptors names and is immutable.
	InterceptorsAnnotation = GroupName + "/interceptors"
)

// Limits of the API.
const (
	// MaxRequesters is the largest number of spec.requesters (000:L406).
	MaxRequesters = 100
	// MaxPodInterceptors is the largest number of interceptors a pod may name
	// (ruling R1).
	MaxPodInterceptors = 15
	// MaxInterceptors is the largest number of interceptors of a request: the
	// pod's own and the default one (ruling R1).
	MaxInterceptors = MaxPodInterceptors + 1
	// MaxMessageLength is the length, in characters, at which writers cut an
	// interceptor's message (ruling R6).
	MaxMessageLength = 4000
)

// Types of the conditions of an EvictionRequest. At most one of the two is ever
// True, and neither is taken back (000:L637-644, statements 39 and 93).
const (
	// ConditionEvicted is True when the target has ended.
	ConditionEvicted = "Evicted"
	// ConditionCanceled is True when nobody wants the eviction any more, or the
	// target cannot be evicted through this API.
	ConditionCanceled = "Canceled"
)

// Reasons of the conditions (ruling R10).
const (
	// ReasonPodDeleted says that the target is gone, or another pod has its name.
	ReasonPodDeleted = "PodDeleted"
	// ReasonPodTerminal says that the target is in phase Succeeded or Failed.
	ReasonPodTerminal = "PodTerminal"
	// ReasonNoRequesters says that spec.requesters is empty.
	ReasonNoRequesters = "NoRequesters"
	// ReasonValidationFailed says that the controller refused the request when it
	// first looked at its target.
	ReasonValidationFailed = "ValidationFailed"
)
