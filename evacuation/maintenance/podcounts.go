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

// podCounts counts the pods to evacuate, by node, so that no event needs a list. It holds
// only nodes that are being drained. It is safe for concurrent use.
type podCounts struct {
	mu    sync.Mutex
	nodes map[string]*nodeCounts
	// gone is how many pods have left, by maintenance and node.
	gone map[string]*goneCounts
	// departed has the UIDs of the last pods that have left. One may leave between the
	// moment when somebody reads it from the cache and the moment when he counts it: then
	// nothing would ever tell of it again.
	departed *lru.Cache
}

// maxDeparted bounds departed. So many pods do not leave while one is looked at.
const maxDeparted = 4096

// goneCounts is how many pods have left, by node. Until resume, the counts of earlier
// processes are missing.
type goneCounts struct {
	resumed bool
	nodes   map[string]int32
}

type nodeCounts struct {
	// drains are the maintenances that drain the node, by name.
	drains []string
	pods   map[types.NamespacedName]countedPod
	// count is that of all pods but those of DaemonSets, and daemons that of these, by the
	// maintenance that takes them.
	count   Count
	daemons map[string]*Count
}

// add adds a pod to the count that it belongs to, or removes it.
func (n *nodeCounts) add(pod countedPod, by int32) {
	if pod.takers == nil {
		n.count.add(pod, by)
	}
	for _, maintenance := range pod.takers {
		if n.daemons[maintenance] == nil {
			n.daemons[maintenance] = &Count{}
		}
		n.daemons[maintenance].add(pod, by)
	}
}

type countedPod struct {
	uid   types.UID
	class Class
	block *Block
	// until is when its eviction is requested; zero if it is not left to its owner.
	until time.Time
	// deleting: only its kubelet has to confirm its end.
	deleting bool
	// takers are the maintenances that take it, if it is the pod of a DaemonSet; nil for all that
	// drain the node.
	takers []string
}

func newPodCounts() *podCounts {
	return &podCounts{nodes: map[string]*nodeCounts{}, gone: map[string]*goneCounts{}, departed: lru.New(maxDeparted)}
}

// drain notes which maintenances drain the node. It reports whether there were none
// before, so that the node's pods are unknown.
func (p *podCounts) drain(node string, drains []string) (begins bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	switch {
	case len(drains) == 0:
		delete(p.nodes, node)
		return false
	case n != nil:
		n.drains = drains
		return false
	}
	p.nodes[node] = &nodeCounts{drains: drains, pods: map[types.NamespacedName]countedPod{}, daemons: map[string]*Count{}}
	return true
}

// drains are the maintenances that drain the node.
func (p *podCounts) drains(node string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[node]; n != nil {
		return n.drains
	}
	return nil
}

// put counts a pod of a node. It reports whether anything has changed. Nodes that are
// not drained, and pods that have left, are ignored.
func (p *podCounts) put(node string, pod types.NamespacedName, uid types.UID, now countedPod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil || now.class == ClassNone {
		return false
	}
	if _, left := p.departed.Get(uid); left {
		return false
	}
	before, known := n.pods[pod]
	now.uid = uid
	if known && before.uid == uid && before.class == now.class && equalBlocks(before.block, now.block) && before.until.Equal(now.until) && before.deleting == now.deleting && slices.Equal(before.takers, now.takers) {
		return false
	}
	if known {
		n.add(before, -1)
	}
	n.pods[pod] = now
	n.add(now, 1)
	return true
}

// knows reports whether this pod is counted.
func (p *podCounts) knows(node string, pod types.NamespacedName, uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	return n != nil && n.pods[pod].uid == uid && uid != ""
}

// depart is drop for a pod that has left, and is not counted again.
func (p *podCounts) depart(node string, pod types.NamespacedName, uid types.UID) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[node] != nil {
		p.departed.Add(uid, nil)
	}
	return p.dropped(node, pod, uid)
}

// drop stops counting a pod. It returns the maintenances that counted it, none if this
// pod was not counted.
func (p *podCounts) drop(node string, pod types.NamespacedName, uid types.UID) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dropped(node, pod, uid)
}

func (p *podCounts) dropped(node string, pod types.NamespacedName, uid types.UID) []string {
	n := p.nodes[node]
	if n == nil {
		return nil
	}
	before, known := n.pods[pod]
	if !known || before.uid != uid {
		return nil
	}
	delete(n.pods, pod)
	n.add(before, -1)
	if before.takers != nil {
		return before.takers
	}
	return n.drains
}

// left counts a pod that has left the node, for a maintenance.
func (p *podCounts) left(maintenance, node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.goneOf(maintenance).nodes[node]++
}

func (p *podCounts) goneOf(maintenance string) *goneCounts {
	if p.gone[maintenance] == nil {
		p.gone[maintenance] = &goneCounts{nodes: map[string]int32{}}
	}
	return p.gone[maintenance]
}

// resume takes over, once, what earlier processes counted for a maintenance.
func (p *podCounts) resume(maintenance string, from v1alpha1.NodeMaintenanceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := p.goneOf(maintenance)
	if gone.resumed {
		return
	}
	gone.resumed = true
	for _, node := range from.Nodes {
		gone.nodes[node.Name] += node.PodsEvacuated
	}
}

// goneFrom is how many pods have left the node, for a maintenance.
func (p *podCounts) goneFrom(maintenance, node string) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone := p.gone[maintenance]; gone != nil {
		return gone.nodes[node]
	}
	return 0
}

// hadDaemons reports whether pods of DaemonSets were counted on the node for a maintenance, since its
// pods are counted.
func (p *podCounts) hadDaemons(maintenance, node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	return n != nil && n.daemons[maintenance] != nil
}

// restart resets the count of a maintenance.
func (p *podCounts) restart(maintenance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[maintenance] = &goneCounts{resumed: true, nodes: map[string]int32{}}
}

// forget forgets a maintenance that is gone.
func (p *podCounts) forget(maintenance string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gone, maintenance)
}

// count returns the count of a node for a maintenance, with names of blocking pods.
func (p *podCounts) count(maintenance, node string) Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[node]
	if n == nil {
		return Count{}
	}
	count := n.count
	if daemons := n.daemons[maintenance]; daemons != nil {
		count = count.plus(daemons)
	}
	if count.Blocking == 0 && count.Waiting == 0 {
		return count
	}
	for key, pod := range n.pods {
		if pod.takers != nil && !slices.Contains(pod.takers, maintenance) {
			continue
		}
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
func (c *Count) add(pod countedPod, by int32) {
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
	if pod.deleting {
		c.Deleting += by
	}
}

// plus is the sum of the numbers.
func (c *Count) plus(more *Count) Count {
	return Count{
		Pending: c.Pending + more.Pending, Evacuating: c.Evacuating + more.Evacuating, Blocking: c.Blocking + more.Blocking,
		Waiting: c.Waiting + more.Waiting, Deleting: c.Deleting + more.Deleting,
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
