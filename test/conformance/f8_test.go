package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// Messages of imperative-eviction.k8s.io. Those of the KEP and of ruling R13 are
// literals of the contract.
const (
	failedMessage      = "Could not evict a pod due to failing eviction requests, number of retries: %d."
	unsupportedMessage = "API-initiated eviction of DaemonSet and mirror pods is not supported"
	terminatingMessage = "The pod is terminating."
)

// F8 imperative-eviction.k8s.io: whom it evicts, when and how.
func TestConformance_F8(t *testing.T) {
	mgr := startManager(t, manager.Options{})
	t.Run("at once", func(t *testing.T) {
		t.Run("76 the eviction comes after all other interceptors have had their turn", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mgr)
			tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
			for _, interceptor := range []string{interceptorA, interceptorB} {
				w.untilActive(t, tr.ObjectKey, interceptor)
				w.sync(t, tr.ObjectKey)
				w.report(t, tr.ObjectKey, completes(interceptor, w.now()))
			}
			w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)

			var order []string
			for _, r := range w.heard(t) {
				switch {
				case evictCall(r):
					order = append(order, "eviction")
				case r.User == "reporter" && r.Writes() && r.Code == http.StatusOK:
					order = append(order, "completion")
				}
			}
			if diff := cmp.Diff([]string{"completion", "completion", "eviction"}, order); diff != "" {
				t.Errorf("what the API server heard (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"", "[a]", "a [b]", "a b [IE]", "a b IE Evicted"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
		t.Run("77, 113 the pod is evicted with its UID and never deleted", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, mgr)
			pod := w.pod(t, "web")
			tr := w.request(t, pod)
			w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
			calls := w.evictionsOf(t, pod)
			if len(calls) == 0 {
				t.Fatal("no call of pods/eviction")
			}
			for _, call := range calls {
				got := evictionOf(t, call)
				if diff := cmp.Diff(&metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}, got.DeleteOptions); diff != "" {
					t.Errorf("options of the eviction (-want +got):\n%s", diff)
				}
			}
			deletions := w.asked(t, func(r cluster.Request) bool { return r.Resource == "pods" && strings.HasPrefix(r.Verb, "delete") })
			if len(deletions) > 0 {
				t.Errorf("it deletes pods:\n%s", deletions)
			}
		})
		for name, pod := range map[string]*builder.PodWrapper{
			"82 a bare pod is evicted": builder.Pod("", "bare"),
			"82 a pod with an emptyDir is evicted": builder.Pod("", "scratch").Change(func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			}),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, mgr)
				created := w.createPod(t, pod.Change(func(p *corev1.Pod) { p.Namespace = w.ns }).Obj())
				tr := w.request(t, created)
				w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
				w.gone(t, created)
				calls := w.evictionsOf(t, created)
				if len(calls) == 0 || calls[len(calls)-1].Code != http.StatusCreated {
					t.Errorf("evictions:\n%s\nwant an accepted one", calls)
				}
			})
		}
	})

	for name, tc := range map[string]struct {
		pod func(*testing.T, *world) *corev1.Pod
		// end makes the pod end by other means than an eviction.
		end    func(*testing.T, *world, *corev1.Pod)
		reason string
	}{
		"78, 80, 111 the pod of a DaemonSet": {pod: daemonSetPod, end: deleteDaemonSet, reason: v1alpha1.ReasonPodDeleted},
		"79, 80, 111 a mirror pod":           {pod: mirrorPod, end: succeed, reason: v1alpha1.ReasonPodTerminal},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mgr)
			pod := tc.pod(t, w)
			tr := w.request(t, pod)
			last := w.until(t, tr.ObjectKey, "a first report", func(er *v1alpha1.EvictionRequest) bool {
				return v1alpha1.ReportOf(er, imperative).HeartbeatTime != nil
			})
			for range deadline/recommendedHeartbeat + 2 { // Together longer than silence may last.
				before := v1alpha1.ReportOf(last, imperative).HeartbeatTime.Time
				w.advanceTo(before.Add(recommendedHeartbeat))
				last = w.until(t, tr.ObjectKey, "a heartbeat", func(er *v1alpha1.EvictionRequest) bool {
					return v1alpha1.ReportOf(er, imperative).HeartbeatTime.After(before)
				})
			}
			if item := v1alpha1.ReportOf(last, imperative); item.Message != unsupportedMessage || item.CompletionTime != nil || item.Retries != 0 {
				t.Errorf("report %+v, want only the message %q", item, unsupportedMessage)
			}
			w.witness(t, "witness")
			w.neverEvicted(t, pod)
			w.lives(t, pod)

			tc.end(t, w, pod)
			er := w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
			if got := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionEvicted).Reason; got != tc.reason {
				t.Errorf("reason %s, want %s", got, tc.reason)
			}
			if diff := cmp.Diff([]string{"", "[IE]", "IE Evicted"}, tr.turns(t)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			w.neverEvicted(t, pod)
		})
	}

	slowToStop := func(w *world) *builder.PodWrapper {
		return builder.Pod(w.ns, "web").Annotation(cluster.StopDelayAnnotation, "1000h")
	}
	// passes shows that the evictor sees the pod's end and only waits for it.
	passes := func(t *testing.T, w *world, tr *trace, pod *corev1.Pod, calls int) {
		t.Helper()
		for range 2 {
			now := w.now()
			w.advanceTo(now.Add(deadline))
			w.until(t, tr.ObjectKey, "a report about the terminating pod", func(er *v1alpha1.EvictionRequest) bool {
				item := v1alpha1.ReportOf(er, imperative)
				return item.Message == terminatingMessage && item.HeartbeatTime.After(now.Time)
			})
		}
		if got := w.evictionsOf(t, pod); len(got) != calls {
			t.Errorf("%d evictions of a pod that terminates, want %d:\n%s", len(got), calls, got)
		}
		if err := w.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		w.untilTrue(t, tr.ObjectKey, v1alpha1.ConditionEvicted)
		if got := w.evictionsOf(t, pod); len(got) != calls {
			t.Errorf("%d evictions in the end, want %d:\n%s", len(got), calls, got)
		}
	}
	t.Run("81 a pod that terminates already is not evicted", func(t *testing.T) {
		w := newWorld(t, mgr)
		pod := w.createPod(t, slowToStop(w).Obj())
		if err := w.admin.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		tr := w.request(t, pod)
		w.untilActive(t, tr.ObjectKey, imperative)
		passes(t, w, tr, pod, 0)
	})
	t.Run("81 a pod that terminates during the backoff is not evicted again", func(t *testing.T) {
		w := newWorld(t, mgr)
		w.hold(t)
		pod := w.createPod(t, slowToStop(w).Obj())
		tr := w.request(t, pod)
		w.untilRetries(t, tr.ObjectKey, 1)
		if err := w.admin.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		// The copied label shows that the manager has seen the deletion before it.
		base := pod.DeepCopy()
		pod.Labels = map[string]string{"seen": "terminating"}
		if err := w.admin.Patch(t.Context(), pod, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		w.until(t, tr.ObjectKey, "the manager to have seen the deletion", func(er *v1alpha1.EvictionRequest) bool {
			return er.Labels["seen"] == "terminating"
		})
		passes(t, w, tr, pod, len(w.evictionsOf(t, pod)))
	})
}

// recommendedHeartbeat is how often an interceptor should report (000:L257).
const recommendedHeartbeat = 3 * time.Minute

// daemonSetPod creates a DaemonSet and returns one of its pods.
func daemonSetPod(t *testing.T, w *world) *corev1.Pod {
	t.Helper()
	pods := map[string]string{"app": "agent"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pods},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pods}, Spec: newPod(w.ns, "").Spec},
		},
	}
	if err := w.admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	var pod *corev1.Pod
	await(t, "a pod of the DaemonSet to run", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := w.admin.List(ctx, list, client.InNamespace(w.ns), client.MatchingLabels(pods)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.Phase == corev1.PodRunning {
				pod = &list.Items[i]
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
	return pod
}

func deleteDaemonSet(t *testing.T, w *world, _ *corev1.Pod) {
	t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "agent"}}
	if err := w.admin.Delete(t.Context(), set, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
}

// mirrorPod creates what a kubelet shows of a static pod.
func mirrorPod(t *testing.T, w *world) *corev1.Pod {
	t.Helper()
	node := &corev1.Node{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, node); err != nil {
		t.Fatal(err)
	}
	return w.createPod(t, builder.Pod(w.ns, "static").Node(node.Name).Mirror().Change(func(p *corev1.Pod) {
		p.OwnerReferences[0].UID = node.UID // Or it would be collected.
		p.OwnerReferences[0].BlockOwnerDeletion = nil
	}).Obj())
}

func succeed(t *testing.T, w *world, pod *corev1.Pod) {
	t.Helper()
	w.ends(t, pod, corev1.PodSucceeded)
}

// ends makes the pod one that has ended by itself.
func (w *world) ends(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase))
	if err := w.admin.Status().Patch(t.Context(), pod.DeepCopy(), patch); err != nil {
		t.Fatalf("end pod: %v", err)
	}
}
