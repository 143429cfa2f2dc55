package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/refusals"
	writes "github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// code begins the foretold answers of the webhook that deny.
const code = "429: "

// goesOn ends the advice about a refusal.
const goesOn = "Nothing else: Drawbridge tries again by itself, at least every five minutes."

// refusalsOf are the writes that the cluster refuses for the pod. What an object shows is
// newer than an event: Drawbridge forgets refusals when it restarts, and then the event that
// ends one is missing.
func refusalsOf(f *Facts) []refusals.Refusal {
	if f.Pod == nil || f.Request != nil && v1alpha1.IsFinished(f.Request) {
		return nil
	}
	return slices.DeleteFunc(refusals.Of(f.Events, eventTime), func(r refusals.Refusal) bool {
		since := func(t time.Time) bool { return !t.Before(r.Time.Truncate(time.Second)) }
		switch r.Write {
		case writes.Request:
			return f.Request != nil && since(f.Request.CreationTimestamp.Time)
		case writes.GuardBudget:
			return slices.ContainsFunc(f.Budgets, func(b policyv1.PodDisruptionBudget) bool {
				return b.Labels[v1alpha1.GuardBudgetLabel] == "true" && since(b.CreationTimestamp.Time)
			})
		case writes.Job:
			return slices.ContainsFunc(f.Hooks, func(h v1alpha1.EvacuationHook) bool {
				return slices.ContainsFunc(h.Status.Runs, func(run v1alpha1.HookRun) bool {
					return f.Request != nil && run.RequestUID == string(f.Request.UID) && run.Phase != v1alpha1.HookRefused && since(run.StartTime.Time)
				})
			})
		default:
			return false
		}
	})
}

// needsRequestDryRun reports whether a call would have Drawbridge write a request.
func needsRequestDryRun(f Facts) bool { return newCase(&f).wouldWrite() }

// wouldWrite reports whether a call would have Drawbridge write a request, as the webhook
// foretells, which writes nothing to foretell it.
func (c *podCase) wouldWrite() bool {
	answer, ok := c.foretold()
	return ok && c.Pod != nil && c.Request == nil && answer == code+translate.Accepted(translate.Subject{}).Message
}

// unwritten is what a call would be denied for, although the webhook foretells that it
// would be accepted.
func (c *podCase) unwritten() (refusals.Refusal, bool) {
	if !c.wouldWrite() {
		return refusals.Refusal{}, false
	}
	for _, write := range []writes.Write{writes.Lease, writes.Request} { // The order in which they are written.
		for _, r := range c.refusals {
			if r.Write == write {
				return r, true
			}
		}
	}
	if c.RequestDryRun == nil {
		return refusals.Refusal{}, false
	}
	return *c.RequestDryRun, true
}

// namespaceOf is where the refused object is.
func (c *podCase) namespaceOf(r refusals.Refusal) string {
	if r.Write == writes.Lease {
		return c.System
	}
	return c.Pod.Namespace
}

// deniedBy is the answer to a call because of a refusal.
func (c *podCase) deniedBy(r refusals.Refusal) string {
	what := "the request"
	if r.Write == writes.Lease {
		what = "the lease of the caller"
	}
	return code + translate.WriteRefused(translate.Subject{}, r.Cause.Who(c.namespaceOf(r)), what).Message
}

// writeRefused is for pods whose eviction nobody can request.
func writeRefused(c *podCase) (string, []string, bool) {
	r, ok := c.unwritten()
	if !ok {
		return "", nil, false
	}
	advice := []string{r.Remedy(c.namespaceOf(r)), goesOn}
	if r.Write == writes.Request && !r.Time.IsZero() && c.RequestTried && c.RequestDryRun == nil {
		advice = append(advice, "A dry run of the same, made as you, is accepted. If the cause is gone, a call is accepted as soon as Drawbridge tries again.")
	}
	return fmt.Sprintf("The pod's eviction cannot be requested. %s", r.Said(c.namespaceOf(r))), advice, true
}

// refusedWrites notes the refusals that the headline does not tell.
func refusedWrites(c *podCase) []string {
	headline, told := c.unwritten()
	_, run, hook := c.activeHook()
	hook = hook && run != nil && run.Phase == v1alpha1.HookRefused
	var notes []string
	for _, r := range c.refusals {
		if told && r == headline || hook && r.Write == writes.Job {
			continue
		}
		notes = append(notes, r.Said(c.namespaceOf(r))+" It is tried again, at least every five minutes. "+strings.TrimSuffix(r.Remedy(c.namespaceOf(r)), ".")+".")
	}
	return notes
}
