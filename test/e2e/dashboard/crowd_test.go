//go:build unix

package dashboard

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// crowd is a large cluster that changes all the time. Its API server is apiOf.
type crowd struct {
	random *rand.Rand

	mu       sync.Mutex
	version  int
	objects  map[schema.GroupVersionResource][]client.Object
	requests []*v1alpha1.EvictionRequest
	watchers map[chan []byte]bool
}

// The resources of a crowd. Those that are empty are served, too.
var (
	nodesOf     = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	podsOf      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	budgets     = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	requestsOf  = v1alpha1.SchemeGroupVersion.WithResource("evictionrequests")
	maintaining = v1alpha1.SchemeGroupVersion.WithResource("nodemaintenances")
	registered  = v1alpha1.SchemeGroupVersion.WithResource("evictioninterceptors")
	kinds       = map[schema.GroupVersionResource]string{
		nodesOf: "Node", podsOf: "Pod", namespaces: "Namespace", budgets: "PodDisruptionBudget",
		requestsOf: "EvictionRequest", maintaining: "NodeMaintenance", registered: "EvictionInterceptor",
		v1alpha1.SchemeGroupVersion.WithResource("evacuationhooks"):    "EvacuationHook",
		v1alpha1.SchemeGroupVersion.WithResource("evictionbudgets"):    "EvictionBudget",
		v1alpha1.SchemeGroupVersion.WithResource("evacuationpolicies"): "EvacuationPolicy",
	}
)

// drainedNodes of a crowd have its requests.
const drainedNodes = 50

// newCrowd is a cluster of that size. Its running requests are on the drained nodes.
func newCrowd(nodes, pods, requests int) *crowd {
	began := time.Now().Add(-20 * time.Minute).Truncate(time.Second)
	c := &crowd{
		random:  rand.New(rand.NewPCG(20, 500)), // The same crowd each time.
		version: 1, objects: map[schema.GroupVersionResource][]client.Object{}, watchers: map[chan []byte]bool{},
	}
	drained := min(drainedNodes, nodes)
	name := func(i int) string { return fmt.Sprintf("worker-%03d", i) }
	for i := range nodes {
		w := builder.Node(name(i)).UID(types.UID("node-"+name(i))).Label(corev1.LabelTopologyZone, string(rune('a'+i%3))).Ready(corev1.ConditionTrue)
		if i < drained {
			w.Cordoned()
		}
		c.add(nodesOf, w.Obj())
	}
	const teams = 20
	for i := range teams {
		c.add(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%02d", i)}})
	}
	left := map[string]int32{}
	for i := range pods {
		node := name(i % nodes)
		if i < requests {
			node = name(i % drained)
		}
		if i%nodes < drained || i < requests {
			left[node]++
		}
		pod := builder.Pod(fmt.Sprintf("team-%02d", i%teams), fmt.Sprintf("app-%05d", i)).UID(types.UID(fmt.Sprintf("pod-%05d", i))).
			Node(node).Label(builder.AppLabel, fmt.Sprintf("app-%03d", i%300)).CPU("250m").Created(began).Ready().Obj()
		c.add(podsOf, pod)
		if i < requests {
			er := runningFor(pod, began.Add(time.Duration(i)*time.Millisecond))
			c.add(requestsOf, er)
			c.requests = append(c.requests, er)
		}
	}
	for i := range drained {
		m := builder.NodeMaintenance("drain-" + name(i)).UID(types.UID("m-" + name(i))).Nodes(name(i)).Drain().Reason("kernel update").Obj()
		m.CreationTimestamp, m.Status.StartTime, m.Status.Stage = metav1.NewTime(began), new(metav1.NewTime(began)), v1alpha1.StageDrain
		n := left[name(i)]
		m.Status.Progress = v1alpha1.MaintenanceProgress{Nodes: 1, NodesCordoned: 1, NodesDraining: 1, PodsPendingEvacuation: n, PodsEvacuating: n}
		m.Status.Nodes = []v1alpha1.MaintenanceNodeStatus{{Name: name(i), Stage: v1alpha1.StageDrain, PodsPendingEvacuation: n, PodsEvacuating: n, StartTime: m.Status.StartTime}}
		c.add(maintaining, m)
	}
	for _, interceptor := range []string{checkpoint, handover} {
		c.add(registered, builder.EvictionInterceptor(interceptor).Obj())
	}
	return c
}

// add an object, complete with what the API server adds.
func (c *crowd) add(resource schema.GroupVersionResource, object client.Object) {
	object.SetResourceVersion("1")
	object.GetObjectKind().SetGroupVersionKind(resource.GroupVersion().WithKind(kinds[resource]))
	c.objects[resource] = append(c.objects[resource], object)
}

// runningFor is a request in the middle of its first turn.
func runningFor(pod *corev1.Pod, since time.Time) *v1alpha1.EvictionRequest {
	return builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).UID("er-"+pod.UID).Created(since).Generation(1).Observed().
		Requesters("kernel.maintenance.drawbridge.dev").NodeName(pod.Spec.NodeName).Interceptors(checkpoint, handover).
		Active(checkpoint, since).Started(checkpoint, since).
		Report(checkpoint, func(r *v1alpha1.InterceptorStatus) { r.Message = "0 of 100 MiB are written" }).Obj()
}

// change reports something new about n requests, and tells all who watch them.
func (c *crowd) change(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for range n {
		i := c.random.IntN(len(c.requests))
		er := c.requests[i].DeepCopy()
		report := &er.Status.Interceptors[0]
		report.HeartbeatTime = &now
		report.ExpectedFinishTime = new(metav1.NewTime(now.Add(time.Duration(60+c.random.IntN(600)) * time.Second)))
		report.Message = fmt.Sprintf("%d of 100 MiB are written", c.random.IntN(100))
		c.version++
		er.ResourceVersion = strconv.Itoa(c.version)
		c.requests[i], c.objects[requestsOf][i] = er, er
		event, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": er})
		if err != nil {
			t.Fatal(err)
		}
		for watcher := range c.watchers {
			select {
			case watcher <- event:
			default:
				t.Fatal("somebody does not read what is watched")
			}
		}
	}
}
