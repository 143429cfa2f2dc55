package evictor

import (
	"container/heap"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// budgetQueue tracks which requests wait for which PodDisruptionBudget. When a budget
// starts to allow disruptions, it returns the requests to retry: as many as the budget
// allows, the oldest first. So n pods behind one budget cost about two calls each,
// instead of one each for every allowed disruption.
//
// It is memory only and a hint: an empty one costs every waiting pod one more
// attempt. It has no clock and no client, and is safe for concurrent use.
//
// The attempts in flight count against a budget's allowance: those woken, those
// calling, and those that were admitted but are not in a status of the budget that we
// have seen. Without the last ones, every status still on its way would wake a request
// for a taken place.
type budgetQueue struct {
	mu sync.Mutex
	// budgets by namespace and name.
	budgets map[string]map[string]*budget
	// places by namespace and request.
	places map[string]map[types.NamespacedName]*budgetPlace
}

// budget is what was last seen of a PodDisruptionBudget.
type budget struct {
	selector labels.Selector
	// source is what selector was made from.
	source *metav1.LabelSelector
	// allowed is status.disruptionsAllowed, or 0 while the status is behind the spec.
	allowed int
	// seen counts the statuses observed.
	seen uint64
	// waiting has the places that wait for this budget, the oldest first.
	waiting budgetHeap
	// never says that it can never allow a disruption, empty if it can; judged: that was
	// looked at since the last status.
	never  string
	judged bool
	// generation is that of its spec, and observed: the last status is about it.
	generation int64
	observed   bool
	// changed: since the spec has changed, nobody has looked at a status that is about it.
	changed bool
	// allowedOne: with this spec, it has allowed a disruption.
	allowedOne bool
	// inFlight has the places whose attempt counts against allowed.
	inFlight map[*budgetPlace]struct{}
}

// budgetPhase is the state of a place between two attempts.
type budgetPhase int

const (
	budgetWaiting budgetPhase = iota
	budgetWoken
	budgetCalling
	budgetAdmitted
)

// budgetPlace is one request's place.
type budgetPlace struct {
	key    types.NamespacedName
	pod    string
	labels labels.Set
	since  time.Time
	phase  budgetPhase
	// names are the budgets that select the pod, sorted.
	names []string
	// home is the only budget that selects the pod. With several, the eviction API
	// always refuses, so the place waits only for a change of the selectors.
	home *budget
	// index in home.waiting, -1 if absent.
	index int
	// seen is home.seen when the call began.
	seen uint64
	// counted: a status of home that includes this eviction was observed.
	counted bool
}

// budgetOutcome is how an attempt ended, as far as budgets care.
type budgetOutcome int

const (
	// budgetOther: failed for a reason that no change of a budget can fix.
	budgetOther budgetOutcome = iota
	// budgetRefused: failed because of budgets.
	budgetRefused
	// budgetAccepted: the pod is being deleted.
	budgetAccepted
)

func newBudgetQueue() *budgetQueue {
	return &budgetQueue{
		budgets: map[string]map[string]*budget{},
		places:  map[string]map[types.NamespacedName]*budgetPlace{},
	}
}

// Begin says that an attempt for this request starts, and returns the names of
// the budgets that select its pod, sorted. Since is the request's creation.
func (q *budgetQueue) Begin(key types.NamespacedName, pod string, podLabels map[string]string, since time.Time) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.places[key.Namespace][key]; old != nil {
		old.leave()
	}
	p := &budgetPlace{key: key, pod: pod, labels: maps.Clone(podLabels), since: since, phase: budgetCalling, index: -1}
	if q.places[key.Namespace] == nil {
		q.places[key.Namespace] = map[types.NamespacedName]*budgetPlace{}
	}
	q.places[key.Namespace][key] = p
	q.settle(p)
	if p.home != nil {
		p.seen = p.home.seen
	}
	return slices.Clone(p.names)
}

// End says how the attempt ended, and returns the requests to try now, possibly the
// same one.
func (q *budgetQueue) End(key types.NamespacedName, outcome budgetOutcome) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[key.Namespace][key]
	if p == nil {
		return nil
	}
	switch outcome {
	case budgetAccepted:
		if !p.counted {
			p.phase = budgetAdmitted
			return nil
		}
		return q.drop(p)
	case budgetRefused:
		began, seen := p.home, p.seen
		p.leave()
		p.phase = budgetWaiting
		q.settle(p)
		if p.home == nil {
			return nil
		}
		// The server knows better, unless the budget has changed meanwhile: then its
		// event found no one waiting and must not be lost.
		if p.home == began && began.seen == seen {
			began.allowed = 0
		}
		return p.home.wake()
	default:
		return q.drop(p)
	}
}

// Forget removes the request: its pod ends, or it is no longer our turn. It returns the
// requests to try now.
func (q *budgetQueue) Forget(key types.NamespacedName) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[key.Namespace][key]
	if p == nil {
		return nil
	}
	if p.phase == budgetAdmitted && p.home != nil && p.home.allowed > 0 {
		// It took a place that the last seen status does not include.
		p.home.allowed--
	}
	return q.drop(p)
}

// Relabel updates the pod's labels, and returns the requests to try now.
func (q *budgetQueue) Relabel(key types.NamespacedName, podLabels map[string]string) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[key.Namespace][key]
	if p == nil || labels.Equals(p.labels, podLabels) {
		return nil
	}
	p.labels = maps.Clone(podLabels)
	return q.reassess(p)
}

// Woken reports whether a change of a budget calls for the request's next attempt now.
func (q *budgetQueue) Woken(key types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[key.Namespace][key]
	return p != nil && p.phase == budgetWoken
}

// Behind counts the requests that have waited longer for the same budget, up to limit.
func (q *budgetQueue) Behind(key types.NamespacedName, limit int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[key.Namespace][key]
	if p == nil || p.home == nil || p.index < 0 {
		return 0
	}
	n := 0
	for _, other := range p.home.waiting {
		if n == limit {
			break
		}
		if other != p && other.before(p) {
			n++
		}
	}
	return n
}

// Observe notes a created or changed budget, and returns the requests to try now.
func (q *budgetQueue) Observe(pdb *policyv1.PodDisruptionBudget) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.budgets[pdb.Namespace][pdb.Name]
	if b == nil {
		b = &budget{inFlight: map[*budgetPlace]struct{}{}}
		if q.budgets[pdb.Namespace] == nil {
			q.budgets[pdb.Namespace] = map[string]*budget{}
		}
		q.budgets[pdb.Namespace][pdb.Name] = b
	}
	b.seen++
	b.judged = false
	if len(b.waiting) == 0 {
		b.never = "" // Whoever comes next asks again.
	}
	if b.generation != pdb.Generation {
		b.generation, b.changed, b.allowedOne = pdb.Generation, true, false
	}
	b.allowed, b.observed = 0, pdb.Status.ObservedGeneration >= pdb.Generation
	if b.observed {
		b.allowed = int(pdb.Status.DisruptionsAllowed)
	}
	if b.allowed > 0 {
		b.allowedOne, b.changed = true, false
	}
	var wake []types.NamespacedName
	for p := range b.inFlight {
		if _, ok := pdb.Status.DisruptedPods[p.pod]; !ok {
			continue
		}
		p.counted = true
		if p.phase == budgetAdmitted {
			wake = append(wake, q.drop(p)...)
		}
	}
	if b.selector == nil || !reflect.DeepEqual(b.source, pdb.Spec.Selector) {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil {
			// The eviction API skips a budget whose selector it cannot read
			// (eviction.go, getPodDisruptionBudgets).
			selector = labels.Nothing()
		}
		b.selector, b.source = selector, pdb.Spec.Selector.DeepCopy()
		wake = append(wake, q.reassessAll(pdb.Namespace)...)
	}
	return append(wake, b.wake()...)
}

// Remove notes a deleted budget, and returns the requests to try now.
func (q *budgetQueue) Remove(name types.NamespacedName) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.budgets[name.Namespace], name.Name)
	if len(q.budgets[name.Namespace]) == 0 {
		delete(q.budgets, name.Namespace)
	}
	return q.reassessAll(name.Namespace)
}

// reassessAll reassesses all places of a namespace whose budgets changed, the oldest
// first.
func (q *budgetQueue) reassessAll(namespace string) []types.NamespacedName {
	places := slices.SortedFunc(maps.Values(q.places[namespace]), func(a, b *budgetPlace) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	var wake []types.NamespacedName
	for _, p := range places {
		wake = append(wake, q.reassess(p)...)
	}
	return wake
}

// reassess finds the budgets that select a waiting pod. If one that blocked it no
// longer does, and the others allow it, the pod is tried.
func (q *budgetQueue) reassess(p *budgetPlace) []types.NamespacedName {
	if p.phase == budgetCalling || p.phase == budgetAdmitted {
		return nil // The end of the attempt reassesses.
	}
	names := q.selecting(p)
	if slices.Equal(names, p.names) {
		return nil
	}
	lost := slices.ContainsFunc(p.names, func(n string) bool { return !slices.Contains(names, n) })
	former, woken := p.home, p.phase == budgetWoken
	p.leave()
	if lost && len(names) <= 1 {
		p.phase = budgetWoken
	}
	q.settle(p)
	var wake []types.NamespacedName
	if p.phase == budgetWoken && !woken {
		wake = append(wake, p.key)
	}
	if former != nil {
		wake = append(wake, former.wake()...)
	}
	if p.home != nil {
		wake = append(wake, p.home.wake()...)
	}
	return wake
}

// settle assigns a home to a place without one.
func (q *budgetQueue) settle(p *budgetPlace) {
	p.names = q.selecting(p)
	if len(p.names) != 1 {
		return
	}
	p.home = q.budgets[p.key.Namespace][p.names[0]]
	if p.phase == budgetWaiting {
		heap.Push(&p.home.waiting, p)
	} else {
		p.home.inFlight[p] = struct{}{}
	}
}

// selecting returns the names of the budgets that select the pod, sorted.
func (q *budgetQueue) selecting(p *budgetPlace) []string {
	var names []string
	for name, b := range q.budgets[p.key.Namespace] {
		if b.selector.Matches(p.labels) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// drop removes a place and wakes others for its room.
func (q *budgetQueue) drop(p *budgetPlace) []types.NamespacedName {
	home := p.home
	p.leave()
	delete(q.places[p.key.Namespace], p.key)
	if len(q.places[p.key.Namespace]) == 0 {
		delete(q.places, p.key.Namespace)
	}
	if home == nil {
		return nil
	}
	return home.wake()
}

// leave removes a place from its home.
func (p *budgetPlace) leave() {
	if p.home == nil {
		return
	}
	if p.index >= 0 {
		heap.Remove(&p.home.waiting, p.index)
	}
	delete(p.home.inFlight, p)
	p.home = nil
}

// before orders places: the oldest request first, ties by name.
func (p *budgetPlace) before(other *budgetPlace) bool {
	if !p.since.Equal(other.since) {
		return p.since.Before(other.since)
	}
	return p.key.Name < other.key.Name
}

// wake moves as many waiting places into flight as the budget has room for.
func (b *budget) wake() []types.NamespacedName {
	var keys []types.NamespacedName
	for len(b.waiting) > 0 && len(b.inFlight) < b.allowed {
		p := heap.Pop(&b.waiting).(*budgetPlace)
		p.phase = budgetWoken
		b.inFlight[p] = struct{}{}
		keys = append(keys, p.key)
	}
	return keys
}
