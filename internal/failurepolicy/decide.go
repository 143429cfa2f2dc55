package failurepolicy

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// proveEvery is how often the way to us is tried while there is nothing to set, so
	// that an outage shows in a metric before somebody drains.
	proveEvery = 5 * time.Minute
	// retryFirst and retryLongest limit the pause after a try that has failed.
	retryFirst   = 2 * time.Second
	retryLongest = time.Minute
	// calmAfter is how long after our last write another one is not part of a fight with
	// somebody who writes the policy, too.
	calmAfter = 10 * time.Minute
)

// proof is what is known of the way from the API server to us.
type proof int

const (
	// untried: nobody has asked yet.
	untried proof = iota
	// reached: the call came back with our answer.
	reached
	// unreached: it did not.
	unreached
)

// input is what decide may look at.
type input struct {
	// Wanted is what the chart wants; empty when it says nothing.
	Wanted admissionregistrationv1.FailurePolicyType
	// Present is what the configuration says; empty when it has no such webhook.
	Present admissionregistrationv1.FailurePolicyType
	// Trusted: the authority in the configuration vouches for what we serve.
	Trusted bool
	// Proof belongs to the very configuration that is looked at.
	Proof proof
	// Failures is how many tries in a row have failed.
	Failures int
	// Pause is how long to wait before the policy is written again; see pauseAfter.
	Pause time.Duration
}

// decision is what to do about the configuration.
type decision struct {
	// Set is the policy to write; empty for none.
	Set admissionregistrationv1.FailurePolicyType
	// Prove: ask the API server, and decide again.
	Prove bool
	// Again is when to look again if the configuration does not change; 0 for never.
	Again time.Duration
	// Why is for the log, when something waits.
	Why string
}

// decide says what the configuration needs. The first rule that applies wins.
func decide(in input) decision {
	switch {
	case in.Present == "" || in.Wanted == "":
		return decision{Why: "the webhook configuration says nothing about the failure policy wanted"}
	case in.Present != in.Wanted && in.Pause > 0:
		return decision{Again: in.Pause, Why: "somebody else sets the policy, too"}
	case in.Wanted == admissionregistrationv1.Ignore && in.Present != in.Wanted:
		return decision{Set: in.Wanted} // Opening needs no proof.
	case !in.Trusted:
		// Putting the authority in is an event; this is for a certificate that is not
		// served yet.
		return decision{Again: retryFirst, Why: "the certificate is not trusted yet"}
	case in.Proof == untried:
		return decision{Prove: true}
	case in.Proof == unreached:
		return decision{Again: retryAfter(in.Failures), Why: "the API server does not reach the webhook"}
	case in.Present != in.Wanted:
		return decision{Set: in.Wanted}
	}
	return decision{Again: proveEvery}
}

// pauseAfter is how long to wait with the next write after so many of ours, the last one
// so long ago. The first time that somebody sets the policy back, it is put right at
// once: that is a rollback. From then on the pause doubles, so that a tool that goes on
// with it is not driven to do so faster and faster.
func pauseAfter(writes int, since time.Duration) time.Duration {
	if writes < 2 || since >= calmAfter {
		return 0
	}
	return max(retryAfter(writes-1)-since, 0)
}

// retryAfter doubles with each failure.
func retryAfter(failures int) time.Duration {
	pause := retryFirst
	for range failures - 1 {
		if pause *= 2; pause >= retryLongest {
			return retryLongest
		}
	}
	return pause
}
