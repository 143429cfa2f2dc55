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
	// tellEvery is how long the same is not told again to one preemptor, which the
	// scheduler tries again every few seconds.
	tellEvery = 5 * time.Minute
	// tellOther is how long something else is not told to it either.
	tellOther = 10 * time.Second
	// tellAtMost is how many events there may be within tellWindow, whatever the
	// number of preemptors: a big Job that does not fit must not flood the API server.
	tellAtMost = 50
	tellWindow = 10 * time.Second
	// maxTold bounds the memory.
	maxTold = 10_000
)

// Teller tells preemptors why a node is not used, by events. Safe for concurrent use.
type Teller struct {
	recorder events.EventRecorder
	clock    clock.PassiveClock

	mu     sync.Mutex
	told   map[types.UID]toldPreemptor
	window time.Time
	spent  int
}

type toldPreemptor struct {
	note string
	at   time.Time
}

// NewTeller returns a teller.
func NewTeller(recorder events.EventRecorder, clock clock.PassiveClock) *Teller {
	return &Teller{recorder: recorder, clock: clock, told: map[types.UID]toldPreemptor{}}
}

// tell tells about the first of the nodes that are not used.
func (t *Teller) tell(in Input, decision Decision) {
	first := decision.First()
	if first == nil || first.Why == WhySpan {
		return // What spans nodes is dropped on account of another node.
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
	if !t.due(in.Preemptor.UID, event.Note) {
		return
	}
	ourevents.Emit(t.recorder, reference(in.Preemptor.Pod), related, event)
}

// due reports whether the note is to be told now, and notes that it is.
func (t *Teller) due(preemptor types.UID, note string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if before, ok := t.told[preemptor]; ok {
		pause := tellOther
		if before.note == note {
			pause = tellEvery
		}
		if now.Before(before.at.Add(pause)) {
			return false
		}
	}
	if !now.Before(t.window.Add(tellWindow)) {
		t.window, t.spent = now, 0
	}
	if t.spent >= tellAtMost {
		return false
	}
	t.spent++
	if len(t.told) >= maxTold {
		clear(t.told) // Some will be told twice.
	}
	t.told[preemptor] = toldPreemptor{note: note, at: now}
	return true
}

func reference(pod Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
