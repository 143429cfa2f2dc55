package chaos

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// maxRefused is how often within a minute the managers may send the same write that is
// refused: each process after 5, 10 and 20 seconds, and there are several in a run. Loops
// make hundreds.
const maxRefused = 24

// refused reports whether the write was refused by the policy engine.
func (c *checker) refused(w Write) bool {
	if w.Code != http.StatusForbidden && w.Code != http.StatusUnprocessableEntity {
		return false
	}
	for _, refusal := range c.Refusals {
		if !w.At.Before(refusal.From) && !w.At.After(refusal.To) {
			return true
		}
	}
	return false
}

// silent reports whether nothing was heard of an interceptor of ours for the whole deadline,
// by what the product says of itself: only ever an excuse.
func (c *checker) silent(pod types.UID, name string, at time.Time) bool {
	request := c.requestOf(pod, at)
	sign := c.turn(request, name)
	if sign.IsZero() {
		return false
	}
	for _, seen := range c.requests[request] {
		report := v1alpha1.ReportOf(seen.Request, name)
		if report.CompletionTime != nil {
			return false
		}
		if beat := report.HeartbeatTime; beat != nil && beat.After(sign) {
			sign = beat.Time
		}
	}
	return !at.Before(sign.Add(c.Deadline - c.Slack))
}

// hushed reports whether an interceptor of ours was silent because its reports were refused.
// Then it is passed over, as everyone who is silent.
func (c *checker) hushed(pod types.UID, name string, at time.Time) bool {
	sign := c.turn(c.requestOf(pod, at), name)
	for _, refusal := range c.Refusals {
		if refusal.Refusal.Write == RefusedRequestStatus && refusal.From.Before(at) && refusal.pausedUntil().After(sign) {
			return c.silent(pod, name, at)
		}
	}
	return false
}
