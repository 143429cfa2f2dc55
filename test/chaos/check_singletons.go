package chaos

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// lateness is how much later than decided a deletion may come to the API server: the manager, or the
// API server, may be paused in between.
const lateness = 2 * maxFaultSteps * Step

// checkSingletons judges what the managers have deleted, whether the plan has singletons or not.
func (c *checker) checkSingletons() {
	for _, d := range c.Deletions {
		c.checkDeletion(d)
	}
	c.checkOneAtATime()
}

// checkDeletion judges a deletion as the API server's log has it, also one that was refused.
func (c *checker) checkDeletion(d Deletion) {
	about := "pod " + d.Name + " " + string(d.UID)
	broken := func(format string, args ...any) { c.violatedf(PromiseConsent, about, format, args...) }
	pod := c.podOf(d)
	if pod == nil {
		broken("deleted at %s, and there was no such pod", stamp(d.At))
		return
	}
	w := c.workload(pod)
	if w == nil || w.Kind != Singleton {
		broken("deleted at %s, and nobody consents to that", stamp(d.At))
		return
	}
	if d.UID == "" && d.Code != 0 {
		broken("deleted at %s without the precondition of its UID", stamp(d.At))
	}
	request := c.requestOf(pod.UID, d.At)
	switch turn := c.turn(request, v1alpha1.ImperativeEvictionInterceptor); {
	case turn.IsZero():
		broken("deleted at %s, and it was never the evictor's turn", stamp(d.At))
	case d.At.Before(turn.Add(consentAfter - c.Slack)):
		broken("deleted at %s, and it was the evictor's turn since %s only", stamp(d.At), stamp(turn))
	}
	if c.Plan.Singletons.Windows && c.isClosed(d.At) {
		broken("deleted at %s, and no window was open", stamp(d.At))
	}
	if d.Code/100 == 4 {
		return
	}
	for _, name := range c.Names[w.Name] {
		if why := c.unfinished(w, request, pod.UID, name, d.At, true); why != "" {
			c.violatedf(PromiseDone, about, "deleted at %s, but %s", stamp(d.At), why)
		}
	}
}

// podOf is the pod that a deletion is for; nil if there was none.
func (c *checker) podOf(d Deletion) (pod *corev1.Pod) {
	for _, seen := range c.Pods {
		switch {
		case seen.Pod.Name != d.Name || d.Name == "":
		case d.UID != "" && seen.Pod.UID == d.UID, d.UID == "" && !seen.At.After(d.At.Add(watchLag)):
			pod = seen.Pod
		}
	}
	return pod
}

// isClosed reports whether no window can have been open when a deletion at that time was decided on,
// by any clock.
func (c *checker) isClosed(at time.Time) bool {
	for decided := at.Add(-c.Slack - lateness); !decided.After(at.Add(c.Slack)); decided = decided.Add(grain) {
		if isOpen(decided) {
			return false
		}
	}
	return true
}

// checkOneAtATime wants that whenever the deletion of a singleton was asked for, all others were there
// and ready, in the order of the API server, and that the deletion was on record.
func (c *checker) checkOneAtATime() {
	all, now := int(c.Plan.singletons()), map[types.UID]*corev1.Pod{}
	for _, seen := range c.Pods {
		pod := seen.Pod
		if w := c.workload(pod); w == nil || w.Kind != Singleton {
			continue
		}
		before, known := now[pod.UID]
		begins := known && before.DeletionTimestamp == nil && (seen.Gone || pod.DeletionTimestamp != nil)
		if now[pod.UID] = pod; seen.Gone {
			delete(now, pod.UID)
		}
		// Who evicts a pod that does not run yet asks no budget.
		if _, evicted := admitted(seen); !begins || evicted && !c.isDeleted(pod) {
			continue
		}
		c.Deleted++
		about := "pod " + pod.Name + " " + string(pod.UID)
		if !c.isDeleted(pod) {
			c.violatedf(PromiseConsent, about, "somebody else has deleted it at %s, so the run proves nothing", stamp(seen.At))
		}
		if seen.Gap {
			continue // Nobody knows what there was at the same time.
		}
		ready := 0
		for uid, other := range now {
			if uid != pod.UID && isReady(other) {
				ready++
			}
		}
		if ready < all-1 {
			c.violatedf(PromiseConsent, about, "deleted at %s, and only %d of %d others were ready", stamp(seen.At), ready, all-1)
		}
		if !c.LostThread && !c.isOnRecord(pod.UID, versionOf(pod.ResourceVersion)) {
			c.violatedf(PromiseConsent, about, "deleted at %s, and no EvictionBudget had that on record", stamp(seen.At))
		}
	}
}

// isDeleted reports whether the managers have deleted a pod.
func (c *checker) isDeleted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(c.Deletions, func(d Deletion) bool {
		return d.Code/100 != 4 && (d.UID == pod.UID || d.UID == "" && d.Name == pod.Name)
	})
}

// isOnRecord reports whether an EvictionBudget said before that version that the pod goes in spite of
// its PodDisruptionBudget.
func (c *checker) isOnRecord(pod types.UID, version uint64) bool {
	return slices.ContainsFunc(c.EvictionBudgets, func(seen EvictionBudgetSeen) bool {
		return versionOf(seen.Budget.ResourceVersion) < version && slices.ContainsFunc(seen.Budget.Status.Grants, func(g v1alpha1.BudgetGrant) bool {
			return g.PodUID == string(pod) && g.DisruptionBudget != ""
		})
	})
}
