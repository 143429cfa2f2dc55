package maintenance_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Sizes of the scale test (500 nodes, 20,000 pods).
const (
	manyNodes   = 500
	podsPerNode = 40
)

// fill adds nodes with pods; every other pod has an interceptor.
func fill(w *world, nodes, podsEach int) {
	for i := range nodes {
		node := fmt.Sprintf("node-%03d", i)
		w.put(builder.Node(node).UID(types.UID("uid-"+node)).Label("rack", "r7").Obj())
		for j := range podsEach {
			pod := builder.Pod("shop", fmt.Sprintf("pod-%03d-%03d", i, j)).UID(types.UID(fmt.Sprintf("uid-%03d-%03d", i, j))).Node(node)
			if j%2 == 0 {
				pod.Interceptors("db.example.com")
			}
			w.put(pod.Obj())
		}
	}
}

// evictAll is what engine and evictor do: interceptors start and report, and the pods
// of requests go.
func evictAll(tb testing.TB, w *world, limit int) int {
	tb.Helper()
	n := 0
	for key, er := range w.requests {
		if n == limit {
			break
		}
		pod, ok := w.pods[types.NamespacedName{Namespace: key.Namespace, Name: er.Spec.Target.Pod.Name}].(*corev1.Pod)
		if !ok {
			continue
		}
		if pod.Annotations[v1alpha1.InterceptorsAnnotation] != "" && er.Status.ActiveInterceptors == nil {
			er = er.DeepCopy()
			er.Status.TargetInterceptors = []v1alpha1.Interceptor{{Name: "db.example.com"}}
			er.Status.ActiveInterceptors = []string{"db.example.com"}
			started := noonTime
			er.Status.Interceptors = []v1alpha1.InterceptorStatus{{Name: "db.example.com", StartTime: &started, HeartbeatTime: &started}}
			w.putRequest(er)
			n++
			continue
		}
		delete(w.requests, key)
		w.remove(pod)
		n++
	}
	return n
}

// One maintenance over 500 nodes and 20,000 pods, 50 nodes at a time.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	w := newWorld(t, time.Second)
	fill(w, manyNodes, podsPerNode)
	before := heap()
	m := builder.NodeMaintenance("all").UID("uid-all").Term("rack", corev1.NodeSelectorOpIn, "r7").Drain().Parallel(50).Obj()
	m.Generation = 1
	w.put(m)
	peak := uint64(0)
	for range 1000 {
		w.settle(t)
		if now, ok := w.plans[client.ObjectKeyFromObject(m)].(*v1alpha1.NodeMaintenance); ok && now.Status.Stage == v1alpha1.StageDrainComplete {
			break
		}
		if w.clock.Now().Sub(noon) < 10*time.Minute {
			peak = max(peak, heap())
		}
		evictAll(t, w, 4000)
	}
	now := w.plans[client.ObjectKeyFromObject(m)].(*v1alpha1.NodeMaintenance)
	const pods = manyNodes * podsPerNode
	want := v1alpha1.MaintenanceProgress{Nodes: manyNodes, NodesCordoned: manyNodes, NodesDrained: manyNodes, PodsEvacuated: pods}
	if now.Status.Progress != want {
		t.Errorf("progress %+v, want %+v", now.Status.Progress, want)
	}
	t.Logf("writes per drained pod: %.2f (joins and conditions), patches per node: %.2f, status writes: %d, live lists: %d, all writes: %v, cached lists: %d",
		float64(w.writes["apply requests"]+w.writes["patch pods"])/pods, float64(w.writes["patch nodes"])/manyNodes, w.writes["status"], w.liveLists, w.writes, w.lists)
	t.Logf("heap in use: %.1f MB before, at most %.1f MB with requests and conditions of all pods in progress", float64(before)/1e6, float64(peak)/1e6)
	// One join and one or two patches of conditions for each pod.
	if got := w.writes["apply requests"]; got != pods {
		t.Errorf("%d joins, want %d", got, pods)
	}
	if got := w.writes["patch pods"]; got != pods+pods/2 {
		t.Errorf("%d patches of pods, want %d", got, pods+pods/2)
	}
	if got := w.writes["patch nodes"]; got > 3*manyNodes {
		t.Errorf("%d patches of nodes, want at most 3 each until they are drained", got)
	}
	if w.liveLists > 2*manyNodes {
		t.Errorf("%d live lists, want about one for each node", w.liveLists)
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkPodEvent is what an event of a pod under maintenance costs.
func BenchmarkPodEvent(b *testing.B) {
	w := newWorld(b, time.Hour)
	fill(w, 100, 40)
	m := builder.NodeMaintenance("all").UID("uid-all").Term("rack", corev1.NodeSelectorOpIn, "r7").Drain().Obj()
	m.Generation = 1
	w.put(m)
	w.settle(b)
	pod := w.pods[types.NamespacedName{Namespace: "shop", Name: "pod-050-001"}].(*corev1.Pod)
	b.ReportAllocs()
	for b.Loop() {
		next := *pod
		w.put(&next)
	}
}

// BenchmarkStatus is what one look at a maintenance of 500 nodes costs.
func BenchmarkStatus(b *testing.B) {
	w := newWorld(b, time.Hour)
	fill(w, manyNodes, podsPerNode)
	m := builder.NodeMaintenance("all").UID("uid-all").Term("rack", corev1.NodeSelectorOpIn, "r7").Drain().Obj()
	m.Generation = 1
	w.put(m)
	w.settle(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.parts["plans"].Reconcile(b.Context(), reconcileOf(m)); err != nil {
			b.Fatal(err)
		}
	}
}

var noonTime = metav1.NewTime(noon)

func reconcileOf(m *v1alpha1.NodeMaintenance) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)}
}
