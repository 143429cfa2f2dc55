package budget

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
)

// space is the namespace, nil if it never had a budget.
func (st *state) space(namespace string) *space {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.spaces[namespace]
}

// component are the budgets that are decided together, in the order of their names, and
// their requests that wait; none if there is no such budget.
func (st *state) component(s *space, name string) (entries []*entry, waiting []*request) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.budgets[name] == nil {
		return nil, nil
	}
	names, waiting := s.component(name)
	for _, name := range names {
		entries = append(entries, s.budgets[name])
	}
	return entries, waiting
}

// gather makes the input, with what is recorded of the pods.
func (st *state) gather(s *space, entries []*entry, waiting []*request, blocked map[string]string, over map[types.UID]bool, o *owners, now time.Time) (in grant.Input, pods map[types.UID]identity) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, e := range entries {
		st.regroup(e)
	}
	in = s.gather(entries, waiting, blocked, over, o, now)
	// Those that may be granted.
	pods = map[types.UID]identity{}
	counted := map[string]int{}
	for _, r := range s.requests {
		if pod := s.pods[r.pod]; pod != nil {
			owner, unknown := o.owner(pod)
			one := identity{name: pod.Name, owner: owner}
			if unknown {
				if _, ok := counted[owner.UID]; !ok {
					counted[owner.UID] = s.podsOf(owner.UID)
				}
				one.pods = counted[owner.UID]
			}
			pods[r.pod] = one
		}
	}
	return in, pods
}

// podsOf is how many pods an owner has, without those that leave.
func (s *space) podsOf(owner string) (n int) {
	for _, pod := range s.pods {
		if c := metav1.GetControllerOfNoCopy(pod); c != nil && string(c.UID) == owner && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// unseen are the grants of pods that stay, as far as known, and whose requests are not known.
func (st *state) unseen(s *space, entries []*entry) (grants []v1alpha1.BudgetGrant) {
	st.mu.Lock()
	defer st.mu.Unlock()
	maps.DeleteFunc(s.ended, func(request string, _ time.Time) bool { return !s.isRecorded(request) })
	for _, e := range entries {
		for _, g := range e.grants {
			m := e.members[types.UID(g.PodUID)]
			if m != nil && m.pod.DeletionTimestamp == nil && s.requests[types.UID(g.Request)] == nil {
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// isRecorded reports whether a budget of the namespace has a grant of a request.
func (s *space) isRecorded(request string) bool {
	for _, e := range s.budgets {
		if slices.ContainsFunc(e.grants, func(g v1alpha1.BudgetGrant) bool { return g.Request == request }) {
			return true
		}
	}
	return false
}

// isRead reports whether this process has read or written what is recorded of a budget.
func (st *state) isRead(e *entry) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return e.read
}

// described reports whether its status is that of its spec, and nobody may wait for a change of
// it: the next pod that goes in spite of a PodDisruptionBudget waits for the record of the last.
func (st *state) described(e *entry) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return e.read && e.object.Status.ObservedGeneration == e.generation && exhausting(e.grants) == 0
}

// took takes over what was read from the API server.
func (st *state) took(e *entry, object *v1alpha1.EvictionBudget) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e.set(object)
	e.read = true
}

// lost forgets what was read, after a write of which nobody knows whether it was stored.
func (st *state) lost(e *entry) {
	st.mu.Lock()
	defer st.mu.Unlock()
	e.read = false
}

// kept notes what was decided, and the object if it was written.
func (st *state) kept(e *entry, object *v1alpha1.EvictionBudget, grants []v1alpha1.BudgetGrant, state grant.State) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if object != nil {
		e.object = object
	}
	e.grants, e.lastGrant = grants, state.LastGrant
	e.keepGone(state.Gone)
}

// covering are the budgets of a pod, by name.
func (st *state) covering(s *space, pod types.UID) []*entry {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(s.covering[pod])
}

// keepGone drops the pods whose places have been filled. Those that have left since the
// decision stay.
func (e *entry) keepGone(keep []grant.Gone) {
	kept := map[grant.Gone]int{}
	for _, g := range keep {
		kept[g]++
	}
	var gone []gonePod
	for _, g := range e.gone[:min(e.decided, len(e.gone))] {
		if key := g.decidedAs; kept[key] > 0 {
			kept[key]--
			gone = append(gone, g)
		}
	}
	e.gone = append(gone, e.gone[min(e.decided, len(e.gone)):]...)
	e.decided = 0
}

// grantedBy are the budgets that have a record of a grant.
func (st *state) grantedBy(s *space, pod types.UID) (names []string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, name := range s.of(pod) {
		for _, g := range s.budgets[name].grants {
			if g.PodUID == string(pod) {
				names = append(names, name)
			}
		}
	}
	return names
}

// tellGranted notes the answer for a request, and returns it with the group of its pod; nil
// if it is gone, or was told before.
func (st *state) tellGranted(s *space, g grant.Granted, message string) (told *request, group string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	r := s.requests[g.Request]
	if r == nil || r.answer.granted {
		return nil, ""
	}
	r.answer = answer{granted: true, message: message}
	for _, e := range s.covering[g.Pod] {
		if group == "" {
			group = e.members[g.Pod].group
		}
	}
	return r, group
}

// tellWaits notes the answer for a request that waits, and wakes it if that is another one.
func (st *state) tellWaits(s *space, w grant.Wait) {
	st.mu.Lock()
	r := s.requests[w.Request]
	now := answer{message: w.Message, until: w.Until}
	if r == nil || r.answer == now {
		st.mu.Unlock()
		return
	}
	r.answer = now
	key := r.key
	st.mu.Unlock()
	st.wake(key)
}

// budgetsOf are all budgets of a namespace.
func (st *state) budgetsOf(namespace string) (requests []reconcile.Request) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if s := st.spaces[namespace]; s != nil {
		for _, e := range s.budgets {
			requests = append(requests, reconcile.Request{NamespacedName: e.key})
		}
	}
	return requests
}
