package guard

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

// writeLimit limits how often one object is written: there are at most six writes in any
// minute, and in the long run one in five. An eviction takes two, which are not delayed:
// the guard closes and opens.
var writeLimit = controllers.WriteLimit{Free: 4, First: 10 * time.Second, Longest: 5 * time.Minute, Calm: 10 * time.Minute}

// lastWritten is what we have written to objects, and said of them. All of it is a hint. It
// is safe for concurrent use.
type lastWritten struct {
	mu sync.Mutex
	// labels are the labels that we have written; the cache may not show them yet.
	labels map[types.NamespacedName]wrote
	// objects are how often objects were written, by pod and budgetKey.
	objects map[types.NamespacedName]objectWrites
	// left are closed pods that should be open, but whose controller selects by the
	// label.
	left map[types.NamespacedName]struct{}
	// emitted is the object of the last recorded event, by pod and budgetKey.
	emitted map[types.NamespacedName]types.UID
}

// objectWrites is how often an object was written for the same request. A new request is no
// fight: its first writes are not delayed.
type objectWrites struct {
	object, request types.UID
	controllers.Writes
}

// of is the writes for a request, which is empty if there is none.
func (w objectWrites) of(object, request types.UID) objectWrites {
	if w.object != object || (request != "" && w.request != request) {
		return objectWrites{object: object, request: request}
	}
	return w
}

// wrote is what we made of a pod's guard, and when.
type wrote struct {
	pod    types.UID
	closed bool
	at     time.Time
}

func newLastWritten() *lastWritten {
	return &lastWritten{
		labels:  map[types.NamespacedName]wrote{},
		objects: map[types.NamespacedName]objectWrites{},
		left:    map[types.NamespacedName]struct{}{},
		emitted: map[types.NamespacedName]types.UID{},
	}
}

// write notes that we write the pod's label. It comes before the write, so that the
// pod's end, if any, is noticed later.
func (l *lastWritten) write(key types.NamespacedName, w wrote) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.labels[key] = w
}

// justWrote reports whether we made that same change, and the cache may only be behind.
func (l *lastWritten) justWrote(key types.NamespacedName, w wrote) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.labels[key]
	return ok && last.pod == w.pod && last.closed == w.closed && w.at.Sub(last.at) < behind
}

// shown notes what the cache shows of the pod's guard.
func (l *lastWritten) shown(key types.NamespacedName, pod types.UID, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.labels[key]; ok && (last.pod != pod || last.closed == closed) {
		delete(l.labels, key)
	}
}

// waitToWrite is how long the next write of an object for a request must wait.
func (l *lastWritten) waitToWrite(key types.NamespacedName, object, request types.UID, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return writeLimit.Wait(l.objects[key].of(object, request).Writes, now)
}

// writes notes that we write an object for a request, whatever the result.
func (l *lastWritten) writes(key types.NamespacedName, object, request types.UID, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.objects[key].of(object, request)
	w.Writes = writeLimit.Wrote(w.Writes, now)
	l.objects[key] = w
}

// forgetWrites forgets how often an object was written that is gone.
func (l *lastWritten) forgetWrites(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, key)
}

// leave notes whether the pod's guard is left closed although it should be open, and
// reports whether that was so before.
func (l *lastWritten) leave(key types.NamespacedName, left bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, before := l.left[key]
	if left {
		l.left[key] = struct{}{}
	} else {
		delete(l.left, key)
	}
	return before
}

// isLeft reports whether the pod's guard is left closed although it should be open.
func (l *lastWritten) isLeft(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, left := l.left[key]
	return left
}

// forgetWrote forgets what was written.
func (l *lastWritten) forgetWrote(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.labels, key)
}

// firstTime reports whether no event was emitted about the object yet, and notes that
// one is.
func (l *lastWritten) firstTime(key types.NamespacedName, object types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.emitted[key] == object {
		return false
	}
	l.emitted[key] = object
	return true
}

// forgetEmitted forgets the last emitted event.
func (l *lastWritten) forgetEmitted(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.emitted, key)
}
