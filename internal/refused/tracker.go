package refused

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

const (
	// firstPause is the pause after the first refusal; each one is twice as long as the one
	// before, up to lastPause.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	// maxTracked bounds the refused writes in memory. Those that have not been tried for
	// forgetAfter are forgotten: their object is gone, or nobody wants it any more.
	maxTracked  = 10_000
	forgetAfter = 30 * time.Minute
	// maxNoted bounds the objects that one refused write has events on.
	maxNoted = 100
	// maxWords bounds, in characters, how much of the server's text is quoted.
	maxWords = 700
)

// Object is what is written; Name is empty if the server makes it up.
type Object struct {
	Kind, Namespace, Name string
}

func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Error is the refusal of a write: of this attempt, or, until RetryAt, of the last one, and
// nothing was sent. It wraps the API server's error.
type Error struct {
	Write   Write
	Cause   Cause
	Object  Object
	retryAt time.Time
	err     error
}

// Error is the API server's text.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the API server's error.
func (e *Error) Unwrap() error { return e.err }

// RetryAt is when the write is sent again, at the earliest.
func (e *Error) RetryAt() time.Time { return e.retryAt }

// Metrics count refusals.
type Metrics interface {
	Refused(what, cause string)
}

// Tracker remembers the writes that are refused. Safe for concurrent use.
type Tracker struct {
	clock   clock.PassiveClock
	metrics Metrics
	log     logr.Logger

	mu       sync.Mutex
	recorder eventsclient.EventRecorder
	refused  *cache.LRUExpireCache
}

// NewTracker returns a tracker that knows of no refusal. It emits no events before Record.
func NewTracker(clock clock.PassiveClock, metrics Metrics, log logr.Logger) *Tracker {
	return &Tracker{clock: clock, metrics: metrics, log: log, refused: cache.NewLRUExpireCacheWithClock(maxTracked, clock)}
}

// Record lets the tracker emit events from now on.
func (t *Tracker) Record(recorder eventsclient.EventRecorder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recorder = recorder
}

// attempt identifies a write that is tried again and again.
type attempt struct {
	write   Write
	verb    string
	object  Object
	manager string
	// subject tells apart objects whose names the server makes up.
	subject types.UID
}

// entry is a write that was refused the last time.
type entry struct {
	last  *Error
	count int
	noted map[noted]*corev1.ObjectReference
}

// noted is an event that was emitted.
type noted struct {
	subject types.UID
	name    string
	cause   Cause
}

// Do sends a write, unless it was refused a moment ago. It returns an *Error for a refusal,
// and every other error as it is.
//
// The refusal is told on the objects of About, and on those that otherwise returns if there
// are none; it may be nil.
func (t *Tracker) Do(ctx context.Context, write Write, verb string, object Object, manager string, otherwise func() []corev1.ObjectReference, send func() error) error {
	key := attempt{write: write, verb: verb, object: object, manager: manager}
	about := otherwise
	if objects := subjectsOf(ctx); len(objects) > 0 {
		about = func() []corev1.ObjectReference { return objects }
		if object.Name == "" {
			key.subject = objects[0].UID
		}
	}
	if ctx.Value(atOnceKey{}) == nil {
		if err := t.paused(key, about); err != nil {
			return err
		}
	}
	err := send()
	if err == nil {
		t.accepted(key)
		return nil
	}
	cause, refused := Of(err)
	if !refused || expected(ctx, write, cause) {
		return err
	}
	return t.note(key, cause, err, about)
}

// paused is the last refusal while its pause lasts. Who asks about another object gets an
// event on that, too.
func (t *Tracker) paused(key attempt, about func() []corev1.ObjectReference) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, ok := t.refused.Get(key)
	if !ok {
		return nil
	}
	e := value.(*entry)
	if !t.clock.Now().Before(e.last.retryAt) {
		return nil
	}
	t.emit(e, about)
	return e.last
}

// note counts a refusal, and begins its pause.
func (t *Tracker) note(key attempt, cause Cause, err error, about func() []corev1.ObjectReference) error {
	t.metrics.Refused(string(key.write), string(cause))
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &entry{noted: map[noted]*corev1.ObjectReference{}}
	if value, ok := t.refused.Get(key); ok {
		e = value.(*entry)
	}
	first := e.last == nil || e.last.Cause != cause
	e.count++
	e.last = &Error{Write: key.write, Cause: cause, Object: key.object, retryAt: t.clock.Now().Add(pauseAfter(e.count)), err: err}
	t.refused.Add(key, e, forgetAfter)
	if first {
		t.log.Info("The API server refuses a write; it is tried again with growing pauses, up to "+lastPause.String(),
			"write", key.write, "cause", cause, "object", key.object.String(), "reason", err.Error())
	}
	t.emit(e, about)
	return e.last
}

// accepted forgets a refusal, and says so wherever it was told.
func (t *Tracker) accepted(key attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	value, ok := t.refused.Get(key)
	if !ok {
		return
	}
	t.refused.Remove(key)
	e := value.(*entry)
	t.log.Info("A write that was refused is accepted", "write", key.write, "object", key.object.String())
	told := map[types.UID]bool{}
	for n, about := range e.noted {
		if t.recorder == nil || told[n.subject] {
			continue
		}
		told[n.subject] = true
		events.Emit(t.recorder, about, nil, events.WriteAccepted(key.write.Action(), key.write.Doing()))
	}
}

// emit records events on the objects that the write is for, one each per cause.
func (t *Tracker) emit(e *entry, about func() []corev1.ObjectReference) {
	if t.recorder == nil || about == nil || e.last.Cause == NamespaceTerminating {
		return // It takes no more events, and its pods go with it.
	}
	for _, object := range about() {
		n := noted{object.UID, object.Name, e.last.Cause}
		if e.noted[n] != nil || len(e.noted) >= maxNoted {
			continue
		}
		e.noted[n] = &object
		events.Emit(t.recorder, &object, nil, events.WriteRefused(string(e.last.Cause), e.last.Write.Action(), e.last.Write.Doing(), e.last.Words()))
	}
}

// Words are what the server says, on one line.
func (e *Error) Words() string { return text.OneLine(e.err.Error(), maxWords) }

// Why says in a few words that are always the same for a cause what refuses the write.
func (e *Error) Why() string { return fmt.Sprintf("%s refuses it", e.Cause.Who(e.Object.Namespace)) }

// pauseAfter is the pause after so many refusals in a row.
func pauseAfter(count int) time.Duration {
	pause := firstPause
	for range count - 1 {
		if pause *= 2; pause >= lastPause {
			return lastPause
		}
	}
	return pause
}
