package request

import (
	"fmt"
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
)

// evicts lets the evictor act.
func (m nativeMover) evicts() {
	w := m.from
	cached := m.runningOf(w.EvsCached)
	seen := turnView{ours: w.OursCached}
	live := turnView{ours: w.Ours}
	if cached >= 0 {
		seen.ev = w.EvsCached[cached]
		if i := w.Evs[cached]; i != 0 && !isEnded(m.evictions.get(i)) {
			live.ev = i
		}
		if w.OursCached != 0 && v1alpha1.IsFinished(m.ours.get(w.OursCached)) {
			seen.ours = 0
		}
	}
	if live.ev != 0 && w.Ours != 0 && v1alpha1.IsFinished(m.ours.get(w.Ours)) {
		live.ours = 0
	}
	if seen.ev != 0 && w.Pod.ended() {
		m.completes(w, cached)
		return
	}
	if w.PodCached != podRunning || !m.isTurn(m.awaited(seen, w.ReqsCached)) || !m.isTurn(m.awaited(live, w.ReqsCached)) {
		return
	}
	wrong := m.mayEvict(w)
	if w.Pod == podRunning {
		w.Pod = podDeleting
	}
	m.own("the evictor evicts the pod", w, wrong)
}

// completes says for the evictor that the pod has ended.
func (m nativeMover) completes(w nativeWorld, slot int) {
	e := m.evictions.get(w.EvsCached[slot])
	name := lifecyclev1alpha1.EvictionResponderImperativeEviction
	if w.EvsCached[slot] != w.Evs[slot] || stateIn(e, name) != lifecyclev1alpha1.ResponderStateActive || reportIn(e, name).CompletionTime != nil {
		return
	}
	done := m.edit("complete", w.Evs[slot], 0, func() edited {
		after := reported(e, name, native.ResponderReport{CompletedAt: exploreEpoch, Message: "The pod is gone."})
		itemIn(after, name).HeartbeatTime = reportIn(e, name).HeartbeatTime
		wrong := acceptsEviction(e, after)
		return edited{after: m.evictions.put(after), wrong: wrong}
	})
	w.Evs[slot] = done.after
	m.own("the evictor completes", w, done.wrong)
}

// collect is the garbage collector.
func (m nativeMover) collect() {
	alive := func(w nativeWorld, o metav1.OwnerReference) bool {
		if w.Ours != 0 && m.ours.get(w.Ours).UID == o.UID {
			return true
		}
		return slices.ContainsFunc(present(m.requests, w.Reqs), func(r *lifecyclev1alpha1.EvictionRequest) bool { return r.UID == o.UID })
	}
	orphaned := func(owners []metav1.OwnerReference) bool {
		return len(owners) > 0 && !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return alive(m.from, o) })
	}
	if w := m.from; w.Reqs[1] != 0 && orphaned(m.requests.get(w.Reqs[1]).OwnerReferences) {
		w.Reqs[1] = 0
		m.own("the garbage collector takes the native request along", w, nil)
	}
	for slot, i := range m.from.Evs {
		if w := m.from; i != 0 && orphaned(m.evictions.get(i).OwnerReferences) {
			w.Evs[slot] = 0
			m.own(fmt.Sprintf("the garbage collector takes Eviction %d along", slot), w, nil)
		}
	}
}

// lag lets a cache fall behind, and all catch up.
func (m nativeMover) lag() {
	if w := m.from; w.Frozen != 0 {
		w.Frozen = 0
		m.own("the caches catch up", w, nil)
	}
	if m.from.Lags == 0 {
		return
	}
	for kind := range lagKinds {
		if w := m.from; !w.Frozen.has(kind) {
			w.Lags--
			w.Frozen = w.Frozen.with(kind)
			m.move(fmt.Sprintf("cache %d falls behind", kind), w)
		}
	}
}

// kill ends the process, between any two writes.
func (m nativeMover) kill() {
	if w := m.from; w.Kills > 0 {
		w.Kills--
		w.Frozen, w.Pending, w.Then, w.Joined, w.Failed = 0, 0, never, false, false
		w.Dirty, w.Wake, w.EndSeen, w.Started = true, never, never, 0
		m.move("the manager is killed", w)
	}
}

// time lets a tick pass. As long as our controllers have something to do it does not, unless
// they are slow.
func (m nativeMover) time(busy bool) {
	w := m.from
	if busy {
		if w.Slow == 0 {
			return
		}
		w.Slow--
	}
	w.Late = w.Late || busy || w.Frozen != 0
	if w.Pending != 0 { // A reconcile has half a minute.
		w.Pending, w.Then, w.Dirty, w.Failed = 0, never, true, false
	}
	for _, i := range []*id{&w.Ours, &w.OursCached} {
		*i = m.ours.age(*i)
	}
	for _, set := range []*[2]id{&w.Reqs, &w.ReqsCached} {
		set[0], set[1] = m.requests.age(set[0]), m.requests.age(set[1])
	}
	for _, set := range []*[2]id{&w.Evs, &w.EvsCached} {
		set[0], set[1] = m.evictions.age(set[0]), m.evictions.age(set[1])
	}
	w.Started, w.EndSeen, w.Joined = w.Started.older(1), w.EndSeen.older(1), false
	if w.Wake != never {
		w.Wake = max(w.Wake-1, 0)
	}
	m.own("a tick passes", w, nil)
}
