package preemption

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	ourevents "github.com/drawbridge-dev/drawbridge/internal/events"
)

const (
	// repeatEvery is the minimum time between equal events for one preemptor, which the
	// scheduler retries every few seconds.
	repeatEvery = 5 * time.Minute
	// otherEvery is the minimum time between different events for it.
	otherEvery = 10 * time.Second
	// maxEvents is how many events there may be within eventsWindow, for any number of
	// preemptors: a big Job that does not fit must not flood the API server.
	maxEvents    = 50
	eventsWindow = 10 * time.Second
	// maxEmitted bounds the memory.
	maxEmitted = 10_000
)

// Emitter records events on preemptors about why a node is not used. Safe for
// concurrent use.
type Emitter struct {
	recorder events.EventRecorder
	clock    clock.PassiveClock

	mu      sync.Mutex
	emitted map[types.UID]emission
	window  time.Time
	spent   int
}

type emission struct {
	note string
	at   time.Time
}

// NewEmitter returns an emitter.
func NewEmitter(recorder events.EventRecorder, clock clock.PassiveClock) *Emitter {
	return &Emitter{recorder: recorder, clock: clock, emitted: map[types.UID]emission{}}
}

// emit records an event about the first of the nodes that are not used.
func (e *Emitter) emit(in Input, decision Decision) {
	first := decision.First()
	if first == nil || first.Why == WhySpan {
		return // Such a node is dropped because of another node.
	}
	others := len(decision.Dropped) - 1
	var event ourevents.Event
	var related runtime.Object
	switch first.Why {
	case WhyBudget:
		allowed := max(first.Budget.Allowed-in.Charges[first.Budget], 0)
		event = ourevents.BudgetKept(first.Node, others, first.Victim.Namespace+"/"+first.Victim.Name,
			first.Budget.Namespace+"/"+first.Budget.Name, first.Disruptions, allowed, first.Value, in.Preemptor.Priority)
		related = reference(first.Victim)
	default:
		event = ourevents.VictimUnknown(first.Node, others, first.Value, in.Preemptor.Priority)
	}
	if !e.due(in.Preemptor.UID, event.Note) {
		return
	}
	ourevents.Emit(e.recorder, reference(in.Preemptor.Pod), related, event)
}

// due reports whether to emit the note now, and if so remembers it.
func (e *Emitter) due(preemptor types.UID, note string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if before, ok := e.emitted[preemptor]; ok {
		pause := otherEvery
		if before.note == note {
			pause = repeatEvery
		}
		if now.Before(before.at.Add(pause)) {
			return false
		}
	}
	if !now.Before(e.window.Add(eventsWindow)) {
		e.window, e.spent = now, 0
	}
	if e.spent >= maxEvents {
		return false
	}
	e.spent++
	if len(e.emitted) >= maxEmitted {
		clear(e.emitted) // Some events will be emitted twice.
	}
	e.emitted[preemptor] = emission{note: note, at: now}
	return true
}

func reference(pod Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
