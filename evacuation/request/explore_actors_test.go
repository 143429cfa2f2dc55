package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// parts are what the actors are made of: the product's own functions, unless a
// test puts a broken one in its place to see that the exploration notices.
type parts struct {
	step      func(process.Snapshot, time.Time, process.Policy) process.Decision
	encode    func(*v1alpha1.EvictionRequest, process.Decision, facts)
	turn      func(*v1alpha1.EvictionRequest) bool
	evictStep func(evictor.Input, time.Time, evictor.Policy) evictor.Decision
	// podEvent reports whether the controller is told of an update of the pod.
	podEvent func(before, after *corev1.Pod) bool
	// looksLive, locksVersion and namesUID: before a call the evictor reads the
	// request from the API server; a write fails if the request has changed; an
	// eviction names the pod's UID.
	looksLive, locksVersion, namesUID bool
}

func productParts() parts {
	return parts{
		step: process.Step, encode: encode, turn: evictor.IsTurn, evictStep: evictor.Step,
		podEvent: func(before, after *corev1.Pod) bool {
			return podEvents().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
		},
		looksLive: true, locksVersion: true, namesUID: true,
	}
}

// actors let the controller and the evictor look at a world. What they decide
// depends on little of it, so it is remembered.
type actors struct {
	parts
	custom  int
	looks   map[lookInput]lookResult
	tries   map[tryInput]tryResult
	turns   map[record]bool
	podTold map[[2]podPhase]bool
}

func newActors(p parts, custom int) *actors {
	return &actors{
		parts: p, custom: custom, looks: map[lookInput]lookResult{}, tries: map[tryInput]tryResult{},
		turns: map[record]bool{}, podTold: map[[2]podPhase]bool{},
	}
}

// sight is the part of the engine's memory that a look reads and writes.
type sight struct {
	EndSeen  age
	SeenOf   int8
	SeenBeat age
	SeenAt   age
}

type lookInput struct {
	view        record
	cached, pod podPhase
	started     age
	sight       sight
}

type lookResult struct {
	sight sight
	// write is what it wants to be stored; equal to the view if nothing changes.
	write record
	then  timer
	wrong error
}

// exploredReader finds one pod, or nothing.
type exploredReader struct {
	client.Client
	pod *corev1.Pod
}

func (r exploredReader) Get(_ context.Context, key types.NamespacedName, obj client.Object, _ ...client.GetOption) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok || r.pod == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	*pod = *r.pod
	return nil
}

type exploredResolver []string

func (r exploredResolver) Resolve(*corev1.Pod) ([]string, error) { return r, nil }

// look is the part of Reconcile before its writes.
func (a *actors) look(in lookInput) lookResult {
	if known, ok := a.looks[in]; ok {
		return known
	}
	er := in.view.object()
	r := &Reconciler{
		Client: exploredReader{pod: in.cached.object()}, APIReader: exploredReader{pod: in.pod.object()},
		Resolver: exploredResolver(planOf(a.custom)), Planned: exploredPlan, Policy: explorePolicy(), startedAt: in.started.time(),
	}
	key := client.ObjectKeyFromObject(er)
	seen := sighting{uid: er.UID, endSeenAt: in.sight.EndSeen.time(), heartbeat: in.sight.SeenBeat.time(), heartbeatAt: in.sight.SeenAt.time()}
	if in.sight.SeenOf >= 0 {
		seen.interceptor = planOf(a.custom)[in.sight.SeenOf]
	}
	r.seen.requests = map[types.NamespacedName]sighting{key: seen}

	snapshot, target, err := r.gather(context.Background(), er, exploreEpoch)
	if err != nil {
		panic(err) // The readers of the model do not fail.
	}
	decision := a.step(snapshot, exploreEpoch, explorePolicy())
	out := lookResult{sight: sight{EndSeen: never, SeenOf: -1, SeenBeat: never, SeenAt: never}, write: in.view}
	if s, ok := r.seen.requests[key]; ok {
		out.sight.EndSeen, out.sight.SeenBeat, out.sight.SeenAt = ageOf(s.endSeenAt), ageOf(s.heartbeat), ageOf(s.heartbeatAt)
		for i, name := range planOf(a.custom) {
			if name == s.interceptor {
				out.sight.SeenOf = int8(i)
			}
		}
	}
	if snapshot.Outcome == process.OutcomeRunning && target.pod != nil && decision.Cause != process.TargetGrouped {
		out.write.Labeled = true
	}
	a.encode(er, decision, facts{now: exploreEpoch, foundUID: target.foundUID, deadline: target.deadline})
	out.write = out.write.withStatus(er)
	out.then = ticksUntil(decision.WakeAt)
	out.wrong = errors.Join(a.passedOver(in, out.write), a.deadlineKept(in, out.write))
	a.looks[in] = out
	return out
}

var (
	errTooEarly = errors.New("an interceptor was passed over before its deadline")
	errOutage   = errors.New("an outage of ours counted as an interceptor's silence")
)

// passedOver says what is wrong with how an interceptor lost its turn.
func (a *actors) passedOver(in lookInput, write record) error {
	const deadline, grace = 2, 1 // Ticks of explorePolicy.
	for i := range a.custom {
		item := in.view.Items[i]
		if !in.view.Active.has(i) || !write.Processed.has(i) || item.Done || in.pod.ended() || write.End.canceled() || in.view.overdue() {
			continue
		}
		// A heartbeat from the future is believed for a moment.
		silent := in.view.Activated >= deadline && (item.Beat == nextYear || item.Beat >= deadline)
		switch {
		case !silent:
			return fmt.Errorf("%w: %d, active for %d ticks, heartbeat %d ticks ago", errTooEarly, i, in.view.Activated, item.Beat)
		case in.started < grace:
			return fmt.Errorf("%w: %d", errOutage, i)
		}
	}
	return nil
}

// isTurn is IsTurn of a record.
func (a *actors) isTurn(r record) bool {
	known, ok := a.turns[r]
	if !ok {
		known = r.Made && a.turn(r.object())
		a.turns[r] = known
	}
	return known
}

// tellsPod reports whether the controller hears of this change of the pod.
func (a *actors) tellsPod(before, after podPhase) bool {
	key := [2]podPhase{before, after}
	known, ok := a.podTold[key]
	if !ok {
		was, is := before.object(), after.object()
		// Creations and deletions are always told.
		known = was == nil || is == nil || a.podEvent(was, is)
		a.podTold[key] = known
	}
	return known
}

type tryInput struct {
	pod       podPhase
	activated age
	beat      age
	retries   uint8
	text      wording
	last      lastTry
	woken     bool
}

type tryResult struct {
	action  evictor.Action
	report  bool
	beat    age
	retries uint8
	text    wording
	wake    timer
}

// try is the decision of the evictor.
func (a *actors) try(in tryInput) tryResult {
	if known, ok := a.tries[in]; ok {
		return known
	}
	item := evictor.Report{Retries: int32(in.retries), Message: in.text.message(in.retries), Refusal: in.text.refusal(), HeartbeatAt: in.beat.time()}
	item.StartedAt = item.HeartbeatAt
	d := a.evictStep(evictor.Input{
		Pod:  evictor.PodStateOf(in.pod.object(), exploredUID),
		Item: item, Last: in.last.memory(), ActivatedAt: in.activated.time(), Woken: in.woken,
	}, exploreEpoch, exploreEvictPolicy())
	out := tryResult{action: d.Action, wake: ticksUntil(d.WakeAt)}
	if r := d.Report; r != nil {
		out.report, out.beat, out.retries = true, ageOf(r.HeartbeatAt), uint8(r.Retries)
		out.text = textOf(r, out.retries)
	}
	a.tries[in] = out
	return out
}

// textOf is the inverse of message and refusal.
func textOf(item *evictor.Report, retries uint8) wording {
	for _, t := range []wording{textNone, textTerminating, textBudget, textDeadline} {
		if t.message(retries) == item.Message && equality.Semantic.DeepEqual(t.refusal(), item.Refusal) {
			return t
		}
	}
	panic("the model does not know the message " + item.Message)
}

// tryOf gathers what the evictor looks at.
func tryOf(w *world, view record) tryInput {
	in := tryInput{pod: w.PodCached, activated: view.Activated, last: w.Evictor.Last, woken: w.Evictor.Woken, beat: never}
	if view.Plan > 0 {
		in.beat, in.retries, in.text = view.Items[view.Plan-1].Beat, view.Retries, view.Text
	}
	return in
}
