package chaos

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// cutOff reports whether a deadline has ended, or left out, the turn of an interceptor at
// that time: the request says so, the deadline had come by the clock of whoever said so,
// and a requester had asked for one. (It leaves more than was asked for if that was over, and
// a Hard one always leaves a moment.) No deadline excuses an EvictionBudget, or takes their turns
// from native responders.
func (c *checker) cutOff(request types.UID, name string, at time.Time) bool {
	if v1alpha1.IsUnhurried(name) {
		return false
	}
	asked := func(source string) bool {
		return slices.ContainsFunc(c.requests[request], func(seen RequestSeen) bool {
			return slices.ContainsFunc(seen.Request.Spec.Requesters, func(r v1alpha1.Requester) bool {
				return r.Deadline != nil && source == "requester "+r.Name || r.Type == v1alpha1.RequesterHard && source == "requester "+r.Name+", type Hard"
			})
		})
	}
	for _, seen := range c.requests[request] {
		status := &seen.Request.Status
		said := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCutOff)
		if said == nil || status.Deadline == nil || !slices.Contains(status.ProcessedInterceptors, name) || v1alpha1.ReportOf(seen.Request, name).CompletionTime != nil {
			continue
		}
		return !said.LastTransitionTime.After(at.Add(maxSkew)) && !status.Deadline.After(said.LastTransitionTime.Time) &&
			!status.Deadline.After(at.Add(maxSkew)) && asked(status.DeadlineSource)
	}
	return false
}
