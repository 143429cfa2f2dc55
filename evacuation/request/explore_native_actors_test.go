package request

import (
	"fmt"
	"slices"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
)

// nativeParts are the product's own functions, unless a test puts a broken one in place.
type nativeParts struct {
	decide func(native.Situation) native.Decision
	turn   func(er *v1alpha1.EvictionRequest, e *lifecyclev1alpha1.Eviction, awaited bool) bool
	step   func(process.Snapshot, time.Time, process.Policy) process.Decision
	// locksVersion: a write fails if the object has changed.
	locksVersion bool
}

func productNativeParts() nativeParts {
	return nativeParts{decide: native.Decide, turn: evictor.IsTurnOf, step: process.Step, locksVersion: true}
}

// opKind is what one write writes.
type opKind uint8

const (
	opRequest  opKind = iota // A native request: its spec or its status.
	opEviction               // An Eviction, one part of it. Without an object after it, it is deleted.
	opOurs                   // A report in our request.
	opJoin
	opWithdraw
)

// op is one write. It is refused unless the object is still the one before.
type op struct {
	kind opKind
	slot int8
	// loose: if it fails, the next one is tried nevertheless. status: it is that of a native
	// request.
	loose, status bool
	before, after id
}

// nativeView is what the native controller decides on.
type nativeView struct {
	ours       id
	reqs, evs  [2]id
	cached     podPhase
	pod        podPhase
	started    age
	endSeen    age
	hasCreated bool
}

type nativeLook struct {
	ops     []op
	create  id
	then    timer
	endSeen age
	wrong   error
}

type engineView struct {
	ours        id
	cached, pod podPhase
	started     age
}

type turnView struct {
	ours, ev id
	awaited  bool
}

// nativeActors let our controllers act.
type nativeActors struct {
	nativeParts
	pods      podOf
	ours      *shelf[*v1alpha1.EvictionRequest]
	requests  *shelf[*lifecyclev1alpha1.EvictionRequest]
	evictions *shelf[*lifecyclev1alpha1.Eviction]
	plans     [][]op
	planIDs   map[string]id
	looks     map[nativeView]nativeLook
	engines   map[engineView]id
	turns     map[turnView]bool
	settled   map[nativeView]error
	edits     map[edit]edited
}

// podOf is who takes part in the eviction of the pod.
type podOf struct {
	// responders of the pod itself, and interceptors of ours. full: the pod has ten responders,
	// and all but the first have nothing to do and say so at once.
	responders, interceptors int
	full                     bool
	// mute: the API server refuses every status of a native request.
	mute bool
}

func (p podOf) named() []lifecyclev1alpha1.TargetResponder {
	n := p.responders
	if p.full {
		n = v1alpha1.MaxNativeResponders
	}
	var responders []lifecyclev1alpha1.TargetResponder
	for i := range n {
		responders = append(responders, lifecyclev1alpha1.TargetResponder{Name: responderName(i), Priority: new(int32(2000 - i))})
	}
	return responders
}

func (p podOf) customs() []string { return planOf(p.interceptors)[:p.interceptors] }

// names are what the resolver says.
func (p podOf) names() exploredResolver {
	switch {
	case p.responders == 0:
		return p.customs()
	case p.full:
		return append(p.customs(), v1alpha1.NativeInterceptor)
	default:
		return append([]string{v1alpha1.NativeInterceptor}, p.customs()...)
	}
}

func newNativeActors(parts nativeParts, pod podOf) *nativeActors {
	a := &nativeActors{
		nativeParts: parts, pods: pod,
		ours:      newShelf(plainOurs, oursLater),
		requests:  newShelf(plainRequest, requestLater),
		evictions: newShelf(plainEviction, evictionLater),
		plans:     make([][]op, 1), planIDs: map[string]id{},
		looks: map[nativeView]nativeLook{}, engines: map[engineView]id{}, turns: map[turnView]bool{}, settled: map[nativeView]error{}, edits: map[edit]edited{},
	}
	return a
}

func (a *nativeActors) plan(ops []op) id {
	if len(ops) == 0 {
		return 0
	}
	key := fmt.Sprint(ops)
	known, ok := a.planIDs[key]
	if !ok {
		known = id(len(a.plans))
		a.planIDs[key] = known
		a.plans = append(a.plans, ops)
	}
	return known
}

// edit is what somebody does with an object, edited what comes of it: its new number, 0 if
// nothing is done, and why the API server refuses it.
type edit struct {
	what string
	of   id
	n    int
}

type edited struct {
	after id
	wrong error
}

// edit remembers what comes of an edit.
func (a *nativeActors) edit(what string, of id, n int, do func() edited) edited {
	key := edit{what: what, of: of, n: n}
	known, ok := a.edits[key]
	if !ok {
		known = do()
		a.edits[key] = known
	}
	return known
}

// present are the objects of these numbers.
func present[T any](s *shelf[T], ids [2]id) (found []T) {
	for _, i := range ids {
		if i != 0 {
			found = append(found, s.get(i))
		}
	}
	return found
}

// concernsNative is the rule of gather.
func concernsNative(er *v1alpha1.EvictionRequest) bool {
	return slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name == v1alpha1.NativeInterceptor }) ||
		hasRequesterIn(er, v1alpha1.NativeInterceptor)
}

func hasRequesterIn(er *v1alpha1.EvictionRequest, name string) bool {
	return slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == name })
}

// situation is what the native controller gathers; false if there is nothing native.
func (a *nativeActors) situation(in nativeView) (native.Situation, bool) {
	s := native.Situation{
		Now: exploreEpoch, Namespace: "shop", UID: exploredUID, PodName: exploredPod, InCharge: true, Priority: v1alpha1.DefaultNativePriority,
		StartedAt: in.started.time(), Policy: nativePolicy(),
		Requests: present(a.requests, in.reqs), Evictions: present(a.evictions, in.evs),
	}
	if in.ours != 0 {
		s.Ours = a.ours.get(in.ours)
	}
	if len(s.Requests) == 0 && len(s.Evictions) == 0 && (s.Ours == nil || !concernsNative(s.Ours)) {
		return s, false
	}
	phase, gone := in.cached, false
	for _, e := range s.Evictions {
		s.Taken = append(s.Taken, e.Name)
		gone = gone || truth(e.Status.Conditions, lifecyclev1alpha1.EvictionConditionTargetEvicted) != nil
	}
	if gone || phase == podUnseen || phase == podGone {
		phase = in.pod // Absence is looked at live.
	}
	if phase == podGone {
		s.Target.Presence = process.Gone
	} else {
		s.Target = process.Target{Presence: process.Present, Terminal: phase == podTerminal, Deleting: phase == podDeleting}
		s.FoundUID, s.Responders, s.Interceptors = exploredUID, a.pods.named(), a.pods.customs()
	}
	if phase.ended() {
		s.Target.EndSeenAt = in.endSeen.time()
		if in.endSeen == never {
			s.Target.EndSeenAt = exploreEpoch
		}
	}
	return s, true
}

// look lets the native controller decide, and lists its writes in the order of apply.
func (a *nativeActors) look(in nativeView) nativeLook {
	if known, ok := a.looks[in]; ok {
		return known
	}
	s, something := a.situation(in)
	out := nativeLook{then: never, endSeen: never}
	if something {
		if !s.Target.EndSeenAt.IsZero() {
			out.endSeen = ageOf(s.Target.EndSeenAt)
		}
		d := a.decide(s)
		switch {
		case d.Create != nil && !in.hasCreated:
			created := d.Create.DeepCopy()
			created.CreationTimestamp, created.Generation = metav1.NewTime(exploreEpoch), 1
			out.create = a.evictions.put(created)
		default:
			out.then = ticksUntil(d.WakeAt)
			a.list(&out, in, d)
		}
	}
	a.looks[in] = out
	return out
}

// list turns a decision into writes.
func (a *nativeActors) list(out *nativeLook, in nativeView, d native.Decision) {
	add := func(o op, wrong error) {
		if wrong == nil && o.before == o.after && o.kind <= opOurs {
			wrong = fmt.Errorf("%w: %v", errEmptyWrite, o)
		}
		if out.wrong == nil {
			out.wrong = wrong
		}
		out.ops = append(out.ops, o)
	}
	for _, wish := range d.Wishes {
		slot, before := slotOfRequest(wish.Name), id(0)
		if wish.ResourceVersion == "" {
			wish = createdRequest(wish)
		} else {
			before = in.reqs[slot]
			wish = wish.DeepCopy()
			wish.Generation++
		}
		add(op{kind: opRequest, slot: slot, loose: true, before: before, after: a.requests.put(wish)}, acceptsRequest(wish))
	}
	current := in.evs
	for _, e := range d.Metadata {
		slot := slotOfEviction(e.Name)
		after := a.evictions.get(current[slot]).DeepCopy()
		after.Labels, after.OwnerReferences = e.Labels, e.OwnerReferences
		o := op{kind: opEviction, slot: slot, before: current[slot], after: a.evictions.put(after)}
		add(o, nil)
		current[slot] = o.after
	}
	for _, e := range d.Statuses {
		slot := slotOfEviction(e.Name)
		before := a.evictions.get(current[slot])
		after := before.DeepCopy()
		after.Status = *e.Status.DeepCopy()
		wrong := acceptsEviction(before, after)
		add(op{kind: opEviction, slot: slot, before: current[slot], after: a.evictions.put(after)}, wrong)
	}
	switch {
	case d.Join && in.cached != podUnseen && in.cached != podGone:
		o := op{kind: opJoin}
		if ours := a.ours.get(in.ours); in.ours != 0 && !v1alpha1.IsFinished(ours) && !v1alpha1.IsUnwanted(ours) {
			o.before = in.ours
		}
		add(o, nil)
	case d.Withdraw:
		add(op{kind: opWithdraw}, nil)
	}
	if d.Responder != nil {
		slot := slotOfEviction(d.Relevant.Name)
		before := a.evictions.get(in.evs[slot])
		after := reported(before, v1alpha1.NativeResponder, *d.Responder)
		wrong := acceptsEviction(before, after)
		add(op{kind: opEviction, slot: slot, before: in.evs[slot], after: a.evictions.put(after)}, wrong)
	}
	if d.Interceptor != nil {
		er := a.ours.get(in.ours).DeepCopy()
		reportIntercepted(er, *d.Interceptor)
		add(op{kind: opOurs, before: in.ours, after: a.ours.put(er)}, nil)
	}
	for _, r := range d.RequestStatuses {
		slot := slotOfRequest(r.Name)
		after := r.DeepCopy()
		add(op{kind: opRequest, slot: slot, loose: true, status: true, before: in.reqs[slot], after: a.requests.put(after)}, acceptsRequest(r))
	}
	for _, e := range d.Prune {
		slot := slotOfEviction(e.Name)
		add(op{kind: opEviction, slot: slot, loose: true, before: in.evs[slot]}, nil)
	}
}

func slotOfRequest(name string) int8 {
	if name == userWish {
		return 0
	}
	return 1
}

func slotOfEviction(name string) int8 {
	for slot := range int8(3) {
		if exploredEviction(int(slot)) == name {
			return slot
		}
	}
	panic("the model has no Eviction " + name)
}

func timeAt(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t))
}

// reported is the Eviction with the report of a responder, as an apply leaves it.
func reported(e *lifecyclev1alpha1.Eviction, who string, report native.ResponderReport) *lifecyclev1alpha1.Eviction {
	e = e.DeepCopy()
	for i := range e.Status.Responders {
		item := &e.Status.Responders[i]
		if item.Name == who {
			item.HeartbeatTime, item.ExpectedCompletionTime = timeAt(report.HeartbeatAt), timeAt(report.ExpectedAt)
			item.CompletionTime, item.Message = timeAt(report.CompletedAt), new(report.Message)
		}
	}
	return e
}

func reportIntercepted(er *v1alpha1.EvictionRequest, report native.InterceptorReport) {
	for i := range er.Status.Interceptors {
		item := &er.Status.Interceptors[i]
		if item.Name == v1alpha1.NativeInterceptor {
			item.StartTime, item.HeartbeatTime, item.ExpectedFinishTime = timeAt(report.StartedAt), timeAt(report.HeartbeatAt), timeAt(report.ExpectedAt)
			item.CompletionTime, item.Message = timeAt(report.CompletedAt), report.Message
		}
	}
}
