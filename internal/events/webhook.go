package events

import (
	"fmt"
	"strings"
)

// Reasons of the events of the eviction webhook.
const (
	ReasonEvictionRequested   = "EvictionRequested"
	ReasonReplacementSpared   = "ReplacementSpared"
	ReasonInvalidInterceptors = "InvalidInterceptors"
)

// Actions of the events of the eviction webhook.
const (
	actionIntercept = "InterceptEviction"
	actionSpare     = "SpareReplacement"
	actionRead      = "ReadAnnotation"
)

// maxProblems is how many problems of an annotation one event lists.
const maxProblems = 5

// EvictionRequested says that a caller of pods/eviction became a requester. The
// display names the caller for people.
func EvictionRequested(display string) Event {
	return normal(ReasonEvictionRequested, actionIntercept, "%s asked to evict the pod; its interceptors come first.", display)
}

// ReplacementSpared says that a call meant a pod that has already left, and its
// replacement was not evicted. From is the node that the pod left.
func ReplacementSpared(display, from string) Event {
	return normal(ReasonReplacementSpared, actionSpare, "%s asked again to evict the pod of this name that already left node %s; this replacement is not evicted.", display, from)
}

// InvalidInterceptors says that a pod's annotation cannot be read in full.
func InvalidInterceptors(annotation string, problems []string) Event {
	told := strings.Join(problems[:min(len(problems), maxProblems)], "; ")
	if more := len(problems) - maxProblems; more > 0 {
		told += fmt.Sprintf("; and %d more", more)
	}
	return warning(ReasonInvalidInterceptors, actionRead, "Annotation %s is malformed, what cannot be read is ignored: %s.", annotation, told)
}
