// Package preflight lets an interceptor allow or deny an eviction before an
// EvictionRequest exists.
package preflight

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Interceptor allows or denies evictions before an EvictionRequest exists: the webhook
// asks it during admission of a legacy call for a pod that it intercepts. So it must
// answer from memory, within milliseconds, and write nothing. It may be asked about the
// same call any number of times.
//
// The answers of a pod's interceptors are combined: one denial denies; if all
// interceptors of the pod allow the call, it passes immediately; otherwise a request is
// created as usual. Interceptors without this interface count as Proceed. An error
// counts as our own failure: 429, to be retried.
type Interceptor interface {
	Preflight(ctx context.Context, pod *corev1.Pod) (Verdict, error)
}

// Outcome is an interceptor's answer before a request exists.
type Outcome int

const (
	// Proceed says: create a request, there is something to do.
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
	// Text tells the caller why, in one line of at most 200 characters. It must not
	// change while the reason is the same: callers group and compare texts (rule W3).
	// Required for Deny.
	Text string
}
