package registration

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// snapshot is the registry at one moment. It never changes, so look-ups need no
// lock.
//
// Every registration has a slot, a small number that does not change while it exists,
// so that sets of registrations are bitsets. The candidates for a pod are the
// registrations indexed under each of its labels, and the few that cannot be indexed by
// label. Of those, the ones remain whose namespaceSelector selects the pod's namespace,
// which is computed when the namespace or the registration changes. Hooks are in none of
// these: those of the pod's namespace are candidates. Budgets have no slots.
type snapshot struct {
	slots []*entry // Nil where a slot is free.
	// ordered counts the registrations with an order that are in force.
	ordered int
	// bySource is by the key of the object: NAME, or NAMESPACE/NAME of a hook.
	bySource map[string]int
	// Registrations that require a label with a value or, if they do not say which
	// value, a label. Each is in one of these three, or in several values of one key.
	byLabel map[label][]int
	byKey   map[string][]int
	anyPod  bitset
	// hooks are by their namespace.
	hooks map[string][]int
	// budgets are by their namespace.
	budgets map[string][]budget
	// namespaces has those that exist.
	namespaces map[string]*namespaceView
}

type label struct{ key, value string }

// namespaceView is a namespace and the registrations that select it, without hooks.
type namespaceView struct {
	object *corev1.Namespace
	// text is all that expressions see of it, for the memo.
	text string
	by   bitset
}

// input is what expressions see of a pod in the namespace, which may be unknown.
func (v *namespaceView) input(pod *corev1.Pod) celInput {
	if v == nil {
		return celInput{pod: pod}
	}
	return celInput{pod: pod, namespace: v.object, namespaceText: v.text}
}

// clone returns a copy that may be changed.
func (s *snapshot) clone() *snapshot {
	return &snapshot{
		slots:      slices.Clone(s.slots),
		ordered:    s.ordered,
		bySource:   maps.Clone(s.bySource),
		byLabel:    maps.Clone(s.byLabel),
		byKey:      maps.Clone(s.byKey),
		anyPod:     slices.Clone(s.anyPod),
		hooks:      maps.Clone(s.hooks),
		budgets:    maps.Clone(s.budgets),
		namespaces: maps.Clone(s.namespaces),
	}
}

func newSnapshot() *snapshot {
	return &snapshot{
		bySource:   map[string]int{},
		byLabel:    map[label][]int{},
		byKey:      map[string][]int{},
		hooks:      map[string][]int{},
		budgets:    map[string][]budget{},
		namespaces: map[string]*namespaceView{},
	}
}

// put adds a registration, or replaces an older generation.
func (s *snapshot) put(e *entry) {
	slot, ok := s.bySource[e.key]
	if ok {
		s.countOrders(s.slots[slot], -1)
		s.unindex(slot)
	} else {
		if slot = slices.Index(s.slots, nil); slot < 0 {
			slot = len(s.slots)
			s.slots = append(s.slots, nil)
		}
		s.bySource[e.key] = slot
	}
	s.slots[slot] = e
	s.countOrders(e, 1)
	if e.refused == nil {
		s.index(slot)
	}
}

// countOrders adds to the number of registrations with an order.
func (s *snapshot) countOrders(e *entry, n int) {
	if e.orders() {
		s.ordered += n
	}
}

// remove removes a registration.
func (s *snapshot) remove(key string) {
	slot, ok := s.bySource[key]
	if !ok {
		return
	}
	s.countOrders(s.slots[slot], -1)
	s.unindex(slot)
	s.slots[slot] = nil
	delete(s.bySource, key)
}

// putNamespace adds or replaces a namespace.
func (s *snapshot) putNamespace(namespace *corev1.Namespace) {
	view := &namespaceView{object: namespace, text: textOf(namespace)}
	for slot, e := range s.slots {
		if e != nil && e.refused == nil && !e.isHook() && e.matchNamespace(namespace) {
			view.by = view.by.with(slot)
		}
	}
	s.namespaces[namespace.Name] = view
}

func (s *snapshot) index(slot int) {
	e := s.slots[slot]
	if e.isHook() {
		s.hooks[e.hook.Namespace] = append(slices.Clip(s.hooks[e.hook.Namespace]), slot)
		return
	}
	switch values, key := indexUnder(e.pods); {
	case len(values) > 0:
		for _, l := range values {
			s.byLabel[l] = append(slices.Clip(s.byLabel[l]), slot)
		}
	case key != "":
		s.byKey[key] = append(slices.Clip(s.byKey[key]), slot)
	default:
		s.anyPod = s.anyPod.with(slot)
	}
	for name, view := range s.namespaces {
		if e.matchNamespace(view.object) {
			s.namespaces[name] = &namespaceView{view.object, view.text, view.by.with(slot)}
		}
	}
}

func (s *snapshot) unindex(slot int) {
	e := s.slots[slot]
	if e.isHook() {
		without(s.hooks, e.hook.Namespace, slot)
		return
	}
	values, key := indexUnder(e.pods)
	for _, l := range values {
		without(s.byLabel, l, slot)
	}
	without(s.byKey, key, slot)
	s.anyPod = s.anyPod.without(slot)
	for name, view := range s.namespaces {
		if view.by.has(slot) {
			s.namespaces[name] = &namespaceView{view.object, view.text, view.by.without(slot)}
		}
	}
}

// without returns a list of an index without a slot. It copies the list, because an
// older snapshot may share it.
func without[K comparable](index map[K][]int, at K, slot int) {
	var rest []int
	for _, s := range index[at] {
		if s != slot {
			rest = append(rest, s)
		}
	}
	if len(rest) == 0 {
		delete(index, at)
		return
	}
	index[at] = rest
}

// maxIndexedValues is the largest number of values of one key for indexing a selector.
const maxIndexedValues = 32

// indexUnder returns how to index a selector: by labels of which a pod must have one,
// else by a key that it must have, else not at all.
func indexUnder(selector labels.Selector) (values []label, key string) {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil, ""
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if n := r.Values().Len(); n > maxIndexedValues || values != nil && n >= len(values) {
				key = r.Key()
				continue
			}
			values = nil
			for _, value := range r.Values().List() {
				values = append(values, label{r.Key(), value})
			}
		case selection.Exists:
			key = r.Key()
		default: // A pod without the key may match.
		}
	}
	if values != nil {
		return values, ""
	}
	return nil, key
}

// candidates calls yield for each registration that the indexes return for a pod: it
// selects the namespace, if known, and requires no label that the pod lacks. The rest
// of its selector and its conditions are not checked yet.
func (s *snapshot) candidates(pod *corev1.Pod, namespace *namespaceView, yield func(slot int, e *entry)) {
	check := func(slot int) {
		if namespace == nil || namespace.by.has(slot) {
			yield(slot, s.slots[slot])
		}
	}
	for key, value := range pod.Labels {
		for _, slot := range s.byLabel[label{key, value}] {
			check(slot)
		}
		for _, slot := range s.byKey[key] {
			check(slot)
		}
	}
	for _, slot := range s.hooks[pod.Namespace] {
		yield(slot, s.slots[slot])
	}
	if namespace != nil {
		s.anyPod.each(namespace.by, func(slot int) { yield(slot, s.slots[slot]) })
		return
	}
	s.anyPod.each(s.anyPod, check)
}

// looksAt reports whether a registration may select pods of a namespace, which may be
// unknown.
func (s *snapshot) looksAt(slot int, name string, namespace *namespaceView) bool {
	if e := s.slots[slot]; e.isHook() {
		return e.hook.Namespace == name
	}
	return namespace == nil || namespace.by.has(slot)
}

// count is the number of EvictionInterceptors.
func (s *snapshot) count() (accepted, refused int) {
	for _, e := range s.slots {
		switch {
		case e == nil || e.isHook():
		case e.refused == nil:
			accepted++
		default:
			refused++
		}
	}
	return accepted, refused
}

// known returns the entry of a registration and its slot.
func (s *snapshot) known(key string) (e *entry, slot int, ok bool) {
	if slot, ok = s.bySource[key]; !ok {
		return nil, 0, false
	}
	return s.slots[slot], slot, true
}
