package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
)

// branch is a node, a pod or an interceptor of the tree. What is not known is empty.
type branch struct {
	name, state   string
	since         time.Time
	eta, deadline time.Time
	requesters    []string
	message       string
	tone          text.Tone
	rank          int
	below         []branch
	// Of a node: its finished pods that are not below.
	evicted, canceled int
}

// Ranks of branches: what needs people comes first.
const (
	rankBlocked = iota
	rankWorking
	rankEvicting
	rankWaiting
	rankDone
)

// treeOf returns the nodes with their pods, and how many nodes are left out because nothing is in
// progress there. With all, none is, and finished pods are branches instead of a number.
func treeOf(f statusFacts, all bool) (nodes []branch, hidden int) {
	forest := map[string]*branch{}
	at := func(node string) *branch {
		if forest[node] == nil {
			forest[node] = &branch{name: cmp.Or(node, "node not known"), rank: rankDone}
		}
		return forest[node]
	}
	maintenances := f.maintenances
	if f.node != nil {
		maintenances = covering(f.node, maintenances)
	}
	blocking := map[string]v1alpha1.BlockingPod{} // By node, namespace and name.
	for i := range maintenances {
		for j := range maintenances[i].Status.Nodes {
			n := &maintenances[i].Status.Nodes[j]
			if f.node != nil && n.Name != f.node.Name {
				continue
			}
			at(n.Name).maintained(&maintenances[i], n)
			for _, pod := range n.BlockingPods {
				if f.namespace == "" || pod.Namespace == f.namespace {
					blocking[n.Name+" "+pod.Namespace+"/"+pod.Name] = pod
				}
			}
		}
	}
	for _, p := range f.evictions.processes {
		s := f.evictions.state(p)
		if f.node != nil && s.Node != f.node.Name {
			continue
		}
		pod := podBranch(p, s)
		if key := s.Node + " " + pod.name; pod.rank != rankDone {
			if why, stuck := blocking[key]; stuck {
				pod.blocked(why)
				delete(blocking, key)
			}
		}
		at(s.Node).add(pod, all)
	}
	for key, why := range blocking {
		node, name, _ := strings.Cut(key, " ")
		pod := branch{name: name, state: string(v1alpha1.StateBlocked)}
		pod.blocked(why)
		at(node).add(pod, all)
	}
	for _, node := range forest {
		if f.node == nil && !all && node.rank == rankDone {
			hidden++
			continue
		}
		node.fold()
		nodes = append(nodes, *node)
	}
	slices.SortFunc(nodes, byUrgency)
	return nodes, hidden
}

// byUrgency sorts branches: those in trouble first, then by name.
func byUrgency(a, b branch) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.name, b.name), a.since.Compare(b.since))
}

// maintained adds what a maintenance says of a node.
func (b *branch) maintained(m *v1alpha1.NodeMaintenance, n *v1alpha1.MaintenanceNodeStatus) {
	b.requesters = append(b.requesters, m.Name)
	if b.state != "" && n.Stage != v1alpha1.StageDrain {
		return // Another one says more.
	}
	b.state = string(n.Stage)
	b.since = ptr.Deref(n.StartTime, metav1.Time{}).Time
	switch n.Stage {
	case v1alpha1.StageDrain:
		b.rank = min(b.rank, rankWaiting)
	case v1alpha1.StageDrainComplete, v1alpha1.StageMaintenanceComplete:
		b.tone, b.since = text.Good, ptr.Deref(n.CompletionTime, metav1.Time{}).Time
	}
	var said []string
	if n.PodsBlocking > 0 {
		said, b.tone, b.rank = append(said, fmt.Sprintf("%d blocked", n.PodsBlocking)), text.Bad, rankBlocked
	}
	if n.PodsPendingEvacuation > 0 {
		said = append(said, text.Counted(n.PodsPendingEvacuation, "pod")+" to go")
	}
	if n.PodsWaiting > 0 {
		said = append(said, fmt.Sprintf("%d left to their owners", n.PodsWaiting))
	}
	if n.PodsInLaterWaves > 0 {
		said = append(said, fmt.Sprintf("%d in later waves", n.PodsInLaterWaves))
	}
	if n.Wave != "" {
		said = append(said, "wave "+n.Wave)
	}
	b.message = strings.Join(said, ", ")
}

// add adds a pod to its node.
func (b *branch) add(pod branch, all bool) {
	b.rank = min(b.rank, pod.rank)
	switch {
	case pod.rank != rankDone || all:
		b.below = append(b.below, pod)
	case pod.state == string(v1alpha1.StateEvicted):
		b.evicted++
	default:
		b.canceled++
	}
}

// fold sorts the pods of a node, and adds how many are not shown.
func (b *branch) fold() {
	slices.SortFunc(b.below, byUrgency)
	if n := b.evicted + b.canceled; n > 0 {
		b.below = append(b.below, branch{
			name: "... and " + text.Counted(n, "finished pod"), message: fmt.Sprintf("%d evicted, %d canceled", b.evicted, b.canceled), tone: text.Faint,
		})
	}
}

// blocked says why a pod is stuck.
func (b *branch) blocked(why v1alpha1.BlockingPod) {
	b.rank, b.tone, b.message = rankBlocked, text.Bad, string(why.Reason)
	if message := text.Clean(why.Message); message != "" {
		b.message += ": " + message
	}
}

// podBranch is a pod with its interceptors, in their order.
func podBranch(p turns.Process, s EvictionState) branch {
	b := branch{name: s.Namespace + "/" + s.Pod, state: s.State, since: s.Created, deadline: ptr.Deref(s.Deadline, time.Time{}), requesters: s.Requesters, rank: rankWaiting}
	switch v1alpha1.RequestState(s.State) {
	case v1alpha1.StateBlocked:
		b.rank, b.tone = rankBlocked, text.Bad
	case v1alpha1.StateIntercepting:
		b.rank = rankWorking
	case v1alpha1.StateEvicting:
		b.rank = rankEvicting
	case v1alpha1.StateEvicted, v1alpha1.StateCanceled:
		b.rank, b.message = rankDone, text.Clean(s.Message)
		if s.State == string(v1alpha1.StateEvicted) {
			b.tone = text.Good
		}
		if p.Request != nil {
			if ended := meta.FindStatusCondition(p.Request.Status.Conditions, s.State); ended != nil {
				b.since = ended.LastTransitionTime.Time
			}
		}
		return b
	case v1alpha1.StatePending, v1alpha1.StateDeleting:
	}
	all := p.Turns(nil)
	if len(all) < 2 {
		// Nothing comes before the eviction, so it needs no line of its own.
		b.message, b.eta = text.Clean(s.Message), ptr.Deref(s.Expected, time.Time{})
		return b
	}
	for _, t := range all {
		b.below = append(b.below, turnBranch(t, s))
	}
	return b
}

// turnWords are the states of turns in the words of the glossary, which are short.
var turnWords = map[turns.State]string{turns.Waits: "waiting", turns.Active: "active"}

// turnBranch is an interceptor of a pod, or a native responder.
func turnBranch(t turns.Turn, s EvictionState) branch {
	b := branch{name: t.Name, state: cmp.Or(turnWords[t.State], string(t.State)), message: t.Message, since: ptr.Deref(t.Completed, time.Time{})}
	switch t.State {
	case turns.Active:
		b.since, b.eta = ptr.Deref(t.Since, time.Time{}), ptr.Deref(t.Expected, time.Time{})
		if t.Name == s.Interceptor || t.Name == lifecyclev1alpha1.EvictionResponderImperativeEviction {
			b.message = text.Clean(s.Message) // With why its eviction is refused.
		}
		if s.State == string(v1alpha1.StateBlocked) {
			b.tone = text.Bad
		}
	case turns.Waits:
		b.tone = text.Faint
	}
	return b
}
