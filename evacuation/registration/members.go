package registration

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
)

// members counts how many pods each registration selects and for how many an expression
// fails. A pod's event costs one evaluation of that pod; a change of a registration
// costs one pass over all pods, for that registration only. One goroutine does all of
// it, so that neither the informers nor admission wait.
type members struct {
	registry *Registry
	// notify is called with the key of a registration whose counts have changed since its
	// last report.
	notify func(key string)
	queue  workqueue.TypedInterface[work]

	mu   sync.Mutex
	pods map[types.NamespacedName]*member
	// counts are by slot.
	counts []podCounts
	// loading: the initial pods are still coming. They are counted afterwards, in one
	// pass per registration: a queue of all pods would keep its size forever.
	loading bool
	// complete: all initial pods have been counted.
	complete bool
}

// member is a pod and the slots of the registrations that select it or fail for it.
type member struct {
	held              any // The pod as the informer holds it, see packed.Of. Nil when it is gone.
	matching, failing bitset
}

// podCounts are those of a registration.
type podCounts struct {
	entry             *entry // The counted entry, nil if the slot was free.
	matching, failing int
	emitted           bool
}

// work is one item of the queue: a pod, a registration by its key, a namespace, or, with all of
// them empty, the end of the initial count.
type work struct {
	pod                     types.NamespacedName
	registration, namespace string
}

func newMembers(registry *Registry, notify func(key string)) *members {
	return &members{
		registry: registry, notify: notify, pods: map[types.NamespacedName]*member{},
		queue: workqueue.NewTyped[work](),
	}
}

// start begins to count and returns. It ends with the context.
func (m *members) start(ctx context.Context, cached cache.Informers) error {
	informer, err := cached.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch pods to count them: %w", err)
	}
	m.loading = true
	handler, err := informer.AddEventHandler(informers.Keeping{ResourceEventHandler: toolscache.ResourceEventHandlerFuncs{
		AddFunc:    m.see,
		UpdateFunc: func(_, obj any) { m.see(obj) },
		DeleteFunc: m.gone,
	}})
	if err != nil {
		return fmt.Errorf("watch pods to count them: %w", err)
	}
	m.registry.subscribe(m.changed)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), m.registry.Synced, handler.HasSynced) {
			m.loaded()
		}
		<-ctx.Done()
		m.queue.ShutDown()
		_ = informer.RemoveEventHandler(handler) // The informer ends, too.
	}()
	go func() {
		for m.next() {
		}
	}()
	return nil
}

// loaded counts the initial pods. Later pods are handled individually.
func (m *members) loaded() {
	m.mu.Lock()
	m.loading = false
	m.mu.Unlock()
	m.changed(change{})
	m.queue.Add(work{}) // After all registrations, as the queue is in order.
}

// see notes a pod.
func (m *members) see(obj any) {
	key, ok := packed.Key(obj)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[key]
	if known == nil {
		known = &member{}
		m.pods[key] = known
	}
	known.held = obj
	if !m.loading {
		m.queue.Add(work{pod: key})
	}
}

func (m *members) gone(obj any) {
	name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	namespace, pod, err := toolscache.SplitMetaNamespaceKey(name)
	if err != nil {
		return
	}
	key := types.NamespacedName{Namespace: namespace, Name: pod}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.pods[key]; known != nil {
		known.held = nil
		m.queue.Add(work{pod: key})
	}
}

// changed notes a change of the registry.
func (m *members) changed(c change) {
	m.mu.Lock()
	loading := m.loading
	m.mu.Unlock()
	if loading {
		return // All are counted at the end; a pass now would see only some of the pods.
	}
	if c.budgets != "" || c.native {
		return // The controller of budgets counts, and responders are no registration.
	}
	if c != (change{}) {
		m.queue.Add(work{registration: c.registration, namespace: c.namespace})
		return
	}
	for key := range m.registry.snapshot().bySource {
		m.queue.Add(work{registration: key})
	}
}

// next handles one item, and reports whether there will be more.
func (m *members) next() bool {
	item, ended := m.queue.Get()
	if ended {
		return false
	}
	defer m.queue.Done(item)
	var changed []string
	switch s := m.registry.snapshot(); {
	case item.pod.Name != "":
		changed = m.observe(s, item.pod)
	case item.registration != "":
		changed = m.count(s, item.registration)
	case item.namespace != "":
		for _, key := range m.keys(item.namespace) {
			changed = append(changed, m.observe(s, key)...)
		}
	default:
		changed = m.completed()
	}
	for _, key := range changed {
		m.notify(key)
	}
	return true
}

// observe evaluates a pod, and returns the keys of the registrations whose counts change.
func (m *members) observe(s *snapshot, key types.NamespacedName) []string {
	m.mu.Lock()
	known := m.pods[key]
	if known == nil {
		m.mu.Unlock()
		return nil
	}
	pod := packed.Of(known.held)
	m.mu.Unlock()

	var matching, failing bitset
	if pod != nil {
		// A namespace that is not known yet comes with an event of its own.
		_ = m.registry.each(s, pod, func(slot int, _ *entry, match bool, failure error) {
			if match {
				matching = matching.set(slot, true)
			}
			if failure != nil {
				failing = failing.set(slot, true)
			}
		})
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	var changed []string
	update := func(slot int) {
		changed = append(changed, m.set(known, slot, matching.has(slot), failing.has(slot))...)
	}
	matching.differ(known.matching, update)
	failing.differ(known.failing, update)
	// A pod that was deleted during the evaluation is evaluated again: it was just
	// counted.
	if pod == nil && known.held == nil && m.pods[key] == known {
		delete(m.pods, key)
	}
	return changed
}

// count evaluates one registration for all pods. It also takes over a reused slot.
func (m *members) count(s *snapshot, key string) (changed []string) {
	slots := map[int]bool{}
	if _, slot, ok := s.known(key); ok {
		slots[slot] = true
	}
	m.mu.Lock()
	for slot, t := range m.counts {
		if t.entry != nil && t.entry.key == key {
			slots[slot] = true
		}
	}
	m.mu.Unlock()

	for slot := range slots {
		m.mu.Lock()
		m.grow(slot)
		same := m.counts[slot].entry == s.slots[slot]
		m.mu.Unlock()
		if same {
			continue // Already counted; later changes are separate items.
		}
		var scratch packed.Scratch // There may be very many.
		for _, known := range m.concerned(s, slot) {
			m.recount(s, slot, known, &scratch)
		}
		m.mu.Lock()
		// Another generation is always emitted.
		m.counts[slot].entry, m.counts[slot].emitted = s.slots[slot], false
		changed = append(changed, m.emit(slot)...)
		m.mu.Unlock()
	}
	return changed
}

// concerned are the pods whose result for the slot may be another now: all, but for a hook
// or a free slot only those of its namespace and those that were counted. There may be
// thousands of hooks.
func (m *members) concerned(s *snapshot, slot int) (pods []*member) {
	now := s.slots[slot]
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, known := range m.pods {
		may := now != nil && (!now.isHook() || now.hook.Namespace == key.Namespace)
		if may || known.matching.has(slot) || known.failing.has(slot) {
			pods = append(pods, known)
		}
	}
	return pods
}

func (m *members) recount(s *snapshot, slot int, known *member, scratch *packed.Scratch) {
	m.mu.Lock()
	pod := scratch.Of(known.held)
	m.mu.Unlock()
	match, failed := false, false
	if pod != nil {
		var failure error
		match, failure = m.registry.ask(s, slot, pod)
		failed = failure != nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(known, slot, match, failed)
}

// set notes the result of one registration for one pod, and returns its key if the
// counts changed.
func (m *members) set(known *member, slot int, match, failed bool) []string {
	matched, hadFailed := known.matching.has(slot), known.failing.has(slot)
	if match == matched && failed == hadFailed {
		return nil
	}
	m.grow(slot)
	t := &m.counts[slot]
	known.matching, known.failing = known.matching.set(slot, match), known.failing.set(slot, failed)
	t.matching += delta(matched, match)
	t.failing += delta(hadFailed, failed)
	return m.emit(slot)
}

func delta(before, after bool) int {
	switch {
	case after && !before:
		return 1
	case before && !after:
		return -1
	}
	return 0
}

func (m *members) grow(slot int) {
	for len(m.counts) <= slot {
		m.counts = append(m.counts, podCounts{})
	}
}

// emit returns the key of the slot's registration unless it was emitted before.
func (m *members) emit(slot int) []string {
	t := &m.counts[slot]
	if t.emitted || t.entry == nil || !m.complete {
		return nil
	}
	t.emitted = true
	return []string{t.entry.key}
}

func (m *members) completed() (changed []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete = true
	for slot := range m.counts {
		changed = append(changed, m.emit(slot)...)
	}
	return changed
}

// keys are the pods of a namespace.
func (m *members) keys(namespace string) (keys []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.pods {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// report is what is known about a registration's pods, for one generation.
type report struct {
	entry             *entry
	matching, failing int
	// example is a pod for which an expression fails, and why.
	example string
}

// report returns what is known about a registration, and whether its pods have been
// counted. Later changes are emitted again.
func (m *members) report(key string) (report, bool) {
	s := m.registry.snapshot()
	known, slot, ok := s.known(key)
	if !ok {
		return report{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.complete || slot >= len(m.counts) || m.counts[slot].entry != known {
		return report{entry: known}, false
	}
	t := &m.counts[slot]
	t.emitted = false
	r := report{entry: known, matching: t.matching, failing: t.failing}
	if r.failing > 0 {
		r.example = m.example(s, slot)
	}
	return r, true
}

// example is about the first of the pods by name, so that it stays the same.
func (m *members) example(s *snapshot, slot int) string {
	var name string
	var held any
	for key, known := range m.pods {
		if known.failing.has(slot) && known.held != nil && (held == nil || key.String() < name) {
			name, held = key.String(), known.held
		}
	}
	first := packed.Of(held)
	if first == nil {
		return ""
	}
	if _, failure := m.registry.ask(s, slot, first); failure != nil {
		return fmt.Sprintf("pod %s: %s", name, oneLine(failure))
	}
	return "" // It has just ended.
}
