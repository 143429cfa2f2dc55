//go:build unix

package karpenter

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// twoNodes deletes both nodes of a StatefulSet at once. Its budget lets one pod go at a time.
func twoNodes(t *testing.T, want outcome, w *peer.Worker) {
	t.Helper()
	p := newPool(t, "")
	apart := func(w *builder.PodWrapper) {
		w.Interceptors(preparer).Change(func(pod *corev1.Pod) {
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey:   corev1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: "db"}},
				}},
			}}
		})
	}
	cluster.Create(t, admin,
		builder.StatefulSet(p.name, "db").Replicas(2).Pods(p.here(apart)).Obj(),
		builder.Budget(p.name, "db").Selects(builder.AppLabel, "db").MaxUnavailable("1").Obj())
	var victims []*victim
	for _, name := range []string{"db-0", "db-1"} {
		victims = append(victims, onItsNode(t, cluster.ReadyPod(t, admin, p.name, name)))
	}
	ready := kube.WatchCounts(t, p.name, &corev1.PodList{}, func(object client.Object) int {
		if pod, ok := object.(*corev1.Pod); ok && cluster.IsReady(pod) {
			return 1
		}
		return 0
	})
	ready.Await(t, 2)
	for _, v := range victims {
		v.deleteClaim(t)
	}
	for _, v := range victims {
		v.waitGone(t)
		got := v.outcome(t, w)
		got.Refused = want.Refused // Which of them the budget refuses at first is chance.
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what became of %s (-want +got):\n%s", v.pod.Name, diff)
		}
		cluster.ReadyPod(t, admin, p.name, v.pod.Name)
	}
	if least := ready.Least(t, 2); least < 1 {
		t.Errorf("%d pods were Ready, and the budget wants one", least)
	}
	evictions := must(kube.RequestLog().Since(t.Context(), victims[0].mark))(t).Where(func(r cluster.Request) bool {
		return r.Namespace == p.name && r.Subresource == "eviction" && r.Code == http.StatusCreated && !r.DryRun
	})
	if diff := cmp.Diff(2, len(evictions)); diff != "" {
		t.Errorf("evictions, those of successors included (-want +got):\n%s\n%s", diff, evictions)
	}
}

// Two nodes that go at once take both pods of a StatefulSet, one after the other, and leave
// their successors alone.
func TestTwoDeletedNodes(t *testing.T) {
	together(t)
	twoNodes(t, prepared, preparing)
}
