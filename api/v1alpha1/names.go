package v1alpha1

import (
	"slices"
	"strings"
)

// Names of the API outside its fields.
const (
	// ImperativeEvictionInterceptor is the default interceptor, always the last one of
	// status.targetInterceptors. It calls the pod's eviction subresource. KEP-4563,
	// "Eviction" (000:L312).
	ImperativeEvictionInterceptor = "imperative-eviction.k8s.io"

	// TaintEvictionRequester asks for pods that a NoExecute taint of their node deletes at
	// its deadline.
	TaintEvictionRequester = "taint-eviction." + GroupName

	// InterceptorsAnnotation names a pod's interceptors: fully qualified domain names
	// separated by commas, in the order in which they run. It replaces the KEP's pod field
	// spec.evictionInterceptors. Like the field, it holds at most MaxPodInterceptors names
	// and is immutable.
	InterceptorsAnnotation = GroupName + "/interceptors"

	// SeenInterceptorsAnnotation of an EvictionRequest lists, separated by commas, the
	// interceptors that a replica saw when it created the request for a call of
	// pods/eviction. It is not the plan: if the controller's plan would lack one of these
	// names, it asks the API server first.
	SeenInterceptorsAnnotation = GroupName + "/interceptors-seen"

	// NotifiedAnnotation of an EvictionRequest lists, separated by commas, the requesters that
	// were notified that its pod is gone. Drawbridge writes it for callers of pods/eviction
	// that ask by name, before it answers 404: later calls with that name are about the
	// pod's successor.
	NotifiedAnnotation = GroupName + "/told-of-the-end"
)

// ReservedInterceptors are names that only Drawbridge itself may use: no EvacuationPolicy
// may act under them. The last ones are for future features.
var ReservedInterceptors = []string{
	ImperativeEvictionInterceptor, NativeInterceptor, OrderInterceptor, "surge." + GroupName, "hook." + GroupName, "budget." + GroupName,
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
	// MaxForeignConditions how many of them may be set by others. So there is always room
	// for the controller's (see IsOwnCondition).
	MaxConditions        = 32
	MaxForeignConditions = 24
	// MaxMessageLength is the length, in characters, at which writers cut an
	// interceptor's message (ruling R6).
	MaxMessageLength = 4000
)

// Types of the conditions of an EvictionRequest. At most one of Evicted and Canceled is
// ever True, and it stays True (000:L637-644, statements 39 and 93).
const (
	// ConditionEvicted is True when the target has ended.
	ConditionEvicted = "Evicted"
	// ConditionCanceled is True when the eviction is no longer wanted, or the target
	// cannot be evicted through this API.
	ConditionCanceled = "Canceled"
	// ConditionDeleting is True when the request is being deleted but a finalizer holds
	// it. It is not an outcome: the end of the target is still recorded.
	ConditionDeleting = "Deleting"
	// ConditionUnchecked is True when an interceptor completed while no manager ran, so
	// that its times were not checked, and managedFields do not confirm them.
	ConditionUnchecked = GroupName + "/CompletionUnchecked"
	// ConditionCancellationForbidden is True when the last requester has left, but an
	// interceptor has forbidden to cancel the request.
	ConditionCancellationForbidden = GroupName + "/CancellationForbidden"
	// ConditionCutOff is True when status.deadline has come before all interceptors were
	// done.
	ConditionCutOff = GroupName + "/CutOff"
	// ConditionShortNotice is True when status.deadline has left an interceptor less than its
	// minimum.
	ConditionShortNotice = GroupName + "/ShortNotice"
	// ConditionNodeLost is True while the target's node is lost, and False once it is back.
	// Without the condition, it never was.
	ConditionNodeLost = GroupName + "/NodeLost"
)

// IsOwnCondition reports whether only the controller writes conditions of this type:
// Evicted, Canceled, Deleting and those under drawbridge.dev/.
func IsOwnCondition(conditionType string) bool {
	return slices.Contains([]string{ConditionEvicted, ConditionCanceled, ConditionDeleting}, conditionType) ||
		strings.HasPrefix(conditionType, GroupName+"/")
}

// Reasons of the conditions (ruling R10).
const (
	// ReasonPodDeleted says that the target is gone, or that another pod has its name.
	ReasonPodDeleted = "PodDeleted"
	// ReasonPodTerminal says that the target is in phase Succeeded or Failed.
	ReasonPodTerminal = "PodTerminal"
	// ReasonHeldByFinalizers is the reason of ConditionDeleting.
	ReasonHeldByFinalizers = "HeldByFinalizers"
	// ReasonNoRequesters says that spec.requesters is empty.
	ReasonNoRequesters = "NoRequesters"
	// ReasonValidationFailed says that the controller refused the request when it first
	// observed the target.
	ReasonValidationFailed = "ValidationFailed"
	// ReasonNobodyChecked is the reason of ConditionUnchecked.
	ReasonNobodyChecked = "NobodyChecked"
	// ReasonPointOfNoReturn is the reason of ConditionCancellationForbidden.
	ReasonPointOfNoReturn = "PointOfNoReturn"
	// ReasonDeadlineReached is the reason of ConditionCutOff.
	ReasonDeadlineReached = "DeadlineReached"
	// ReasonTooShort is the reason of ConditionShortNotice.
	ReasonTooShort = "TooShort"
	// ReasonNodeUnreachable is the reason of ConditionNodeLost while it is True.
	ReasonNodeUnreachable = "NodeUnreachable"
	// ReasonNodeBack is the reason of ConditionNodeLost once it is False.
	ReasonNodeBack = "NodeBack"
)
