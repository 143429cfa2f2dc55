package conformance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
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
		available.Await(t, replicas)

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
		available.Await(t, 2*replicas)
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

		available.Await(t, replicas)
		if least := available.Least(t, replicas); least < replicas {
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

// serve makes a Service for the pods of one app and follows its EndpointSlices.
func (w *world) serve(t *testing.T, app string) *cluster.Counts {
	t.Helper()
	service := &corev1.Service{}
	service.Namespace, service.Name = w.ns, app
	service.Spec.Selector = map[string]string{builder.AppLabel: app}
	service.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
	if err := w.admin.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	return kube.WatchCounts(t, w.ns, &discoveryv1.EndpointSliceList{}, cluster.ReadyEndpoints)
}
