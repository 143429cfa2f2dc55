package budget

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
)

// grantStatus is what is recorded of a budget: its status, which the leader writes, with the
// grants. They are written with the resourceVersion of what was read or written last, so
// that another leader's grants are never overlooked.
type grantStatus struct {
	// object is the newest known version; it never changes.
	object *v1alpha1.EvictionBudget
	// read: this process has read or written it, and what follows is more than the cache
	// has.
	read      bool
	grants    []v1alpha1.BudgetGrant
	lastGrant time.Time
	// lastLeft is when a pod with a grant last began to leave, as far as this process has
	// seen it.
	lastLeft time.Time

	// since is since when requests wait and none was granted, zero if none waits.
	since time.Time
	// wrote is when the status was written last.
	wrote time.Time
}

// identity is what a record says of a pod.
type identity struct {
	name  string
	owner *v1alpha1.BudgetOwner
	// pods is how many the owner has, if it is not known how many it should have.
	pods int
}

// saw takes over a version from the cache unless this process knows a newer one.
func (s *grantStatus) saw(object *v1alpha1.EvictionBudget) {
	if s.read && s.object != nil && s.object.UID == object.UID {
		if s.object.Generation != object.Generation {
			s.read = false // Its spec is another, and so is its resourceVersion.
		}
		return
	}
	s.set(object)
}

// set takes over a version with what is recorded in it.
func (s *grantStatus) set(object *v1alpha1.EvictionBudget) {
	s.object, s.grants, s.lastGrant = object, object.Status.Grants, time.Time{}
	if at := object.Status.LastGrantTime; at != nil {
		s.lastGrant = at.Time
	}
	for _, g := range s.grants {
		if g.Time.After(s.lastGrant) {
			s.lastGrant = g.Time.Time
		}
	}
}

// recorded makes the records of the grants to keep. Pods are those that may be granted now.
func (s *grantStatus) recorded(keep []grant.Grant, pods map[types.UID]identity) []v1alpha1.BudgetGrant {
	known := map[string]v1alpha1.BudgetGrant{}
	for _, g := range s.grants {
		known[g.PodUID] = g
	}
	var grants []v1alpha1.BudgetGrant
	for _, g := range keep {
		one, ok := known[string(g.Pod)]
		if !ok {
			one = v1alpha1.BudgetGrant{
				PodUID: string(g.Pod), Pod: pods[g.Pod].name, Request: string(g.Request), Group: g.Group, Owner: pods[g.Pod].owner, Pods: *number(pods[g.Pod].pods), Time: metav1.NewMicroTime(g.At),
			}
		}
		one.Request = string(g.Request) // The pod may be wanted again.
		if one.Pod != "" {
			grants = append(grants, one)
		}
	}
	// Those that were skipped may be more than there is room for.
	return grants[max(len(grants)-grant.MaxGrants, 0):]
}

// left notes that a pod with a grant leaves.
func (s *grantStatus) left(at time.Time) {
	if at.After(s.lastLeft) {
		s.lastLeft = at
	}
}
