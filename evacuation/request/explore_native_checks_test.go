package request

import (
	"errors"
	"fmt"
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
)

var (
	errEmptyWrite   = errors.New("a write changes nothing")
	errWriteLoop    = errors.New("the native controller does not come to rest")
	errMissedTurn   = errors.New("the pod is evicted before everybody had a turn")
	errTwoTurns     = errors.New("a native responder and an interceptor of ours have a turn at the same time")
	errLateTurn     = errors.New("a native responder got its turn after our last stage had begun")
	errNobodyWants  = errors.New("the pod is evicted although nobody wants that any more")
	errOursSilent   = errors.New("a participant of ours was passed over for its silence")
	errNoConclusion = errors.New("a native request does not say how it ended")
)

// wanted reports whether somebody wants the pod evicted: what stands for somebody else does not
// count.
func (a *nativeActors) wanted(w nativeWorld) bool {
	if w.Ours != 0 {
		er := a.ours.get(w.Ours)
		if !v1alpha1.IsFinished(er) && hasRequesterIn(er, legacyName) {
			return true
		}
	}
	return w.Reqs[0] != 0 && a.wants(w.Reqs[0])
}

func (a *nativeActors) wants(request id) bool {
	r := a.requests.get(request)
	return r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction && truth(r.Status.Conditions, lifecyclev1alpha1.EvictionConditionTargetEvicted) == nil
}

// rests reports whether all controllers have done what they can do for now.
func (a *nativeActors) rests(w nativeWorld) bool {
	return !w.Dirty && w.Pending == 0 && w.Frozen == 0 && w.Wake != 0 &&
		(w.Ours == 0 || a.engine(engineView{ours: w.Ours, cached: w.Pod, pod: w.Pod, started: w.Started}) == w.Ours)
}

// ended reports whether all objects have.
func (a *nativeActors) ended(w nativeWorld) bool {
	return (w.Ours == 0 || v1alpha1.IsFinished(a.ours.get(w.Ours))) && a.runningOf(w.Evs) < 0
}

// goal: the pod is evicted and everything says so, or nobody wants that and nothing goes on.
func (a *nativeActors) goal(w nativeWorld) bool {
	return a.rests(w) && a.ended(w) && (w.Pod.ended() || !a.wanted(w))
}

// quiet reports whether nothing can change any more.
func (a *nativeActors) quiet(w nativeWorld) bool { return a.goal(w) && w.Pod.ended() }

// check says what is wrong with a state.
func (a *nativeActors) check(w nativeWorld) error {
	if err := a.twoTurns(w); err != nil {
		return err
	}
	if !a.quiet(w) {
		return nil
	}
	if i := w.Reqs[0]; i != 0 && !a.pods.mute && (w.Evs[0] != 0 || w.Evs[1] != 0) {
		r := a.requests.get(i)
		evicted := truth(r.Status.Conditions, lifecyclev1alpha1.EvictionConditionTargetEvicted) != nil
		failed := truth(r.Status.Conditions, lifecyclev1alpha1.EvictionConditionFailed) != nil
		if !evicted && !failed {
			return errNoConclusion
		}
	}
	return nil
}

// twoTurns says whether a responder of the pod works beside an interceptor of ours.
func (a *nativeActors) twoTurns(w nativeWorld) error {
	at := a.runningOf(w.Evs)
	if w.Ours == 0 || at < 0 || w.Odd || w.Late || w.Pod.ended() {
		return nil
	}
	er := a.ours.get(w.Ours)
	if v1alpha1.IsFinished(er) || !slices.ContainsFunc(a.pods.customs(), func(name string) bool { return isActiveIn(er, name) }) {
		return nil
	}
	for _, r := range a.pods.named() {
		if stateIn(a.evictions.get(w.Evs[at]), r.Name) == lifecyclev1alpha1.ResponderStateActive {
			return fmt.Errorf("%w: %s and %s", errTwoTurns, r.Name, er.Status.ActiveInterceptors[0])
		}
	}
	return nil
}

// mayEvict says what is wrong with an eviction.
func (a *nativeActors) mayEvict(w nativeWorld) error {
	at := a.runningOf(w.Evs)
	if !a.wanted(w) && (a.rests(w) || at < 0) {
		return errNobodyWants
	}
	if w.Odd || w.Late {
		return nil
	}
	switch {
	case a.pods.responders == 0:
	case at < 0:
		// Its Eviction may have been collected after their turns.
		switch completed := w.Ours != 0 && v1alpha1.ReportOf(a.ours.get(w.Ours), v1alpha1.NativeInterceptor).CompletionTime != nil; {
		case !completed:
			return fmt.Errorf("%w: there is no Eviction", errMissedTurn)
		case slices.ContainsFunc(w.Reqs[:], func(r id) bool { return r != 0 && a.wants(r) }):
			return fmt.Errorf("%w: the next Eviction has not begun", errMissedTurn)
		}
	default:
		e := a.evictions.get(w.Evs[at])
		if state := stateIn(e, lifecyclev1alpha1.EvictionResponderImperativeEviction); state != lifecyclev1alpha1.ResponderStateActive {
			return fmt.Errorf("%w: the native evictor is %q", errMissedTurn, state)
		}
	}
	if a.pods.interceptors > 0 {
		if w.Ours == 0 {
			return fmt.Errorf("%w: there is no request of ours", errMissedTurn)
		}
		er := a.ours.get(w.Ours)
		for _, name := range a.pods.customs() {
			if !slices.Contains(er.Status.ProcessedInterceptors, name) {
				return fmt.Errorf("%w: not %s", errMissedTurn, name)
			}
		}
	}
	return nil
}

// lastStage reports whether all interceptors of ours had their turn.
func (a *nativeActors) lastStage(w nativeWorld) bool {
	if w.Ours == 0 {
		return false
	}
	er := a.ours.get(w.Ours)
	return !v1alpha1.IsFinished(er) && isActiveIn(er, v1alpha1.ImperativeEvictionInterceptor)
}

// wrongTurn says what is wrong with who gets a turn by a move.
func (a *nativeActors) wrongTurn(before, after nativeWorld) error {
	if before.Evs == after.Evs || after.Odd || after.Late || !a.lastStage(before) || a.pods.responders == 0 {
		return nil
	}
	for slot, i := range after.Evs {
		was := before.Evs[slot]
		if i == 0 || was == 0 || i == was || len(a.evictions.get(was).Status.TargetResponders) == 0 {
			continue // A new one begins from the start.
		}
		for _, r := range a.pods.named() {
			if stateIn(a.evictions.get(i), r.Name) == lifecyclev1alpha1.ResponderStateActive && stateIn(a.evictions.get(was), r.Name) != lifecyclev1alpha1.ResponderStateActive {
				return fmt.Errorf("%w: %s", errLateTurn, r.Name)
			}
		}
	}
	return nil
}

// silenced says whether our interceptor for the native responders lost its turn for nothing.
func (a *nativeActors) silenced(before, after id, w nativeWorld) error {
	was, is := a.ours.get(before), a.ours.get(after)
	if w.Odd || w.Late || w.Pod.ended() || v1alpha1.IsFinished(is) || !isActiveIn(was, v1alpha1.NativeInterceptor) ||
		isActiveIn(is, v1alpha1.NativeInterceptor) || v1alpha1.ReportOf(was, v1alpha1.NativeInterceptor).CompletionTime != nil {
		return nil
	}
	return fmt.Errorf("%w: %s", errOursSilent, v1alpha1.NativeInterceptor)
}

// silencedResponder says the same of our responder.
func (a *nativeActors) silencedResponder(before, after nativeWorld) error {
	if after.Odd || after.Late || after.Pod.ended() {
		return nil
	}
	for slot, i := range after.Evs {
		if was := before.Evs[slot]; i != 0 && was != 0 && !isEnded(a.evictions.get(i)) && native.StateOf(a.evictions.get(i), v1alpha1.NativeResponder) == lifecyclev1alpha1.ResponderStateInterrupted &&
			native.StateOf(a.evictions.get(was), v1alpha1.NativeResponder) == lifecyclev1alpha1.ResponderStateActive {
			return fmt.Errorf("%w: %s", errOursSilent, v1alpha1.NativeResponder)
		}
	}
	return nil
}

// settles says whether the native controller, left alone at one time, comes to rest.
func (a *nativeActors) settles(w nativeWorld) error {
	known, ok := a.settled[w.view()]
	if !ok {
		known = a.settling(w)
		a.settled[w.view()] = known
	}
	return known
}

func (a *nativeActors) settling(w nativeWorld) error {
	const rounds = 30
	m := nativeMover{nativeActors: a}
	for range rounds {
		w.OursCached, w.ReqsCached, w.EvsCached, w.PodCached = w.Ours, w.Reqs, w.Evs, w.Pod
		out := a.look(w.view())
		if out.create != 0 {
			if m.slotFor(&w, out.create) < 0 {
				return nil
			}
			continue
		}
		if len(out.ops) == 0 {
			return nil
		}
		for _, o := range out.ops {
			switch o.kind {
			case opRequest:
				if o.status && a.pods.mute {
					return nil // It tries for ever, with a pause.
				}
				set(&w.Reqs[o.slot], o.after, w.Reqs[o.slot] == o.before)
			case opEviction:
				set(&w.Evs[o.slot], o.after, w.Evs[o.slot] == o.before)
			case opOurs:
				set(&w.Ours, o.after, w.Ours == o.before)
			case opJoin:
				w.Ours = m.joinedBy(o, w)
			case opWithdraw:
				w.Ours = a.left(w.Ours, v1alpha1.NativeInterceptor)
			}
		}
		w.EndSeen = out.endSeen
	}
	return errWriteLoop
}
