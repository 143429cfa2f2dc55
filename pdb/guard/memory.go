package guard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what the controller remembers. All of it is a hint. It starts empty, and is
// filled by the first reconciliation of every pod. It is safe for concurrent use.
type memory struct {
	mu sync.Mutex
	// waiting are the pods that wait for their namespace's budget.
	waiting map[string]map[types.NamespacedName]struct{}
	// needed is when a namespace's budget was needed last.
	needed map[string]time.Time
	// made is when we made a namespace's budget; the cache may not show it yet.
	made map[string]time.Time
	// removed are the budgets that we have deleted; the cache may still have them.
	removed map[string]types.UID
	// wrote are the labels that we have written; the cache may not show them yet.
	wrote map[types.NamespacedName]wrote
	// paces are how often objects were written, by pod and budgetKey.
	paces map[types.NamespacedName]paced
	// left are closed pods that should be open, but whose controller selects by the
	// label.
	left map[types.NamespacedName]struct{}
	// emitted is the object of the last recorded event, by pod and budgetKey.
	emitted map[types.NamespacedName]types.UID
}

// paced is how often an object was written for the same request. A new request is no
// fight: its first writes are not delayed.
type paced struct {
	object, request types.UID
	pace
}

// of is the pace for a request, which is empty if there is none.
func (p paced) of(object, request types.UID) paced {
	if p.object != object || (request != "" && p.request != request) {
		return paced{object: object, request: request}
	}
	return p
}

// wrote is what we made of a pod's guard, and when.
type wrote struct {
	pod    types.UID
	closed bool
	at     time.Time
}

func newMemory() *memory {
	return &memory{
		waiting: map[string]map[types.NamespacedName]struct{}{},
		needed:  map[string]time.Time{},
		made:    map[string]time.Time{},
		removed: map[string]types.UID{},
		wrote:   map[types.NamespacedName]wrote{},
		paces:   map[types.NamespacedName]paced{},
		left:    map[types.NamespacedName]struct{}{},
		emitted: map[types.NamespacedName]types.UID{},
	}
}

// wait notes that the pod waits for its namespace's budget.
func (m *memory) wait(pod types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[pod.Namespace] == nil {
		m.waiting[pod.Namespace] = map[types.NamespacedName]struct{}{}
	}
	m.waiting[pod.Namespace][pod] = struct{}{}
}

// settle notes that the pod no longer waits.
func (m *memory) settle(pod types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting[pod.Namespace], pod)
	if len(m.waiting[pod.Namespace]) == 0 {
		delete(m.waiting, pod.Namespace)
	}
}

// waitingIn are the pods of the namespace that wait, sorted.
func (m *memory) waitingIn(namespace string) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Keys(m.waiting[namespace]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// use takes the budget into use, unless it was removed.
func (m *memory) use(namespace string, budget types.UID, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed[namespace] == budget {
		return false
	}
	m.needed[namespace] = now
	return true
}

// need notes that the namespace's budget is needed now.
func (m *memory) need(namespace string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.needed[namespace] = now
}

// lastNeeded is when the namespace's budget was needed last. If that is not
// known, it is now.
func (m *memory) lastNeeded(namespace string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.needed[namespace]
	if !ok {
		m.needed[namespace] = now
		return now
	}
	return last
}

// remove notes that the budget is to be removed, unless it came into use after
// that time.
func (m *memory) remove(namespace string, budget types.UID, unusedSince time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting[namespace]) > 0 || m.needed[namespace].After(unusedSince) {
		return false
	}
	m.removed[namespace] = budget
	return true
}

// wasRemoved reports whether we have removed the budget.
func (m *memory) wasRemoved(namespace string, budget types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removed[namespace] == budget
}

// forgetBudget notes that the budget is gone, or was not removed after all.
func (m *memory) forgetBudget(namespace string, budget types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed[namespace] == budget {
		delete(m.removed, namespace)
	}
}

// write notes that we write the pod's label. It comes before the write, so that the
// pod's end, if any, is noticed later.
func (m *memory) write(key types.NamespacedName, w wrote) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote[key] = w
}

// justWrote reports whether we made that same change less than the pause ago.
func (m *memory) justWrote(key types.NamespacedName, w wrote) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.wrote[key]
	return ok && last.pod == w.pod && last.closed == w.closed && w.at.Sub(last.at) < pause
}

// shown notes what the cache shows of the pod's guard.
func (m *memory) shown(key types.NamespacedName, pod types.UID, closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.wrote[key]; ok && (last.pod != pod || last.closed == closed) {
		delete(m.wrote, key)
	}
}

// waitToWrite is how long the next write of an object for a request must wait, see pace.
func (m *memory) waitToWrite(key types.NamespacedName, object, request types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paces[key].of(object, request).wait(now)
}

// writes notes that we write an object for a request, whatever the result.
func (m *memory) writes(key types.NamespacedName, object, request types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.paces[key].of(object, request)
	p.pace = p.wrote(now)
	m.paces[key] = p
}

// forgetPace forgets how often an object was written that is gone.
func (m *memory) forgetPace(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.paces, key)
}

// leave notes whether the pod's guard is left closed although it should be open, and
// reports whether that was so before.
func (m *memory) leave(key types.NamespacedName, left bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, before := m.left[key]
	if left {
		m.left[key] = struct{}{}
	} else {
		delete(m.left, key)
	}
	return before
}

// isLeft reports whether the pod's guard is left closed although it should be open.
func (m *memory) isLeft(key types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, left := m.left[key]
	return left
}

// forgetWrote forgets what was written.
func (m *memory) forgetWrote(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.wrote, key)
}

// make notes that the namespace's budget was made.
func (m *memory) make(namespace string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[namespace] = now
}

// justMade reports whether the namespace's budget was made less than the pause ago.
// Once the cache has shown a budget, or its end, that counts.
func (m *memory) justMade(namespace string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.made[namespace]
	return ok && now.Sub(at) < pause
}

// seen notes that the cache shows the namespace's budget, or has just shown its end.
func (m *memory) seen(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.made, namespace)
}

// forgetNamespace notes that the namespace has no budget and needs none.
func (m *memory) forgetNamespace(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.needed, namespace)
	delete(m.made, namespace)
}

// firstTime reports whether no event was emitted about the object yet, and notes that
// one is.
func (m *memory) firstTime(key types.NamespacedName, object types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.emitted[key] == object {
		return false
	}
	m.emitted[key] = object
	return true
}

// forgetEmitted forgets the last emitted event.
func (m *memory) forgetEmitted(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.emitted, key)
}
