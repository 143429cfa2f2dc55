package request

import (
	"context"
	"fmt"
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
)

// engine is our request after its controller has acted on it.
func (a *nativeActors) engine(in engineView) id {
	known, ok := a.engines[in]
	if ok {
		return known
	}
	er := a.ours.get(in.ours).DeepCopy()
	policy := nativeEnginePolicy()
	r := &Reconciler{
		Client: exploredReader{pod: in.cached.object()}, APIReader: exploredReader{pod: in.pod.object()},
		Resolver: a.pods.names(), Planned: func(name string) v1alpha1.Interceptor { return v1alpha1.Interceptor{Name: name} },
		Policy: policy, startedAt: in.started.time(),
	}
	snapshot, target, err := r.gather(context.Background(), er, exploreEpoch)
	if err != nil {
		panic(err) // The readers of the model do not fail.
	}
	encode(er, a.step(snapshot, exploreEpoch, policy), facts{now: exploreEpoch, foundUID: target.foundUID, deadline: target.deadline})
	known = a.ours.put(er)
	a.engines[in] = known
	return known
}

// isTurn is the evictor's rule for our request and a running Eviction; 0 is none.
func (a *nativeActors) isTurn(in turnView) bool {
	known, ok := a.turns[in]
	if !ok {
		var er *v1alpha1.EvictionRequest
		var e *lifecyclev1alpha1.Eviction
		if in.ours != 0 {
			er = a.ours.get(in.ours)
		}
		if in.ev != 0 {
			e = a.evictions.get(in.ev)
		}
		known = (er != nil || e != nil) && a.turn(er, e, in.awaited)
		a.turns[in] = known
	}
	return known
}

// awaited is the evictor's rule for our request where no Eviction runs.
func (a *nativeActors) awaited(in turnView, requests [2]id) turnView {
	if in.ours != 0 && in.ev == 0 {
		in.awaited = native.Awaits(a.ours.get(in.ours), present(a.requests, requests))
	}
	return in
}

// runningOf is the slot of the Eviction that View.Running finds, -1 if there is none.
func (a *nativeActors) runningOf(evs [2]id) int {
	found := -1
	for slot, i := range evs {
		if i == 0 || isEnded(a.evictions.get(i)) {
			continue
		}
		if e := a.evictions.get(i); found < 0 || e.CreationTimestamp.Before(&a.evictions.get(evs[found]).CreationTimestamp) {
			found = slot
		}
	}
	return found
}

// joined is our request after Requester.Join of this name; fresh numbers the UID of a new one.
func (a *nativeActors) joined(ours id, fresh int, name string) id {
	return a.edit("join "+name, ours, fresh, func() edited {
		created := func() edited { return edited{after: a.ours.put(ourRequest(freshUID(fresh), name))} }
		if ours == 0 {
			return created()
		}
		er := a.ours.get(ours)
		switch {
		case isEvictedIn(er), isRefusedIn(er), hasRequesterIn(er, name) && !v1alpha1.IsFinished(er):
			return edited{after: ours}
		case v1alpha1.IsFinished(er), v1alpha1.IsUnwanted(er):
			return created()
		}
		er = er.DeepCopy()
		er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: name})
		er.Generation++
		return edited{after: a.ours.put(er)}
	}).after
}

// joinedBy is our request after a write that joins it: after Requester.JoinRunning if one ran when
// that was decided.
func (m nativeMover) joinedBy(o op, w nativeWorld) id {
	if o.before != 0 && (w.Ours == 0 || m.ours.get(w.Ours).UID != m.ours.get(o.before).UID ||
		v1alpha1.IsFinished(m.ours.get(w.Ours)) || v1alpha1.IsUnwanted(m.ours.get(w.Ours))) {
		return w.Ours
	}
	return m.joined(w.Ours, m.fresh(w), v1alpha1.NativeInterceptor)
}

// left is our request after Requester.Withdraw of this name.
func (a *nativeActors) left(ours id, name string) id {
	return a.edit("leave "+name, ours, 0, func() edited {
		if ours == 0 || v1alpha1.IsFinished(a.ours.get(ours)) || !hasRequesterIn(a.ours.get(ours), name) {
			return edited{after: ours}
		}
		er := a.ours.get(ours).DeepCopy()
		er.Spec.Requesters = slices.DeleteFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == name })
		er.Generation++
		return edited{after: a.ours.put(er)}
	}).after
}

func freshUID(n int) types.UID { return types.UID(fmt.Sprintf("er-%d", n)) }

func endedBy(er *v1alpha1.EvictionRequest, condition, reason string) bool {
	return slices.ContainsFunc(er.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == condition && c.Status == metav1.ConditionTrue && (reason == "" || c.Reason == reason)
	})
}

func isEvictedIn(er *v1alpha1.EvictionRequest) bool {
	return endedBy(er, v1alpha1.ConditionEvicted, "")
}

func isRefusedIn(er *v1alpha1.EvictionRequest) bool {
	return endedBy(er, v1alpha1.ConditionCanceled, v1alpha1.ReasonValidationFailed)
}
