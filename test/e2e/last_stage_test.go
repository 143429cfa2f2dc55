//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// lastReport is what imperative-eviction.k8s.io has reported.
func lastReport(er *v1alpha1.EvictionRequest) v1alpha1.InterceptorStatus {
	return er.Status.Interceptors[len(er.Status.Interceptors)-1]
}

// Calls by name for a StatefulSet's pod are answered by us to the end, so the answers
// have to name what is waited for: the budget, and then what holds the pod's end.
func TestTheLastStageSaysWhatItWaitsFor(t *testing.T) {
	m := startManager(t, noTimer)
	namespace := kube.Namespace(t)
	addNodes(t, namespace, 1)
	const name, budgetName, finalizer = "flush.example.com", "db-quorum", "a.example.com/x"
	set := builder.StatefulSet(namespace, "db").Pods(onNodesOf(namespace, intercepted(name), func(w *builder.PodWrapper) {
		w.Finalizer(finalizer).Annotation(cluster.StopDelayAnnotation, "1000h")
	})).Obj()
	create(t, set)
	pod := readyPod(t, namespace, "db-0")
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			t.Errorf("delete the StatefulSet: %v", err)
		}
		clearPod(t, pod)
	})
	budget := createBudget(t, builder.Budget(namespace, budgetName).Selects(builder.AppLabel, "db").MaxUnavailable("0").Obj(), 1)

	evictUntil(t, "alice", pod, "waiting for interceptor")
	complete(t, pod, name, m.Clock.Now)
	got := evictUntil(t, "alice", pod, "Eviction triggered evacuation: waiting for the pod's disruption budget "+budgetName+" (2 of 2)")
	if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "" {
		t.Errorf("want 429 without Retry-After, got %d %v", got.code, got.header)
	}
	er := waitRequest(t, pod, "summed up as blocked", func(er *v1alpha1.EvictionRequest) bool {
		return er.Status.Summary.State == v1alpha1.StateBlocked
	})
	want := v1alpha1.InterceptorStatus{
		Name: v1alpha1.ImperativeEvictionInterceptor, Retries: 1,
		Message: "Could not evict a pod due to failing eviction requests, number of retries: 1.",
		Refusal: &v1alpha1.EvictionRefusal{
			Reason: "BudgetNeverAllows", Budgets: []string{budgetName},
			Message: "PodDisruptionBudget db-quorum can never allow a disruption (maxUnavailable is 0).",
		},
	}
	times := cmpopts.IgnoreFields(v1alpha1.InterceptorStatus{}, "StartTime", "HeartbeatTime")
	if diff := gocmp.Diff(want, lastReport(er), times); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	table := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "get", "er", "-n", namespace))(t).Stdout
	if !strings.Contains(table, "BUDGET") || !strings.Contains(table, " "+budgetName+" ") {
		t.Errorf("kubectl get er does not name the budget:\n%s", table)
	}

	base := budget.DeepCopy()
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	if err := admin.Patch(t.Context(), budget, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	evictUntil(t, "alice", pod, "Eviction triggered evacuation: the pod is terminating (finalizers "+finalizer+")")
	now := &corev1.Pod{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
		t.Fatal(err)
	}
	// Ten seconds after the grace period, and a minute after the report before.
	m.Clock.AdvanceTo(now.DeletionTimestamp.Add(10*time.Second + time.Minute))
	before := lastReport(er).HeartbeatTime
	er = waitRequest(t, pod, "said to hang", func(er *v1alpha1.EvictionRequest) bool { return lastReport(er).HeartbeatTime.After(before.Time) })
	want.Message, want.Refusal = fmt.Sprintf("The pod is terminating; finalizers hold it: %s.", finalizer), nil
	if diff := gocmp.Diff(want, lastReport(er), times); diff != "" {
		t.Errorf("report of a pod that hangs (-want +got):\n%s", diff)
	}
	waitRequest(t, pod, "not blocked any more", func(er *v1alpha1.EvictionRequest) bool {
		return er.Status.Summary.State == v1alpha1.StateEvicting && er.Status.Summary.Budget == ""
	})
}
