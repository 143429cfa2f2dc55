package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// zoneLoss is a pod of a zone that was ready and is not any more.
type zoneLoss struct {
	pod *corev1.Pod
	at  time.Time
	// evicted: it went because the budget let it. Nobody could ask the budget about all
	// others: who deletes does not, nor does who passes an outage.
	evicted bool
	// granted is when the pod went, or when the grant was seen if that was before.
	granted time.Time
	judged  bool
}

// zones counts the ready pods of each zone in the order in which it happened.
type zones struct {
	*checker
	ready  map[types.UID]string
	losses map[string][]*zoneLoss // Since the zone was complete.
}

// staleness is how old what the manager knows may be when it grants: it may be paused just
// before it writes that, after the API server was, so that nothing was heard of pods.
const staleness = 2*maxFaultSteps*Step + 4*time.Second

// checkZones looks for two zones that are disrupted at a time, of which the budget has
// disrupted one while the other one was.
func (c *checker) checkZones() {
	if c.Plan.Rollout == nil {
		return
	}
	z := &zones{checker: c, ready: map[types.UID]string{}, losses: map[string][]*zoneLoss{}}
	now := map[types.UID]PodSeen{}
	for i, seen := range c.Pods {
		if w := c.workload(seen.Pod); w != nil && w.Zone != "" {
			z.note(w, seen, now[seen.Pod.UID])
			now[seen.Pod.UID] = seen
		}
		// What comes to light after a gap has no order: it is a state as a whole.
		if !seen.Gap || i+1 == len(c.Pods) || !c.Pods[i+1].Gap {
			z.judge()
		}
	}
}

// note counts a pod as ready or lost.
func (z *zones) note(w *Workload, seen, before PodSeen) {
	pod := seen.Pod
	_, was := z.ready[pod.UID]
	switch is := !seen.Gone && isReady(pod); {
	case is:
		z.ready[pod.UID] = w.Zone
	case was:
		delete(z.ready, pod.UID)
		z.losses[w.Zone] = append(z.losses[w.Zone], z.loss(seen, before))
	}
}

// loss finds out why a pod was lost.
func (z *zones) loss(seen, before PodSeen) *zoneLoss {
	at, evicted := admitted(seen)
	if !evicted && seen.Gone && seen.Gap {
		at, evicted = z.missed(before, seen)
	}
	l := &zoneLoss{pod: seen.Pod, at: seen.At, granted: seen.At}
	if !evicted {
		return l
	}
	z.Zoned++
	granted := z.grantOf(seen.Pod.UID)
	known := !granted.IsZero() && !granted.After(seen.At)
	if known {
		l.granted = granted
	}
	guarded := before.Pod != nil && before.Pod.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed
	passed := z.Plan.Mode.Ignores() && !guarded && z.away(at) && !known
	if passed || z.strayed(seen.Pod) || z.starting(seen.Pod) || z.silent(seen.Pod.UID, v1alpha1.BudgetInterceptor, at) {
		z.Unasked++
		return l
	}
	l.evicted = true
	return l
}

// grantOf is when the grant of a pod was first seen; zero if never. It is what the product
// says of itself, and only ever an excuse.
func (z *zones) grantOf(pod types.UID) time.Time {
	for _, seen := range z.EvictionBudgets {
		for _, g := range seen.Budget.Status.Grants {
			if g.PodUID == string(pod) {
				return seen.At
			}
		}
	}
	return time.Time{}
}

// judge looks at what is disrupted now. Each loss is judged once.
func (z *zones) judge() {
	ready := map[string]int32{}
	for _, zone := range z.ready {
		ready[zone]++
	}
	for i := range z.Plan.Workloads {
		if w := &z.Plan.Workloads[i]; w.Zone != "" && ready[w.Zone] >= w.Replicas {
			delete(z.losses, w.Zone)
		}
	}
	for _, zone := range zoneNames {
		for _, l := range z.losses[zone] {
			if l.evicted && !l.judged {
				if others := z.disrupted(zone, l); len(others) > 0 {
					z.violatedf(PromiseZones, "pod "+l.pod.Name+" "+string(l.pod.UID), "evicted at %s from zone %s, while %s", stamp(l.at), zone, strings.Join(others, " and "))
				}
			}
			l.judged = true
		}
	}
}

// disrupted are the other zones that the budget must have known to be disrupted when it let
// a pod go: by another grant of its own, or for long.
func (z *zones) disrupted(but string, l *zoneLoss) (others []string) {
	for _, zone := range zoneNames {
		if zone == but {
			continue
		}
		i := slices.IndexFunc(z.losses[zone], func(o *zoneLoss) bool { return o.evicted || l.granted.Sub(o.at) > staleness })
		if i < 0 {
			continue
		}
		o, how := z.losses[zone][i], "went otherwise"
		if o.evicted {
			how = "was evicted"
		}
		others = append(others, fmt.Sprintf("zone %s lacks %s, which %s at %s", zone, o.pod.Name, how, stamp(o.at)))
	}
	return others
}
