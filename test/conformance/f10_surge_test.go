package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// The interceptors of the KEP's example of a surge; here the test acts for them.
const (
	surgeInterceptor  = "deployment.example.com"
	deleteInterceptor = "replicaset.example.com"
)

// F10: a Deployment surges before its pods leave a node (000:L695-713).
func TestConformance_F10_Surge(t *testing.T) {
	t.Run("101 the surge is there before the first pod goes, and availability never drops", func(t *testing.T) {
		const replicas = 2
		mgr := startManager(t, manager.Options{Change: longCompletionGrace})
		w := newWorld(t, mgr)
		drained := w.addNode(t)
		deployment := builder.Deployment(w.ns, "postgres").Replicas(replicas).Pods(func(p *builder.PodWrapper) {
			w.onOwnNodes(p).Interceptors(surgeInterceptor, deleteInterceptor)
		})
		old := w.deployment(t, deployment)
		w.addNode(t)
		available := w.serve(t, "postgres")
		available.await(t, replicas)

		w.cordon(t, drained, true)
		var traces []*trace
		for i := range old {
			traces = append(traces, w.request(t, &old[i]))
		}
		for _, tr := range traces {
			w.untilActive(t, tr.ObjectKey, surgeInterceptor)
			w.report(t, tr.ObjectKey, beats(surgeInterceptor, w.now()))
		}
		w.scale(t, "postgres", 2*replicas)
		available.await(t, 2*replicas)
		for i := range old {
			w.lives(t, &old[i])
		}
		for _, tr := range traces {
			w.report(t, tr.ObjectKey, completes(surgeInterceptor, w.now()))
		}

		for i, tr := range traces {
			w.untilActive(t, tr.ObjectKey, deleteInterceptor)
			w.report(t, tr.ObjectKey, beats(deleteInterceptor, w.now()))
			// By this the ReplicaSet deletes the very pods that are to go.
			w.updatePod(t, &old[i], func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = "-1" })
		}
		w.scale(t, "postgres", replicas)
		for i, tr := range traces {
			w.gone(t, &old[i])
			w.report(t, tr.ObjectKey, completes(deleteInterceptor, w.now()))
			w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
			want := []string{"", "[deployment]", "deployment [replicaset]", "deployment replicaset Evicted"}
			if diff := cmp.Diff(want, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			w.neverEvicted(t, &old[i])
		}

		available.await(t, replicas)
		if least := available.least(replicas); least < replicas {
			t.Errorf("at one time only %d pods were available, want %d at any", least, replicas)
		}
		for _, pod := range w.deployed(t, "postgres") {
			if pod.Spec.NodeName == drained {
				t.Errorf("pod %s is still on the drained node", pod.Name)
			}
		}
	})
}

// deployed are the pods of a Deployment that are not being deleted.
func (w *world) deployed(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	if err := w.admin.List(t.Context(), list, client.InNamespace(w.ns), client.MatchingLabels{builder.AppLabel: name}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

func (w *world) scale(t *testing.T, name string, replicas int) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = w.ns, name
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := w.admin.Patch(t.Context(), deployment, patch); err != nil {
		t.Fatalf("scale: %v", err)
	}
}

// availability is how many Ready endpoints a Service had over time.
type availability struct {
	mu     sync.Mutex
	slices map[string]int // Ready endpoints by EndpointSlice.
	counts []int
	err    error
}

// serve makes a Service for the pods of one app and follows its EndpointSlices.
func (w *world) serve(t *testing.T, app string) *availability {
	t.Helper()
	service := &corev1.Service{}
	service.Namespace, service.Name = w.ns, app
	service.Spec.Selector = map[string]string{builder.AppLabel: app}
	service.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
	if err := w.admin.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(kube.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	watched, err := c.Watch(t.Context(), &discoveryv1.EndpointSliceList{}, client.InNamespace(w.ns), client.MatchingLabels{discoveryv1.LabelServiceName: app})
	if err != nil {
		t.Fatal(err)
	}
	a := &availability{slices: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watched.ResultChan() {
			a.take(e)
		}
	}()
	t.Cleanup(func() {
		watched.Stop()
		<-done
	})
	return a
}

func (a *availability) take(e watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slice, ok := e.Object.(*discoveryv1.EndpointSlice)
	if !ok {
		a.err = fmt.Errorf("the watch says %s: %v", e.Type, e.Object)
		return
	}
	ready := 0
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
			ready++
		}
	}
	a.slices[slice.Name] = ready
	if e.Type == watch.Deleted {
		delete(a.slices, slice.Name)
	}
	total := 0
	for _, n := range a.slices {
		total += n
	}
	a.counts = append(a.counts, total)
}

// await waits until so many endpoints are Ready.
func (a *availability) await(t *testing.T, want int) {
	t.Helper()
	await(t, fmt.Sprintf("%d Ready endpoints", want), func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err != nil {
			t.Fatal(a.err)
		}
		if n := len(a.counts); n == 0 || a.counts[n-1] != want {
			return fmt.Errorf("so far %v", a.counts)
		}
		return nil
	})
}

// least is the smallest number there was since it was want for the first time.
func (a *availability) least(want int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Min(a.counts[slices.Index(a.counts, want):])
}
