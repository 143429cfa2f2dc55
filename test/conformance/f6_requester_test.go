package conformance

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F6 Labels, of requests that Drawbridge's own requesters create: they copy them.
func TestConformance_F6_Requester(t *testing.T) {
	const name = "rebalancer.drawbridge.dev"
	w := newWorld(t, startManager(t, manager.Options{}))
	ours := w.asRequester(t, "grace", name, requesterRules...)
	other := w.asRequester(t, "heidi", otherRequester, requesterRules...)
	follows := func(t *testing.T, pod *corev1.Pod, want labels) {
		t.Helper()
		w.until(t, keyOf(pod), fmt.Sprintf("the labels %v", want), func(er *v1alpha1.EvictionRequest) bool { return maps.Equal(er.Labels, want) })
	}

	t.Run("57 it has the pod's labels without a write for them", func(t *testing.T) {
		pod := w.createPod(t, builder.Pod(w.ns, "new").Interceptors(interceptorA).Label("app", "web").Obj())
		if _, err := ours.Join(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		er := w.untilActive(t, keyOf(pod), interceptorA)
		if diff := cmp.Diff(labels{"app": "web"}, er.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		writes := w.asked(t, func(r cluster.Request) bool {
			return r.Resource == "evictionrequests" && r.Subresource == "" && r.Name == er.Name && r.Verb == "patch"
		})
		if len(writes) != 0 {
			t.Errorf("the manager wrote besides the status: %v", writes)
		}
	})
	t.Run("60 what the pod gets, changes and loses follows, whoever joins", func(t *testing.T) {
		pod := w.createPod(t, builder.Pod(w.ns, "changing").Interceptors(interceptorA).Label("app", "web").Label("old", "yes").Obj())
		if _, err := ours.Join(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.untilActive(t, keyOf(pod), interceptorA)
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = labels{"app": "db", "new": "yes"} })
		follows(t, pod, labels{"app": "db", "new": "yes"})
		if _, err := other.Join(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		follows(t, pod, labels{"app": "db", "new": "yes"})
		w.updatePod(t, pod, func(p *corev1.Pod) { p.Labels = nil })
		follows(t, pod, nil)
	})
	t.Run("57 whoever leaves takes no label away", func(t *testing.T) {
		pod := w.createPod(t, builder.Pod(w.ns, "left").Interceptors(interceptorA).Label("app", "web").Obj())
		for _, r := range []*requester.Requester{ours, other} {
			if _, err := r.Join(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		w.untilActive(t, keyOf(pod), interceptorA)
		if err := ours.Withdraw(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		er := w.until(t, keyOf(pod), "wanted by the other one", func(er *v1alpha1.EvictionRequest) bool {
			return slices.Equal(requestersOf(er), []string{otherRequester}) && er.Status.ObservedGeneration == er.Generation
		})
		if diff := cmp.Diff(labels{"app": "web"}, er.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if err := other.Withdraw(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		canceled := w.until(t, keyOf(pod), "Canceled", v1alpha1.IsFinished)
		if diff := cmp.Diff(labels{"app": "web"}, canceled.Labels); diff != "" {
			t.Errorf("labels of the canceled request (-want +got):\n%s", diff)
		}
	})
	t.Run("57 labels that a policy refuses hold up no eviction", func(t *testing.T) {
		refuseLabel(t, w, "secret")
		pod := w.createPod(t, builder.Pod(w.ns, "refused").Interceptors(interceptorA).Label("secret", "yes").Obj())
		if _, err := ours.Join(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.untilActive(t, keyOf(pod), interceptorA)
	})
}
