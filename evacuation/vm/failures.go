package vm

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/cel"
)

// failures remember the pods for which an expression fails.
type failures struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	of    map[types.UID]map[types.UID]failure
}

type failure struct {
	text string
	at   time.Time
}

// failuresCount is how long a failure counts if it is not seen again.
const failuresCount = 15 * time.Minute

func (f *failures) init(c clock.PassiveClock) {
	f.clock, f.of = c, map[types.UID]map[types.UID]failure{}
}

// add reports whether that is news.
func (f *failures) add(p *policy, pod *corev1.Pod, err *cel.EvaluationError) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[p.uid] == nil {
		f.of[p.uid] = map[types.UID]failure{}
	}
	_, known := f.of[p.uid][pod.UID]
	f.of[p.uid][pod.UID] = failure{"for pod " + pod.Namespace + "/" + pod.Name + ": " + err.Error(), f.clock.Now()}
	return !known
}

// remove reports whether that is news.
func (f *failures) remove(p *policy, pod *corev1.Pod) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.of[p.uid][pod.UID]
	delete(f.of[p.uid], pod.UID)
	return known
}

// summary is how many pods an expression fails for, and what it says for one.
func (f *failures) summary(p *policy) (count int, example string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for pod, failure := range f.of[p.uid] {
		if f.clock.Since(failure.at) > failuresCount {
			delete(f.of[p.uid], pod)
			continue
		}
		count++
		if example == "" || strings.Compare(failure.text, example) < 0 {
			example = failure.text
		}
	}
	return count, example
}

// forget forgets a policy: its next generation may fail for others.
func (f *failures) forget(p *policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, p.uid)
}

// overlaps remember the policies that cover a pod of another one.
type overlaps struct {
	mu sync.Mutex
	of map[string]map[string]string
}

func (o *overlaps) init() { o.of = map[string]map[string]string{} }

// add remembers that two policies cover a pod and reports whether that is news. The
// first applies to it; so does the second, if it has another interceptor that the pod
// has, too.
func (o *overlaps) add(first, second *policy, pod *corev1.Pod) (news bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := pod.Namespace + "/" + pod.Name
	toFirst := "policy " + second.name + " covers pod " + name + " as well; this policy counts for it"
	toSecond := "policy " + first.name + " covers pod " + name + " as well and counts for it"
	if first.interceptor != second.interceptor {
		const each = ", and each counts for the pods of its own interceptor only"
		toFirst = "policy " + second.name + " of interceptor " + second.interceptor + " covers pod " + name + " as well" + each
		toSecond = "policy " + first.name + " of interceptor " + first.interceptor + " covers pod " + name + " as well" + each
	}
	for _, pair := range [][3]string{{first.name, second.name, toFirst}, {second.name, first.name, toSecond}} {
		if o.of[pair[0]] == nil {
			o.of[pair[0]] = map[string]string{}
		}
		if o.of[pair[0]][pair[1]] == "" {
			o.of[pair[0]][pair[1]], news = pair[2], true
		}
	}
	return news
}

// summary says which policies overlap with one.
func (o *overlaps) summary(p *policy) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Values(o.of[p.name])), "; ")
}

// forget forgets a policy: what is still true is found again by the next question.
func (o *overlaps) forget(p *policy) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, p.name)
	for _, others := range o.of {
		delete(others, p.name)
	}
}

// stuck are the evacuations that were given up: policy -> request -> workload.
type stuck struct {
	mu sync.Mutex
	of map[string]map[types.UID]string
}

func (s *stuck) init() { s.of = map[string]map[types.UID]string{} }

func (s *stuck) add(policy, workload string, request types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[policy] == nil {
		s.of[policy] = map[types.UID]string{}
	}
	s.of[policy][request] = workload
}

func (s *stuck) remove(request types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, requests := range s.of {
		delete(requests, request)
	}
}

// retain forgets all requests for which keep is false.
func (s *stuck) retain(policy string, keep func(types.UID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of[policy], func(request types.UID, _ string) bool { return !keep(request) })
}

// workloads are those of a policy, sorted.
func (s *stuck) workloads(policy string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Values(s.of[policy]))
}

// ends remember the evacuations whose end was reported: request -> interceptor -> UID
// of the request.
type ends struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[string]types.UID
}

func (e *ends) init() { e.of = map[types.NamespacedName]map[string]types.UID{} }

// add reports whether that is news.
func (e *ends) add(request types.NamespacedName, interceptor string, uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of[request][interceptor] == uid {
		return false
	}
	if e.of[request] == nil {
		e.of[request] = map[string]types.UID{}
	}
	e.of[request][interceptor] = uid
	return true
}

// forget forgets a request that is gone or canceled.
func (e *ends) forget(request types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.of, request)
}

// unheard are the marks that the platform does not accept: policy -> request -> what is
// wrong.
type unheard struct {
	mu sync.Mutex
	of map[string]map[types.UID]setback
}

// setback is why a write had no effect.
type setback struct {
	// reason is one of the condition Marking.
	reason string
	// text names the workload and, of a write that was discarded, the field.
	text string
}

func (u *unheard) init() { u.of = map[string]map[types.UID]setback{} }

// add reports whether that is news about the request.
func (u *unheard) add(policy string, request types.UID, what setback) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[policy] == nil {
		u.of[policy] = map[types.UID]setback{}
	}
	_, known := u.of[policy][request]
	u.of[policy][request] = what
	return !known
}

// remove reports whether that is news.
func (u *unheard) remove(request types.UID) (news bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, requests := range u.of {
		if _, known := requests[request]; known {
			delete(requests, request)
			news = true
		}
	}
	return news
}

// retain forgets all requests for which keep is false.
func (u *unheard) retain(policy string, keep func(types.UID) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for request := range u.of[policy] {
		if !keep(request) {
			delete(u.of[policy], request)
		}
	}
}

// summary returns how many there are, and the first by its text.
func (u *unheard) summary(policy string) (count int, first setback) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, what := range u.of[policy] {
		if count++; first.text == "" || what.text < first.text {
			first = what
		}
	}
	return count, first
}
