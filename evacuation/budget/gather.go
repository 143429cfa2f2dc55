package budget

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
)

// gather makes the input of a decision from memory. Blocked says which condition of a
// budget is not true, and over are the requests that want no eviction any more. The caller
// holds the lock of the state.
func (s *space) gather(entries []*entry, waiting []*request, blocked map[string]string, over map[types.UID]bool, owners *owners, now time.Time) grant.Input {
	in := grant.Input{Now: now}
	for _, r := range waiting {
		in.Requests = append(in.Requests, grant.Request{UID: r.uid, Pod: r.pod, Created: r.created, Name: r.key.Name})
	}
	going := map[types.UID]*request{}
	for _, r := range s.requests {
		if r.goes() {
			going[r.pod] = r
		}
	}
	for _, e := range entries {
		in.Budgets = append(in.Budgets, e.gather(blocked[e.key.Name], going, over, owners, now))
	}
	return in
}

// gather makes the input about one budget.
func (e *entry) gather(blocked string, going map[types.UID]*request, over map[types.UID]bool, owners *owners, now time.Time) grant.Budget {
	b := grant.Budget{
		Name: e.key.Name, Rules: e.rules, Blocked: blocked, LastGrant: e.lastGrant,
		Pods: make([]grant.Pod, 0, len(e.members)), Expected: map[types.UID]int{},
	}
	for uid, m := range e.members {
		p := grant.Pod{UID: uid, Owner: owners.of(m.pod, b.Expected), Created: m.pod.CreationTimestamp.Time, Group: m.group, Placed: m.placed}
		if since := readyOf(m.pod); !since.IsZero() {
			p.Ready, p.ReadySince = true, since
		}
		if d := m.pod.DeletionTimestamp; d != nil {
			p.Leaving, p.LeavingSince = true, d.Time
		}
		b.Pods = append(b.Pods, p)
	}
	granted := map[types.UID]bool{}
	for _, g := range e.grants {
		pod, request := types.UID(g.PodUID), types.UID(g.Request)
		if r := going[pod]; r != nil {
			request = r.uid // It is wanted again.
		}
		granted[pod] = true
		one := grant.Grant{Pod: pod, Request: request, Group: g.Group, At: g.Time.Time, Over: over[request], UntilReady: g.DisruptionBudget != ""}
		if g.Owner != nil {
			one.Owner = owners.ofRef(e.key.Namespace, *g.Owner, b.Expected)
			if f := owners.found[g.Owner.UID]; !f.known && g.Pods > 0 {
				b.Expected[one.Owner] = max(b.Expected[one.Owner], int(g.Pods))
			}
		}
		b.Grants = append(b.Grants, one)
	}
	// Those that were skipped, for example: nobody granted them, and they go all the same.
	for pod, r := range going {
		if m := e.members[pod]; m != nil && !granted[pod] {
			group := m.group
			if !m.placed {
				group = grant.UnknownGroup
			}
			b.Grants = append(b.Grants, grant.Grant{Pod: pod, Request: r.uid, Owner: owners.of(m.pod, b.Expected), Group: group, At: now})
		}
	}
	e.noteLeft(granted)
	b.LastLeft = e.lastLeft
	e.gone = slices.DeleteFunc(e.gone, func(g gonePod) bool { return granted[g.uid] })
	e.decided = len(e.gone)
	for i := range e.gone {
		g := &e.gone[i]
		g.decidedAs = grant.Gone{Owner: owners.of(g.member.pod, b.Expected), Created: g.member.pod.CreationTimestamp.Time, Group: g.member.group, At: g.at}
		b.Gone = append(b.Gone, g.decidedAs)
	}
	return b
}

// noteLeft notes when the pods with a grant that leave, or are gone, began to.
func (e *entry) noteLeft(granted map[types.UID]bool) {
	for uid := range granted {
		if m := e.members[uid]; m != nil {
			e.left(m.left)
		}
	}
	for _, g := range e.gone {
		switch {
		case !granted[g.uid]:
		case !g.member.left.IsZero():
			e.left(g.member.left)
		default:
			e.left(g.at) // It was gone at once.
		}
	}
}

// leavesSince is when a pod was deleted, or up to a second later: the API server keeps whole
// seconds.
func leavesSince(pod *corev1.Pod) time.Time {
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	return pod.DeletionTimestamp.Add(time.Second - grace)
}
