//go:build unix

package dashboard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// crowd is a large cluster that changes all the time; it takes the place of the watches.
type crowd struct {
	mu       sync.Mutex
	random   *rand.Rand
	base     state.Snapshot // What does not change.
	requests []*v1alpha1.EvictionRequest
	version  uint64
	built    *state.Snapshot
	// snapshots counts how often one was asked for that had to be built.
	snapshots int
}

// drainedNodes of a crowd have its requests.
const drainedNodes = 50

// newCrowd is a cluster of that size; its running requests are on the drained nodes.
func newCrowd(nodes, pods, requests int) *crowd {
	began := time.Now().Add(-20 * time.Minute).Truncate(time.Second)
	c := &crowd{random: rand.New(rand.NewPCG(20, 500)), version: 1} // The same crowd each time.
	s := &c.base
	s.NodeByName, s.PodsByNode, s.PodByUID = map[string]*corev1.Node{}, map[string][]*corev1.Pod{}, map[types.UID]*corev1.Pod{}
	drained := min(drainedNodes, nodes)
	for i := range nodes {
		w := builder.Node(fmt.Sprintf("worker-%03d", i)).Label(corev1.LabelTopologyZone, string(rune('a'+i%3))).Ready(corev1.ConditionTrue)
		if i < drained {
			w.Cordoned()
		}
		s.Nodes = append(s.Nodes, w.Obj())
		s.NodeByName[w.Name] = w.Obj()
	}
	for i := range 20 {
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%02d", i)}})
	}
	for i := range pods {
		// The first pods are on the drained nodes: those that have requests.
		node := s.Nodes[i%drained]
		if i >= requests {
			node = s.Nodes[i%nodes]
		}
		pod := builder.Pod(s.Namespaces[i%len(s.Namespaces)].Name, fmt.Sprintf("app-%05d", i)).UID(types.UID(fmt.Sprintf("pod-%05d", i))).
			Node(node.Name).Label(builder.AppLabel, fmt.Sprintf("app-%03d", i%300)).CPU("250m").Created(began).Ready().Obj()
		s.Pods = append(s.Pods, pod)
		s.PodByUID[pod.UID] = pod
		s.PodsByNode[node.Name] = append(s.PodsByNode[node.Name], pod)
		if i < requests {
			c.requests = append(c.requests, running(pod, began.Add(time.Duration(i)*time.Millisecond)))
		}
	}
	byName := func(a, b *corev1.Pod) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	}
	slices.SortFunc(s.Pods, byName)
	for _, of := range s.PodsByNode {
		slices.SortFunc(of, byName)
	}
	for i := range drained {
		m := builder.NodeMaintenance("drain-" + s.Nodes[i].Name).UID(types.UID("m-" + s.Nodes[i].Name)).Nodes(s.Nodes[i].Name).Drain().Reason("kernel").Obj()
		m.CreationTimestamp, m.Status.StartTime, m.Status.Stage = metav1.NewTime(began), new(metav1.NewTime(began)), v1alpha1.StageDrain
		left := int32(len(s.PodsByNode[s.Nodes[i].Name]))
		m.Status.Progress = v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDraining: 1, PodsPendingEvacuation: left, PodsEvacuating: left}
		s.Maintenances = append(s.Maintenances, m)
	}
	for _, name := range []string{checkpoint, handover, migrate} {
		s.Interceptors = append(s.Interceptors, builder.EvictionInterceptor(name).Obj())
	}
	slices.SortFunc(c.requests, func(a, b *v1alpha1.EvictionRequest) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
	return c
}

// running is a request in the middle of its first turn.
func running(pod *corev1.Pod, since time.Time) *v1alpha1.EvictionRequest {
	return builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).UID("er-"+pod.UID).Created(since).Generation(1).Observed().
		Requesters("kernel.maintenance.drawbridge.dev").NodeName(pod.Spec.NodeName).Interceptors(checkpoint, handover).
		Active(checkpoint, since).Started(checkpoint, since).
		Report(checkpoint, func(r *v1alpha1.InterceptorStatus) { r.Message = "0 of 100 MiB are written" }).Obj()
}

// change reports something new about n requests.
func (c *crowd) change(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for range n {
		i := c.random.IntN(len(c.requests))
		er := c.requests[i].DeepCopy()
		report := &er.Status.Interceptors[0]
		report.HeartbeatTime, report.ExpectedFinishTime = &now, new(metav1.NewTime(now.Add(time.Duration(60+c.random.IntN(600))*time.Second)))
		report.Message = fmt.Sprintf("%d of 100 MiB are written", c.random.IntN(100))
		c.requests[i] = er
		c.version++
	}
}

// Snapshot of the crowd. What did not change is shared with the last one.
func (c *crowd) Snapshot() *state.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.built != nil && c.built.Version == c.version {
		again := *c.built
		again.Now = now
		return &again
	}
	c.snapshots++
	s := c.base
	s.Version, s.Now = c.version, now
	s.Requests = slices.Clone(c.requests)
	s.RequestsByNode, s.RequestByPod = map[string][]*v1alpha1.EvictionRequest{}, make(map[types.UID]*v1alpha1.EvictionRequest, len(s.Requests))
	for _, er := range s.Requests {
		s.RequestsByNode[er.Status.NodeName] = append(s.RequestsByNode[er.Status.NodeName], er)
		s.RequestByPod[er.Spec.Target.Pod.UID] = er
	}
	c.built = &s
	return &s
}
