package maintenance

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// tally counts the pods to evacuate, by node, so that no event needs a list. It holds
// only nodes that are being drained. It is safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	nodes map[string]*nodeTally
	// gone is how many pods have left, by maintenance and node.
	gone map[string]*goneTally
	// departed has the UIDs of the last pods that have left. One may leave between the
	// moment when somebody reads it from the cache and the moment when he counts it: then
	// nothing would ever tell of it again.
	departed *lru.Cache
}

// maxDeparted bounds departed. So many pods do not leave while one is looked at.
const maxDeparted = 4096

// goneTally is how many pods have left, by node. Until resume, the counts of earlier
// processes are missing.
type goneTally struct {
	resumed bool
	nodes   map[string]int32
}

type nodeTally struct {
	// drains are the maintenances that drain the node, by name.
	drains []string
	pods   map[types.NamespacedName]podTally
	count  Count
}

type podTally struct {
	uid   types.UID
	class Class
	block *Block
	// until is when its eviction is requested; zero if it is not left to its owner.
	until time.Time
}

func newTally() *tally {
	return &tally{nodes: map[string]*nodeTally{}, gone: map[string]*goneTally{}, departed: lru.New(maxDeparted)}
}

// drain notes which maintenances drain the node. It reports whether there were none
// before, so that the node's pods are unknown.
func (t *tally) drain(node string, drains []string) (begins bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	switch {
	case len(drains) == 0:
		delete(t.nodes, node)
		return false
	case n != nil:
		n.drains = drains
		return false
	}
	t.nodes[node] = &nodeTally{drains: drains, pods: map[types.NamespacedName]podTally{}}
	return true
}

// drains are the maintenances that drain the node.
func (t *tally) drains(node string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.nodes[node]; n != nil {
		return n.drains
	}
	return nil
}

// put counts a pod of a node. It reports whether anything has changed. Nodes that are
// not drained, and pods that have left, are ignored.
func (t *tally) put(node string, pod types.NamespacedName, uid types.UID, class Class, block *Block, until time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil || class == ClassNone {
		return false
	}
	if _, left := t.departed.Get(uid); left {
		return false
	}
	before, known := n.pods[pod]
	now := podTally{uid, class, block, until}
	if known && before.uid == uid && before.class == class && equalBlocks(before.block, block) && before.until.Equal(until) {
		return false
	}
	if known {
		n.count.add(before, -1)
	}
	n.pods[pod] = now
	n.count.add(now, 1)
	return true
}

// knows reports whether this pod is counted.
func (t *tally) knows(node string, pod types.NamespacedName, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	return n != nil && n.pods[pod].uid == uid && uid != ""
}

// depart is drop for a pod that has left, and is not counted again.
func (t *tally) depart(node string, pod types.NamespacedName, uid types.UID) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[node] != nil {
		t.departed.Add(uid, nil)
	}
	return t.dropped(node, pod, uid)
}

// drop stops counting a pod. It returns the maintenances that drained it, none if this
// pod was not counted.
func (t *tally) drop(node string, pod types.NamespacedName, uid types.UID) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped(node, pod, uid)
}

func (t *tally) dropped(node string, pod types.NamespacedName, uid types.UID) []string {
	n := t.nodes[node]
	if n == nil {
		return nil
	}
	before, known := n.pods[pod]
	if !known || before.uid != uid {
		return nil
	}
	delete(n.pods, pod)
	n.count.add(before, -1)
	return n.drains
}

// left counts a pod that has left the node, for a maintenance.
func (t *tally) left(maintenance, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.goneOf(maintenance).nodes[node]++
}

func (t *tally) goneOf(maintenance string) *goneTally {
	if t.gone[maintenance] == nil {
		t.gone[maintenance] = &goneTally{nodes: map[string]int32{}}
	}
	return t.gone[maintenance]
}

// resume takes over, once, what earlier processes counted for a maintenance.
func (t *tally) resume(maintenance string, from v1alpha1.NodeMaintenanceStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := t.goneOf(maintenance)
	if gone.resumed {
		return
	}
	gone.resumed = true
	for _, node := range from.Nodes {
		gone.nodes[node.Name] += node.PodsEvacuated
	}
}

// goneFrom is how many pods have left the node, for a maintenance.
func (t *tally) goneFrom(maintenance, node string) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone := t.gone[maintenance]; gone != nil {
		return gone.nodes[node]
	}
	return 0
}

// restart resets the count of a maintenance.
func (t *tally) restart(maintenance string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone[maintenance] = &goneTally{resumed: true, nodes: map[string]int32{}}
}

// forget forgets a maintenance that is gone.
func (t *tally) forget(maintenance string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.gone, maintenance)
}

// count returns the count of a node, with names of blocking pods.
func (t *tally) count(node string) Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil {
		return Count{}
	}
	count := n.count
	if count.Blocking == 0 && count.Waiting == 0 {
		return count
	}
	for key, pod := range n.pods {
		if pod.until.After(count.WaitingUntil) {
			count.WaitingUntil = pod.until
		}
		if pod.block != nil {
			count.Blocked = append(count.Blocked, v1alpha1.BlockingPod{
				Namespace: key.Namespace, Name: key.Name, Reason: pod.block.Reason, Message: shorten(pod.block.Message),
			})
		}
	}
	slices.SortFunc(count.Blocked, func(a, b v1alpha1.BlockingPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	count.Blocked = slices.Clip(count.Blocked[:min(len(count.Blocked), maxNamedPerNode)])
	return count
}

// add adds a pod to the count, or removes it.
func (c *Count) add(pod podTally, by int32) {
	c.Pending += by
	if pod.class == ClassEvacuating {
		c.Evacuating += by
	}
	if pod.block != nil {
		c.Blocking += by
	}
	if !pod.until.IsZero() {
		c.Waiting += by
	}
}

func equalBlocks(a, b *Block) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// maxMessage is the schema's limit of a blocking pod's message, in characters.
const maxMessage = 256

func shorten(message string) string {
	if runes := []rune(message); len(runes) > maxMessage {
		return string(runes[:maxMessage-1]) + "…"
	}
	return message
}
