package v1alpha1

import (
	"slices"
	"strings"
)

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

	// SeenInterceptorsAnnotation of an EvictionRequest has the names of the interceptors
	// that the replica which made it for a call of pods/eviction saw, separated by commas.
	// The plan is not taken from it; the controller asks the API server before it makes
	// one that lacks a name of these.
	SeenInterceptorsAnnotation = GroupName + "/interceptors-seen"

	// ToldAnnotation of an EvictionRequest has the names of the requesters that were
	// told of the end of its pod, separated by commas. Drawbridge writes it for callers
	// of pods/eviction that ask by name, before it answers them 404: what they ask under
	// that name later is about the pod's successor.
	ToldAnnotation = GroupName + "/told-of-the-end"
)

// ReservedInterceptors are the names under which nobody but Drawbridge itself
// intercepts: no EvacuationPolicy may act under them. The last ones are of what is
// yet to come.
var ReservedInterceptors = []string{
	ImperativeEvictionInterceptor, "surge." + GroupName, "hook." + GroupName, "budget." + GroupName,
}

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
	// MaxConditions is the largest number of conditions of a request, and
	// MaxForeignConditions how many of them may be others' than the controller's: so there
	// is always room for those (see IsOwnCondition).
	MaxConditions        = 32
	MaxForeignConditions = 24
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
	// ConditionDeleting is True when the request is being deleted and cannot go,
	// because somebody's finalizer holds it. It is no outcome: the end of the target is
	// still recorded.
	ConditionDeleting = "Deleting"
	// ConditionUnchecked is True when an interceptor completed while no manager ran, so
	// that its times were not checked, and managedFields do not bear it out.
	ConditionUnchecked = GroupName + "/CompletionUnchecked"
)

// IsOwnCondition reports whether only the controller writes conditions of this type:
// Evicted, Canceled, Deleting and those under drawbridge.dev/.
func IsOwnCondition(conditionType string) bool {
	return slices.Contains([]string{ConditionEvicted, ConditionCanceled, ConditionDeleting}, conditionType) ||
		strings.HasPrefix(conditionType, GroupName+"/")
}

// Reasons of the conditions (ruling R10).
const (
	// ReasonPodDeleted says that the target is gone, or another pod has its name.
	ReasonPodDeleted = "PodDeleted"
	// ReasonPodTerminal says that the target is in phase Succeeded or Failed.
	ReasonPodTerminal = "PodTerminal"
	// ReasonHeldByFinalizers is the reason of ConditionDeleting.
	ReasonHeldByFinalizers = "HeldByFinalizers"
	// ReasonNoRequesters says that spec.requesters is empty.
	ReasonNoRequesters = "NoRequesters"
	// ReasonValidationFailed says that the controller refused the request when it
	// first looked at its target.
	ReasonValidationFailed = "ValidationFailed"
	// ReasonNobodyChecked is the reason of ConditionUnchecked.
	ReasonNobodyChecked = "NobodyChecked"
)
