package request

import (
	"fmt"
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// responders of the pod report in their turn. One that does not is silent.
func (m nativeMover) responders() {
	for slot, i := range m.from.Evs {
		if i == 0 {
			continue
		}
		for n := range m.pods.responders {
			for _, what := range []string{"completes", "sends a heartbeat"} {
				done := m.edit(what, i, n, func() edited { return m.responds(what, m.evictions.get(i), responderName(n)) })
				if done.after != 0 {
					w := m.from
					w.Evs[slot] = done.after
					m.pass(fmt.Sprintf("responder %d %s", n, what), w, false, done.wrong)
				}
			}
		}
	}
}

// responds is the Eviction after a report.
func (m nativeMover) responds(what string, e *lifecyclev1alpha1.Eviction, name string) edited {
	if isEnded(e) || stateIn(e, name) != lifecyclev1alpha1.ResponderStateActive || reportIn(e, name).CompletionTime != nil {
		return edited{}
	}
	now := metav1.NewTime(exploreEpoch)
	after := e.DeepCopy()
	item := itemIn(after, name)
	switch {
	case what == "completes":
		item.CompletionTime = &now
	case item.HeartbeatTime == nil && item.StartTime.Equal(&now), item.HeartbeatTime.Equal(&now):
		return edited{} // It would change nothing.
	default:
		item.HeartbeatTime = &now
	}
	wrong := acceptsEviction(e, after)
	return edited{after: m.evictions.put(after), wrong: wrong}
}

// declined is an Eviction of a full pod in which all responders but the first decline at once.
func (a *nativeActors) declined(of id) id {
	if of == 0 || isEnded(a.evictions.get(of)) {
		return of
	}
	e := a.evictions.get(of)
	for _, r := range a.pods.named()[1:] {
		if stateIn(e, r.Name) != lifecyclev1alpha1.ResponderStateActive || reportIn(e, r.Name).CompletionTime != nil {
			continue
		}
		after := e.DeepCopy()
		itemIn(after, r.Name).CompletionTime = new(metav1.NewTime(exploreEpoch))
		return a.evictions.put(after)
	}
	return of
}

func itemIn(e *lifecyclev1alpha1.Eviction, name string) *lifecyclev1alpha1.ResponderStatus {
	i := slices.IndexFunc(e.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool { return r.Name == name })
	return &e.Status.Responders[i]
}

// interceptors of ours report in their turn.
func (m nativeMover) interceptors() {
	if m.from.Ours == 0 {
		return
	}
	for n, name := range m.pods.customs() {
		for _, what := range []string{"completes", "sends a heartbeat"} {
			done := m.edit("interceptor "+what, m.from.Ours, n, func() edited { return m.intercepts(what, m.ours.get(m.from.Ours), name) })
			if done.after != 0 {
				w := m.from
				w.Ours = done.after
				m.move(fmt.Sprintf("interceptor %d %s", n, what), w)
			}
		}
	}
}

// intercepts is our request after a report.
func (m nativeMover) intercepts(what string, er *v1alpha1.EvictionRequest, name string) edited {
	if v1alpha1.IsFinished(er) || !isActiveIn(er, name) || v1alpha1.ReportOf(er, name).CompletionTime != nil {
		return edited{}
	}
	now := metav1.NewTime(exploreEpoch)
	er = er.DeepCopy()
	item := &er.Status.Interceptors[slices.IndexFunc(er.Status.Interceptors, func(i v1alpha1.InterceptorStatus) bool { return i.Name == name })]
	switch {
	case what == "completes":
		item.CompletionTime = &now
	case item.HeartbeatTime.Equal(&now):
		return edited{}
	default:
		item.HeartbeatTime = &now
		if item.StartTime == nil {
			item.StartTime = &now
		}
	}
	return edited{after: m.ours.put(er)}
}

// requesters of both kinds come and go.
func (m nativeMover) requesters() {
	if m.from.Hard > 0 && m.from.Ours != 0 {
		hard := m.edit("hard", m.from.Ours, 0, func() edited {
			er := m.ours.get(m.from.Ours).DeepCopy()
			at := slices.IndexFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == legacyName })
			if at < 0 || v1alpha1.IsFinished(er) {
				return edited{}
			}
			er.Spec.Requesters[at].Type = v1alpha1.RequesterHard
			er.Generation++
			return edited{after: m.ours.put(er)}
		})
		if w := m.from; hard.after != 0 {
			w.Hard--
			w.Ours = hard.after
			m.move("the requester of ours does not wait", w)
		}
	}
	if m.from.Changes == 0 || m.from.Pod != podRunning {
		return
	}
	joins := m.from
	joins.Changes--
	if joins.Ours = m.joined(joins.Ours, m.fresh(joins), legacyName); joins.Ours != m.from.Ours {
		m.move("a requester of ours joins", joins)
	}
	leaves := m.from
	leaves.Changes--
	if leaves.Ours = m.left(leaves.Ours, legacyName); leaves.Ours != m.from.Ours {
		m.move("a requester of ours leaves", leaves)
	}
	w := m.from
	w.Changes--
	if w.Reqs[0] == 0 {
		w.Reqs[0] = m.edit("ask", 0, 0, func() edited { return edited{after: m.requests.put(userRequest())} }).after
		m.move("somebody asks natively", w)
		return
	}
	w.Reqs[0] = m.edit("change", w.Reqs[0], 0, func() edited {
		r := m.requests.get(w.Reqs[0]).DeepCopy()
		r.Generation++
		if r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction {
			r.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
		} else {
			r.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentEviction
		}
		return edited{after: m.requests.put(r)}
	}).after
	m.move("the native requester changes to "+string(m.requests.get(w.Reqs[0]).Spec.Intent), w)
	w.Reqs[0] = 0
	m.move("the native requester deletes its request", w)
}

// hands delete or edit what is not theirs.
func (m nativeMover) hands() {
	if m.from.Hands == 0 {
		return
	}
	by := m.from
	by.Hands--
	by.Odd = true
	if w := by; w.Ours != 0 {
		w.Ours = 0
		m.move("somebody deletes our request", w)
		if w = by; hasRequesterIn(m.ours.get(w.Ours), v1alpha1.NativeInterceptor) {
			w.Ours = m.left(w.Ours, v1alpha1.NativeInterceptor)
			m.move("somebody takes the native requester out of our request", w)
		}
	}
	for slot, i := range by.Evs {
		if w := by; i != 0 {
			w.Evs[slot] = 0
			m.move(fmt.Sprintf("somebody deletes Eviction %d", slot), w)
			e := m.evictions.get(i).DeepCopy()
			e.Labels, e.OwnerReferences = nil, nil
			w.Evs[slot] = m.evictions.put(e)
			m.move(fmt.Sprintf("somebody takes labels and owners from Eviction %d", slot), w)
		}
	}
	if w := by; w.Reqs[1] != 0 {
		w.Reqs[1] = 0
		m.move("somebody deletes the native request of ours", w)
		r := m.requests.get(by.Reqs[1]).DeepCopy()
		r.Generation++
		r.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
		w.Reqs[1] = m.requests.put(r)
		m.move("somebody withdraws the native request of ours", w)
	}
}

// pod is what becomes of the pod.
func (m nativeMover) pod() {
	w := m.from
	switch {
	case w.Pod == podDeleting:
		w.Pod = podGone
		m.own("the pod is gone", w, nil)
	case w.Ends == 0:
	case w.Pod == podRunning:
		w.Ends--
		w.Pod = podDeleting
		m.move("somebody deletes the pod", w)
		w.Pod = podTerminal
		m.move("the pod ends by itself", w)
	case w.Pod == podTerminal:
		w.Ends--
		w.Pod = podGone
		m.move("the ended pod is deleted", w)
	}
}
