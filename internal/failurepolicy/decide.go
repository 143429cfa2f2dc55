package failurepolicy

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// proveEvery is how often reachability is checked while there is nothing to set, so
	// that an outage shows in a metric before a drain.
	proveEvery = 5 * time.Minute
	// retryFirst and retryLongest limit the pause after a failed try.
	retryFirst   = 2 * time.Second
	retryLongest = time.Minute
	// calmAfter is how long after our last write another one does not count as part of a
	// fight with another writer.
	calmAfter = 10 * time.Minute
)

// proof is what is known about the API server reaching us.
type proof int

const (
	// untried: not checked yet.
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
	// Trusted: the authority in the configuration has signed our certificate.
	Trusted bool
	// Proof belongs to this version of the configuration.
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
	// Why is for the log, if something waits.
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
		// Injecting the authority is an event; this is for a certificate that is not
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

// pauseAfter is how long to wait before the next write after that many of ours, the last
// one that long ago. The first time that the policy is set back, it is repaired
// immediately: that is a rollback. Then the pause doubles, to keep a fight with another
// tool slow.
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
