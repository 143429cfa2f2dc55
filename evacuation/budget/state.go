package budget

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// maxGone is how many pods that have left a budget remembers between two decisions.
const maxGone = 1024

// state is what is known of all budgets, in memory: their pods and the requests that wait
// for them. It is fed by informers, so that a decision lists nothing. An event costs a look
// at the budgets of its namespace.
type state struct {
	client client.Reader // Reads from the cache.
	// changed is told the budgets to decide about, and wake the requests to tell.
	changed func(budget types.NamespacedName)
	wake    func(request types.NamespacedName)

	mu     sync.Mutex
	spaces map[string]*space
}

// space is a namespace with budgets.
type space struct {
	// deciding makes one decision follow the other.
	deciding *sequence
	budgets  map[string]*entry
	pods     map[types.UID]*corev1.Pod
	requests map[types.UID]*request
	// covering are the budgets of which a pod is a member, by name.
	covering map[types.UID][]*entry
	// ended is since when requests are seen as ended whose pods were let go in spite of a
	// PodDisruptionBudget, and stay. It changes only by decisions.
	ended map[string]time.Time
}

// entry is a budget.
type entry struct {
	*compiled
	members map[types.UID]*member
	// gone are pods that have left, of which the first ones, as many as decided, were part of
	// the decision that is being made.
	gone    []gonePod
	decided int
	// asked: the conditions of this generation were evaluated before.
	asked bool
	grantStatus
}

// member is a covered pod that has not ended.
type member struct {
	pod    *corev1.Pod // What it points to is shared with the informer.
	group  string
	placed bool
	// left is when it was deleted, as first seen: the API server moves the deletionTimestamp to
	// the end of a pod when that is over. Zero if it was not.
	left time.Time
}

// gonePod is a covered pod that has left.
type gonePod struct {
	uid    types.UID
	member member
	at     time.Time
	// decidedAs is what the decision about it saw.
	decidedAs grant.Gone
}

func newState(c client.Reader, changed, wake func(types.NamespacedName)) *state {
	return &state{client: c, changed: changed, wake: wake, spaces: map[string]*space{}}
}

// putBudget adds a budget or another generation of it.
func (st *state) putBudget(from *v1alpha1.EvictionBudget) {
	key := client.ObjectKeyFromObject(from)
	st.mu.Lock()
	s := st.spaces[from.Namespace]
	if s != nil {
		if known := s.budgets[from.Name]; known != nil && known.uid == from.UID && known.generation == from.Generation {
			known.saw(from)
			st.mu.Unlock()
			return
		}
	}
	st.mu.Unlock()
	p := compile(from) // Takes milliseconds. Events of a kind come one after the other.
	st.mu.Lock()
	if s == nil {
		s = st.newSpace(from.Namespace)
	}
	e := &entry{compiled: p, members: map[types.UID]*member{}}
	if known := s.budgets[from.Name]; known != nil && known.uid == from.UID {
		// A decision may be under way that still changes the list of the old one.
		e.grantStatus, e.gone = known.grantStatus, slices.Clone(known.gone)
	}
	e.saw(from)
	s.forget(s.budgets[from.Name])
	s.budgets[from.Name] = e
	for _, pod := range s.pods {
		st.observe(s, e, pod)
	}
	st.mu.Unlock()
	st.changed(key)
	st.wakeAll(from.Namespace) // Also those whose pods it covers no more.
}

// newSpace begins to follow a namespace, with what the cache has: events of older states
// that are still to come are corrected by the newer ones after them.
func (st *state) newSpace(namespace string) *space {
	s := &space{deciding: newSequence(), budgets: map[string]*entry{}, pods: map[types.UID]*corev1.Pod{}, requests: map[types.UID]*request{}, covering: map[types.UID][]*entry{}}
	st.spaces[namespace] = s
	var list corev1.PodList
	// The cache answers from memory: it does not fail.
	if err := st.client.List(context.Background(), &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err == nil {
		for i := range list.Items {
			if pod := &list.Items[i]; !pods.HasEnded(pod) {
				s.pods[pod.UID] = pod
			}
		}
	}
	var requests v1alpha1.EvictionRequestList
	if err := st.client.List(context.Background(), &requests, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err == nil {
		for i := range requests.Items {
			s.see(&requests.Items[i])
		}
	}
	return s
}

// removeBudget forgets a budget that was deleted.
func (st *state) removeBudget(key types.NamespacedName) {
	st.mu.Lock()
	if s := st.spaces[key.Namespace]; s != nil {
		s.forget(s.budgets[key.Name])
		delete(s.budgets, key.Name)
	}
	st.mu.Unlock()
	st.changed(key)
	st.wakeAll(key.Namespace)
}

// wakeAll wakes all requests of a namespace that wait, to be decided about anew. What was
// granted stays granted.
func (st *state) wakeAll(namespace string) {
	st.mu.Lock()
	var wake []types.NamespacedName
	if s := st.spaces[namespace]; s != nil {
		for _, r := range s.requests {
			if r.waits && !r.answer.granted {
				r.answer = answer{}
				wake = append(wake, r.key)
			}
		}
	}
	st.mu.Unlock()
	for _, key := range wake {
		st.wake(key)
	}
}

// putPod notes a pod.
func (st *state) putPod(pod *corev1.Pod, now time.Time) {
	st.mu.Lock()
	s := st.spaces[pod.Namespace]
	if s == nil {
		st.mu.Unlock()
		return
	}
	var changed []string
	before := s.pods[pod.UID]
	switch {
	case pods.HasEnded(pod):
		changed = st.leave(s, pod, now)
	case before != nil && maps.Equal(before.Labels, pod.Labels) && pods.StaysOnNode(before) == pods.StaysOnNode(pod):
		// Who covers it does not change, so the others need not be asked.
		s.pods[pod.UID] = pod
		for _, e := range s.covering[pod.UID] {
			if st.observe(s, e, pod) {
				changed = append(changed, e.key.Name)
			}
		}
	default:
		s.pods[pod.UID] = pod
		for _, e := range s.budgets {
			if st.observe(s, e, pod) {
				changed = append(changed, e.key.Name)
			}
		}
	}
	st.mu.Unlock()
	st.tell(pod.Namespace, changed)
}

// removePod notes that a pod is gone.
func (st *state) removePod(pod *corev1.Pod, now time.Time) {
	st.mu.Lock()
	s := st.spaces[pod.Namespace]
	if s == nil {
		st.mu.Unlock()
		return
	}
	changed := st.leave(s, pod, now)
	st.mu.Unlock()
	st.tell(pod.Namespace, changed)
}

func (st *state) tell(namespace string, budgets []string) {
	for _, name := range budgets {
		st.changed(types.NamespacedName{Namespace: namespace, Name: name})
	}
}

// leave removes a pod, and returns the budgets that covered it.
func (st *state) leave(s *space, pod *corev1.Pod, now time.Time) (changed []string) {
	delete(s.pods, pod.UID)
	for _, e := range s.covering[pod.UID] {
		m := e.members[pod.UID]
		delete(e.members, pod.UID)
		changed = append(changed, e.key.Name)
		if m.placed && len(e.gone) < maxGone {
			e.gone = append(e.gone, gonePod{uid: pod.UID, member: *m, at: now})
		}
	}
	delete(s.covering, pod.UID)
	return changed
}

// observe notes a pod for a budget, and reports whether that may change a decision.
func (st *state) observe(s *space, e *entry, pod *corev1.Pod) (changed bool) {
	known := e.members[pod.UID]
	// What stays on its node is never asked for.
	if pods.StaysOnNode(pod) || !e.selector.Matches(labels.Set(pod.Labels)) {
		if known != nil {
			delete(e.members, pod.UID)
			s.uncover(pod.UID, e)
		}
		return known != nil
	}
	if known == nil {
		s.cover(pod.UID, e)
	}
	m := &member{pod: pod}
	m.group, m.placed = st.groupOf(e.compiled, pod, known)
	switch {
	case known != nil && !known.left.IsZero():
		m.left = known.left
	case pod.DeletionTimestamp != nil:
		m.left = leavesSince(pod)
	}
	e.members[pod.UID] = m
	return known == nil || known.group != m.group || known.placed != m.placed || pods.DeletionChanged(known.pod, pod) ||
		readyOf(known.pod) != readyOf(pod)
}

// cover notes that a pod is a member of a budget.
func (s *space) cover(pod types.UID, e *entry) {
	all := s.covering[pod]
	at, _ := slices.BinarySearchFunc(all, e.key.Name, func(e *entry, name string) int { return strings.Compare(e.key.Name, name) })
	s.covering[pod] = slices.Insert(all, at, e)
}

// uncover notes that it is none any more.
func (s *space) uncover(pod types.UID, e *entry) {
	left := slices.DeleteFunc(s.covering[pod], func(other *entry) bool { return other == e })
	if s.covering[pod] = left; len(left) == 0 {
		delete(s.covering, pod)
	}
}

// forget notes that no pod is a member of a budget any more. It may be nil.
func (s *space) forget(e *entry) {
	if e == nil {
		return
	}
	for pod := range e.members {
		s.uncover(pod, e)
	}
}

// groupOf is the group of a pod, and whether it is known. A pod whose node is gone keeps
// its group.
func (st *state) groupOf(p *compiled, pod *corev1.Pod, known *member) (group string, placed bool) {
	switch {
	case p.podLabel != "":
		return pod.Labels[p.podLabel], true
	case p.nodeLabel == "":
		return "", true
	case pod.Spec.NodeName == "":
		return "", false
	}
	node := &corev1.Node{}
	if err := st.client.Get(context.Background(), types.NamespacedName{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		if known != nil {
			return known.group, known.placed
		}
		return "", true
	}
	return node.Labels[p.nodeLabel], true
}

// putNode notes that a node's labels are others.
func (st *state) putNode() {
	st.mu.Lock()
	var changed []types.NamespacedName
	for _, s := range st.spaces {
		for _, e := range s.budgets {
			if e.nodeLabel != "" {
				changed = append(changed, e.key)
			}
		}
	}
	st.mu.Unlock()
	for _, key := range changed {
		st.changed(key)
	}
}

// regroup looks the nodes of all members up again, whose labels may have changed.
func (st *state) regroup(e *entry) {
	if e.nodeLabel == "" {
		return
	}
	of := map[string]string{}
	for _, m := range e.members {
		name := m.pod.Spec.NodeName
		group, ok := of[name]
		if !ok {
			if group, m.placed = st.groupOf(e.compiled, m.pod, m); !m.placed {
				continue
			}
			of[name] = group
		}
		m.group, m.placed = group, true
	}
}

// readyOf is since when a pod is ready, zero if it is not.
func readyOf(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
