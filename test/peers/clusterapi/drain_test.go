//go:build unix

package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

var shared manager.Shared

// particular makes the test one beside Drawbridge, and gives it two nodes with Machines, and an
// interceptor of its own.
func particular(t *testing.T, interceptor string, needs time.Duration) (situations.Place, *peer.Worker) {
	t.Helper()
	if clusterAPI == nil {
		peer.Skip(t, peerName)
	}
	shared.ForTest(t, installed(t), manager.Options{})
	w := peer.NewWorker(needs)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	if err := w.Start(ctx, clusterAPI.Kube, interceptor); err != nil {
		t.Fatal(err)
	}
	return clusterAPI.Place(t), w
}

// podOn creates a pod of the interceptor and waits until it is Ready, on a node of the place, or on one that is given.
func podOn(t *testing.T, place situations.Place, name, interceptor, node string, change ...func(*builder.PodWrapper)) *corev1.Pod {
	t.Helper()
	w := builder.Pod(place.Namespace, name).Label(builder.AppLabel, name).Interceptors(interceptor)
	for key, value := range place.Selector {
		w.NodeSelector(key, value)
	}
	if node != "" {
		w.NodeSelector(corev1.LabelHostname, node)
	}
	for _, f := range change {
		f(w)
	}
	cluster.Create(t, clusterAPI.Client, w.Obj())
	pod := &corev1.Pod{}
	cluster.Eventually(t, "pod "+name+" to be Ready", func(ctx context.Context) error {
		if err := clusterAPI.Client.Get(ctx, types.NamespacedName{Namespace: place.Namespace, Name: name}, pod); err != nil {
			return err
		}
		if !cluster.IsReady(pod) {
			return fmt.Errorf("it is %s on node %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		return nil
	})
	return pod
}

// waitEnd waits until the Machine of a node is gone.
func waitEnd(t *testing.T, node string) {
	t.Helper()
	cluster.Eventually(t, "Machine "+node+" to go", func(ctx context.Context) error {
		if err := clusterAPI.StillRun(); err != nil {
			return err
		}
		if ended, says := clusterAPI.Ended(ctx, node); !ended {
			return errors.New(says)
		}
		return nil
	})
}

// evictedAt is when the only eviction of a pod was carried out.
func evictedAt(t *testing.T, mark cluster.Mark, pod *corev1.Pod) time.Time {
	t.Helper()
	calls := cluster.Must(peer.Calls(t.Context(), clusterAPI.Kube.RequestLog(), mark, pod))(t)
	done := calls.Where(func(r cluster.Request) bool {
		return peer.IsFor(r, pod.UID) && r.Subresource == "eviction" && r.Code == http.StatusCreated
	})
	if len(done) == 0 {
		t.Fatalf("pod %s was not evicted:\n%s", pod.Name, calls)
	}
	return done[0].Time
}

// The order of MachineDrainRules is kept: what has to go last is asked for when the others have gone,
// interceptors and all.
func TestTheOrderOfMachineDrainRules(t *testing.T) {
	const name = "ordered.example.com"
	place, w := particular(t, name, 3*time.Second)
	first := podOn(t, place, "first", name, "")
	last := podOn(t, place, "last", name, first.Spec.NodeName)
	cluster.Create(t, clusterAPI.Client, drainRule(place.Namespace, place.Namespace, last.Name, map[string]any{"behavior": "Drain", "order": int64(10)}))
	mark := clusterAPI.Kube.RequestLog().Mark()
	clusterAPI.Drain(t, first.Spec.NodeName)
	waitEnd(t, first.Spec.NodeName)

	gone := evictedAt(t, mark, first)
	for _, pod := range []*corev1.Pod{first, last} {
		if done := w.DoneWith(pod.UID); done.IsZero() || !done.Before(evictedAt(t, mark, pod)) {
			t.Errorf("pod %s was evicted before its interceptor was done (at %s)", pod.Name, done)
		}
	}
	for _, call := range cluster.Must(peer.Calls(t.Context(), clusterAPI.Kube.RequestLog(), mark, last))(t) {
		if call.Time.Before(gone) {
			t.Errorf("the last pod was asked for at %s, before the first had gone at %s", call.Time, gone)
		}
	}
}

// A pod that Cluster API waits for is never asked for, so nobody prepares it.
func TestAPodThatClusterAPIWaitsFor(t *testing.T) {
	const name = "awaited.example.com"
	place, w := particular(t, name, 3*time.Second)
	pod := podOn(t, place, "awaited", name, "", func(w *builder.PodWrapper) { w.Label("cluster.x-k8s.io/drain", "wait-completed") })
	mark := clusterAPI.Kube.RequestLog().Mark()
	node := pod.Spec.NodeName
	clusterAPI.Drain(t, node)
	cluster.Eventually(t, "the Machine to wait for the pod", func(ctx context.Context) error {
		says, err := clusterAPI.Says(ctx, node)
		if err == nil && !strings.Contains(strings.Join(says, "\n"), "waiting for completion") {
			err = fmt.Errorf("it says %q", says)
		}
		return err
	})
	if err := clusterAPI.Client.Delete(t.Context(), pod, client.Preconditions{UID: &pod.UID}); err != nil {
		t.Fatal(err)
	}
	waitEnd(t, node)
	for _, call := range cluster.Must(peer.Calls(t.Context(), clusterAPI.Kube.RequestLog(), mark, pod))(t) {
		if call.Subresource == "eviction" {
			t.Errorf("it was asked for: %+v", call)
		}
	}
	if !w.DoneWith(pod.UID).IsZero() || w.ToldFor(pod.UID) != 0 {
		t.Error("its interceptor was called")
	}
}

// An interceptor is told how long nodeDrainTimeoutSeconds leaves it, and is cut off before Cluster API
// would take the node away with the pod.
func TestNodeDrainTimeout(t *testing.T) {
	const (
		name    = "slow.example.com"
		timeout = 60 * time.Second
		// What the pod's grace period and Drawbridge's margin leave of it, and how much may be over
		// when the interceptor is first called.
		given, late = timeout - 30*time.Second - 5*time.Second, 10 * time.Second
	)
	place, w := particular(t, name, 5*time.Minute)
	pod := podOn(t, place, "slow", name, "")
	node := pod.Spec.NodeName
	patch := fmt.Sprintf(`{"spec":{"deletion":{"nodeDrainTimeoutSeconds":%.0f}}}`, timeout.Seconds())
	if err := clusterAPI.Client.Patch(t.Context(), machine(node), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	mark, began := clusterAPI.Kube.RequestLog().Mark(), time.Now()
	clusterAPI.Drain(t, node)
	waitEnd(t, node)

	if told := w.ToldFor(pod.UID); told < given-late || told > given {
		t.Errorf("in its first call the interceptor was told to have %s, want %s to %s", told, given-late, given)
	}
	if at := evictedAt(t, mark, pod); at.After(began.Add(timeout)) {
		t.Errorf("it was evicted %s after the Machine was deleted, which has %s", at.Sub(began), timeout)
	}
	er := cluster.WaitRequest(t, clusterAPI.Client, pod, "evicted", cluster.IsTrue(v1alpha1.ConditionEvicted))
	if diff := cmp.Diff("Machine "+machines+"/"+node, er.Status.DeadlineSource); diff != "" {
		t.Errorf("status.deadlineSource (-want +got):\n%s", diff)
	}
	if !cluster.IsTrue(v1alpha1.ConditionCutOff)(er) {
		t.Errorf("it is not said that the interceptor was cut off: %+v", er.Status.Conditions)
	}
}
