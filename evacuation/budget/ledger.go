package budget

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/pace"
)

// ledger is what is recorded of a budget: its status, which the leader writes, with the
// grants. They are written with the resourceVersion of what was read or written last, so
// that another leader's grants are never overlooked.
type ledger struct {
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
func (l *ledger) saw(object *v1alpha1.EvictionBudget) {
	if l.read && l.object != nil && l.object.UID == object.UID {
		if l.object.Generation != object.Generation {
			l.read = false // Its spec is another, and so is its resourceVersion.
		}
		return
	}
	l.set(object)
}

// set takes over a version with what is recorded in it.
func (l *ledger) set(object *v1alpha1.EvictionBudget) {
	l.object, l.grants, l.lastGrant = object, object.Status.Grants, time.Time{}
	if at := object.Status.LastGrantTime; at != nil {
		l.lastGrant = at.Time
	}
	for _, g := range l.grants {
		if g.Time.After(l.lastGrant) {
			l.lastGrant = g.Time.Time
		}
	}
}

// recorded makes the records of the grants to keep. Pods are those that may be granted now.
func (l *ledger) recorded(keep []pace.Grant, pods map[types.UID]identity) []v1alpha1.BudgetGrant {
	known := map[string]v1alpha1.BudgetGrant{}
	for _, g := range l.grants {
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
		if one.Pod != "" {
			grants = append(grants, one)
		}
	}
	// Those that were skipped may be more than there is room for.
	return grants[max(len(grants)-pace.MaxGrants, 0):]
}

// left notes that a pod with a grant leaves.
func (l *ledger) left(at time.Time) {
	if at.After(l.lastLeft) {
		l.lastLeft = at
	}
}
