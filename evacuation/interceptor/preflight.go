package interceptor

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Preflight gives an interceptor a say before an EvictionRequest exists: the
// webhook asks it on a legacy call for a pod that it intercepts, in the middle of
// admission. So it must answer from memory, within milliseconds, and write
// nothing; the same call may be asked about any number of times.
//
// The answers of a pod's interceptors are joined: one denial denies; the call is
// let through at once if every interceptor of the pod allows it; otherwise a
// request is created as usual. An interceptor without a Preflight proceeds. An
// error counts as our own trouble: 429, to be retried.
type Preflight interface {
	Preflight(ctx context.Context, pod *corev1.Pod) (PreflightVerdict, error)
}

// PreflightOutcome is what an interceptor says before a request exists.
type PreflightOutcome int

const (
	// PreflightProceed says: make a request, there is something to do.
	PreflightProceed PreflightOutcome = iota
	// PreflightAllow says: there is nothing to do for this pod.
	PreflightAllow
	// PreflightDeny says: the pod must not be evicted now, and a request could not help.
	PreflightDeny
)

func (o PreflightOutcome) String() string {
	return [...]string{"Proceed", "Allow", "Deny"}[o]
}

// PreflightVerdict is an interceptor's say before a request exists.
type PreflightVerdict struct {
	Outcome PreflightOutcome
	// Text tells the caller why, one line of at most 200 characters. It must be the
	// same as long as the reason is: callers group and compare texts (rule W3).
	// Required for PreflightDeny.
	Text string
}
