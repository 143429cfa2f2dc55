//go:build unix

package dashboard

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/clock"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// poolLabel keeps the pods of a test on its nodes.
const poolLabel = "test.drawbridge.dev/pool"

// addNode adds a node of the namespace's pool in a zone.
func addNode(t *testing.T, pool, name, zone string) string {
	t.Helper()
	err := kube.AddNode(t.Context(), name, func(n *corev1.Node) {
		n.Labels[poolLabel], n.Labels[corev1.LabelTopologyZone] = pool, zone
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// namespaceNamed is a namespace of this name, which is ready for pods and goes with the
// test.
func namespaceNamed(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	create(t, ns)
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), ns); err != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
	})
	eventually(t, "the service account of namespace "+name, func(ctx context.Context) error {
		return admin.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// createPod creates a pod and returns it when it is Ready.
func createPod(t *testing.T, w *builder.PodWrapper) *corev1.Pod {
	t.Helper()
	create(t, w.Obj())
	return cluster.ReadyPod(t, admin, w.Namespace, w.Name)
}

// waitRequest waits until the request for a pod is as wanted.
func waitRequest(t *testing.T, pod *corev1.Pod, what string, wanted func(*v1alpha1.EvictionRequest) bool) *v1alpha1.EvictionRequest {
	t.Helper()
	return cluster.WaitRequest(t, admin, pod, what, wanted)
}

// reports wants that the active interceptor has said something.
func reports(name string) func(*v1alpha1.EvictionRequest) bool {
	return func(er *v1alpha1.EvictionRequest) bool {
		return activeIs(name)(er) && v1alpha1.ReportOf(er, name).Message != ""
	}
}

// evicted wants that the pod was evicted.
func evicted(er *v1alpha1.EvictionRequest) bool {
	return meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted)
}

// gone waits until the very pod is no more.
func gone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	cluster.Gone(t, admin, pod)
}

// cordoned waits until a node takes no pods, or does again.
func cordoned(t *testing.T, name string, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("node %s to be cordoned: %t", name, want), func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if node.Spec.Unschedulable != want {
			return fmt.Errorf("cordoned: %t", node.Spec.Unschedulable)
		}
		return nil
	})
}

// settle waits until nothing writes requests any more, for some polls in a row.
func settle(t *testing.T, namespace string) {
	t.Helper()
	const polls = 6
	last, same := "", 0
	eventually(t, "the requests of "+namespace+" to come to rest", func(ctx context.Context) error {
		list := &v1alpha1.EvictionRequestList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		now := ""
		for _, er := range list.Items {
			now += er.Name + er.ResourceVersion + " "
		}
		if now != last {
			last, same = now, 0
		}
		if same++; same < polls {
			return fmt.Errorf("quiet for %d of %d polls", same, polls)
		}
		return nil
	})
}

// pass lets time pass in steps, so that everybody acts at about the right moment. For
// pictures, it really passes: the API server has no part in the clock of the test, so ages of
// objects would not go together with what the manager writes into them.
func pass(t *testing.T, c *clock.Clock, namespace string, d, step time.Duration) {
	t.Helper()
	if *pictures != "" {
		select {
		case <-c.After(d):
		case <-t.Context().Done():
		}
		return
	}
	for ; d > 0; d -= step {
		c.Advance(step)
		settle(t, namespace)
	}
}

// hookJob is a hook that runs a Job, which runs that long by the real clock.
func hookJob(namespace, name, app, runs string) *v1alpha1.EvacuationHook {
	w := builder.EvacuationHook(namespace, name).Pods(builder.AppLabel, app)
	w.Spec.Wait = nil
	w.Spec.Job = &v1alpha1.HookJob{Template: runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"spec":{"template":{"metadata":{"annotations":{"test.drawbridge.dev/complete-after":%q}},"spec":{"restartPolicy":"Never","containers":[{"name":"dump","image":"dump:1"}]}}}}`, runs)}}
	return w.Obj()
}
