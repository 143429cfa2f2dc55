// Package preflight lets an interceptor allow or deny an eviction before an
// EvictionRequest exists.
package preflight

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Interceptor allows or denies evictions before an EvictionRequest exists: the
// webhook asks it on a legacy call for a pod that it intercepts, in the middle of
// admission. So it must answer from memory, within milliseconds, and write
// nothing; the same call may be asked about any number of times.
//
// The answers of a pod's interceptors are joined: one denial denies; the call is
// let through at once if every interceptor of the pod allows it; otherwise a
// request is created as usual. An interceptor that is none proceeds. An
// error counts as our own trouble: 429, to be retried.
type Interceptor interface {
	Preflight(ctx context.Context, pod *corev1.Pod) (Verdict, error)
}

// Outcome is what an interceptor says before a request exists.
type Outcome int

const (
	// Proceed says: make a request, there is something to do.
	Proceed Outcome = iota
	// Allow says: there is nothing to do for this pod.
	Allow
	// Deny says: the pod must not be evicted now, and a request could not help.
	Deny
)

func (o Outcome) String() string {
	return [...]string{"Proceed", "Allow", "Deny"}[o]
}

// Verdict is what an interceptor decides before a request exists.
type Verdict struct {
	Outcome Outcome
	// Text tells the caller why, one line of at most 200 characters. It must be the
	// same as long as the reason is: callers group and compare texts (rule W3).
	// Required for Deny.
	Text string
}
