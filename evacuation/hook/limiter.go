package hook

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// waiterForgotten is after how long one that waits and does not ask again is forgotten.
// Every one asks before each of its heartbeats.
const waiterForgotten = 10 * time.Minute

// limiter limits how many attempts run at a time, in the cluster and in a namespace. Who
// came first begins first, unless the namespace is full. It is in memory only: after a
// restart the runs of all hooks are counted before anything begins.
type limiter struct {
	clock             clock.PassiveClock
	cluster, perSpace int
	wake              func(request types.NamespacedName)
	mu                sync.Mutex
	running           map[types.UID]string // The namespace, by the UID of the request.
	spaces            map[string]int
	waiting           []waiter
}

type waiter struct {
	uid     types.UID
	request types.NamespacedName
	asked   time.Time
}

func newLimiter(c clock.PassiveClock, cluster, perNamespace int, wake func(types.NamespacedName)) *limiter {
	return &limiter{clock: c, cluster: cluster, perSpace: perNamespace, wake: wake, running: map[types.UID]string{}, spaces: map[string]int{}}
}

// hold counts an attempt that runs already, whatever the limits are.
func (l *limiter) hold(uid types.UID, namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(uid, namespace)
}

func (l *limiter) add(uid types.UID, namespace string) {
	if _, ok := l.running[uid]; !ok {
		l.running[uid] = namespace
		l.spaces[namespace]++
	}
}

// tryAcquire reports whether an attempt may begin, and counts it if so. If not, the request is
// woken when it may.
func (l *limiter) tryAcquire(uid types.UID, request types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.running[uid]; ok {
		return true
	}
	now := l.clock.Now()
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.uid != uid && now.Sub(w.asked) > waiterForgotten })
	at := slices.IndexFunc(l.waiting, func(w waiter) bool { return w.uid == uid })
	if at < 0 {
		at = len(l.waiting)
		l.waiting = append(l.waiting, waiter{uid: uid, request: request})
	}
	l.waiting[at].asked = now
	if !slices.ContainsFunc(l.free(), func(w waiter) bool { return w.uid == uid }) {
		return false
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
	l.add(uid, request.Namespace)
	return true
}

// release ends what tryAcquire or hold began, or a wait for it.
func (l *limiter) release(uid types.UID) {
	l.mu.Lock()
	if namespace, ok := l.running[uid]; ok {
		delete(l.running, uid)
		if l.spaces[namespace]--; l.spaces[namespace] == 0 {
			delete(l.spaces, namespace)
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.uid == uid })
	free := l.free()
	l.mu.Unlock()
	for _, w := range free {
		l.wake(w.request)
	}
}

// stopWaiting ends a wait, without releasing what tryAcquire has acquired.
func (l *limiter) stopWaiting(uid types.UID) {
	l.mu.Lock()
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.uid == uid })
	free := l.free()
	l.mu.Unlock()
	for _, w := range free {
		l.wake(w.request)
	}
}

// free are those that wait and may begin, all of them at once.
func (l *limiter) free() (free []waiter) {
	left := l.cluster - len(l.running)
	taken := map[string]int{}
	for _, w := range l.waiting {
		if left <= 0 {
			break
		}
		if n := w.request.Namespace; l.spaces[n]+taken[n] < l.perSpace {
			taken[n]++
			left--
			free = append(free, w)
		}
	}
	return free
}

// count says how many run and how many wait.
func (l *limiter) count() (running, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.running), len(l.waiting)
}
