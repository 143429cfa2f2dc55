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

// room limits how many attempts run at a time, in the cluster and in a namespace. Who
// came first begins first, unless the namespace is full. It is in memory only: after a
// restart the runs of all hooks are counted before anything begins.
type room struct {
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

func newRoom(c clock.PassiveClock, cluster, perNamespace int, wake func(types.NamespacedName)) *room {
	return &room{clock: c, cluster: cluster, perSpace: perNamespace, wake: wake, running: map[types.UID]string{}, spaces: map[string]int{}}
}

// hold counts an attempt that runs already, whatever the limits are.
func (r *room) hold(uid types.UID, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(uid, namespace)
}

func (r *room) add(uid types.UID, namespace string) {
	if _, ok := r.running[uid]; !ok {
		r.running[uid] = namespace
		r.spaces[namespace]++
	}
}

// take reports whether an attempt may begin, and counts it if so. If not, the request is
// woken when it may.
func (r *room) take(uid types.UID, request types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[uid]; ok {
		return true
	}
	now := r.clock.Now()
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiter) bool { return w.uid != uid && now.Sub(w.asked) > waiterForgotten })
	at := slices.IndexFunc(r.waiting, func(w waiter) bool { return w.uid == uid })
	if at < 0 {
		at = len(r.waiting)
		r.waiting = append(r.waiting, waiter{uid: uid, request: request})
	}
	r.waiting[at].asked = now
	if !slices.ContainsFunc(r.free(), func(w waiter) bool { return w.uid == uid }) {
		return false
	}
	r.waiting = slices.Delete(r.waiting, at, at+1)
	r.add(uid, request.Namespace)
	return true
}

// give ends what take or hold began, or a wait for it.
func (r *room) give(uid types.UID) {
	r.mu.Lock()
	if namespace, ok := r.running[uid]; ok {
		delete(r.running, uid)
		if r.spaces[namespace]--; r.spaces[namespace] == 0 {
			delete(r.spaces, namespace)
		}
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiter) bool { return w.uid == uid })
	free := r.free()
	r.mu.Unlock()
	for _, w := range free {
		r.wake(w.request)
	}
}

// stopWaiting ends a wait for room, without giving back what take has taken.
func (r *room) stopWaiting(uid types.UID) {
	r.mu.Lock()
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiter) bool { return w.uid == uid })
	free := r.free()
	r.mu.Unlock()
	for _, w := range free {
		r.wake(w.request)
	}
}

// free are those that wait and may begin, all of them at once.
func (r *room) free() (free []waiter) {
	left := r.cluster - len(r.running)
	taken := map[string]int{}
	for _, w := range r.waiting {
		if left <= 0 {
			break
		}
		if n := w.request.Namespace; r.spaces[n]+taken[n] < r.perSpace {
			taken[n]++
			left--
			free = append(free, w)
		}
	}
	return free
}

// count says how many run and how many wait.
func (r *room) count() (running, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running), len(r.waiting)
}
