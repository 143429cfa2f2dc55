//go:build unix

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// noTimer makes the pause between two attempts so long that no attempt of a test
// can be due to it.
func noTimer(o *app.Options) {
	o.EvictionBackoffMin, o.EvictionBackoffMax = time.Hour, time.Hour
}

// ofApp labels a pod as one of that application, without a controller.
func ofApp(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels = map[string]string{builder.AppLabel: name} }
}

// createBudget creates a budget and waits until the disruption controller has
// counted so many healthy pods, so that its answers are final.
func createBudget(t *testing.T, budget *policyv1.PodDisruptionBudget, healthy int32) *policyv1.PodDisruptionBudget {
	t.Helper()
	create(t, budget)
	eventually(t, "budget "+budget.Name+" to be counted", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if budget.Status.ObservedGeneration != budget.Generation || budget.Status.CurrentHealthy != healthy {
			return fmt.Errorf("generation %d, status %+v", budget.Generation, budget.Status)
		}
		return nil
	})
	return budget
}

// complete reports that an interceptor began and is done, as that would, when it
// is its turn.
func complete(t *testing.T, pod *corev1.Pod, name string, now func() time.Time) {
	t.Helper()
	waitRequest(t, pod, "in the hands of "+name, activeIs(name))
	report(t, pod, name, func(s *v1alpha1.InterceptorStatus) {
		at := metav1.NewTime(now().Truncate(time.Second)) // Of this attempt: an earlier time may be too old.
		s.StartTime, s.HeartbeatTime, s.CompletionTime = &at, &at, &at
	})
}

// blocked wants that the eviction itself was tried and refused.
func blocked(er *v1alpha1.EvictionRequest) bool {
	return activeIs(v1alpha1.ImperativeEvictionInterceptor)(er) && er.Status.Interceptors[len(er.Status.Interceptors)-1].Retries > 0
}

// attempts is how often the evictor of a manager called the eviction subresource,
// by result and trigger.
func attempts(t *testing.T, m *manager.Manager) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, family := range must(m.Metrics.Gather())(t) {
		if family.GetName() != "drawbridge_imperative_eviction_attempts_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range series.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			counts[labels["result"]+" by "+labels["trigger"]] += int(series.GetCounter().GetValue())
		}
	}
	return counts
}

// evictionsBy are the calls of the eviction subresource by one user.
func evictionsBy(requests cluster.Requests, user, namespace string) cluster.Requests {
	return requests.By(user).Where(func(r cluster.Request) bool {
		return r.Resource == "pods" && r.Subresource == "eviction" && r.Namespace == namespace
	})
}

// A drain meets a budget when the interceptor is done. It is the budget's event that
// ends the waiting: our timer would take an hour, and kubectl stands still.
func TestTheBudgetsEventTriggersTheEviction(t *testing.T) {
	m := startManager(t, noTimer)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	const name, budget = "flush.example.com", "db-quorum"
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(nodes[0]).Change(ofApp("db")).Interceptors(name).Obj())
	createBudget(t, builder.Budget(namespace, budget).Selects(builder.AppLabel, "db").MinAvailable("1").Obj(), 1)

	drain := startDrain(t, "alice", nodes[0])
	waitLine(t, drain, "will retry after 5s")
	if err := drain.Pause(); err != nil {
		t.Fatal(err)
	}
	complete(t, pod, name, m.Clock.Now)
	er := waitRequest(t, pod, "blocked", blocked)
	saysAll(t, "the report", er.Status.Interceptors[1].Message, "number of retries: 1.")
	saysAll(t, "the refusal", lastReport(er).Refusal.Message, "PodDisruptionBudget "+budget+" can never allow a disruption (minAvailable is 1 of 1 pod).")
	saysAll(t, "the event", waitEvent(t, pod, "BudgetNeverAllows").Note, "the first try of this manager", budget, "needs 1 healthy pods and has 1 currently")
	lives(t, pod)
	if diff := gocmp.Diff(map[string]int{"budget-never-allows by first": 1}, attempts(t, m)); diff != "" {
		t.Errorf("attempts before the budget moved (-want +got):\n%s", diff)
	}

	mark := kube.RequestLog().Mark()
	createPod(t, builder.Pod(namespace, "db-1").Node(nodes[1]).Change(ofApp("db")).Obj())
	gone(t, pod)
	er = waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	if diff := gocmp.Diff(map[string]int{"budget-never-allows by first": 1, "evicted by budget": 1}, attempts(t, m)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	saysAll(t, "the event", waitEvent(t, er, "EvictionAccepted").Note, "because a budget made room")
	if calls := evictionsBy(since(t, mark), drawbridge(), namespace); len(calls) != 1 || calls[0].Code != http.StatusCreated {
		t.Errorf("want one call, accepted, got:\n%s", calls)
	}

	if err := drain.Resume(); err != nil {
		t.Fatal(err)
	}
	saysAll(t, "standard output", finishWell(t, drain).Stdout, "node/"+nodes[0]+" drained")
	if calls := evictionsBy(since(t, mark), "alice", namespace); len(calls.Where(func(r cluster.Request) bool { return r.Code == http.StatusCreated })) != 0 {
		t.Errorf("want none of kubectl's calls to be accepted, got:\n%s", calls)
	}
}

// There are more ways than a healthy pod for a budget to let go.
func TestWhateverFreesABudgetTriggersTheEviction(t *testing.T) {
	m := startManager(t, noTimer)
	tests := map[string]func(t *testing.T, budget *policyv1.PodDisruptionBudget, pod *corev1.Pod){
		"a smaller budget": func(t *testing.T, budget *policyv1.PodDisruptionBudget, _ *corev1.Pod) {
			patch(t, budget, func() { budget.Spec.MinAvailable = new(intstr.FromInt32(0)) })
		},
		"no budget any more": func(t *testing.T, budget *policyv1.PodDisruptionBudget, _ *corev1.Pod) {
			if err := admin.Delete(t.Context(), budget); err != nil {
				t.Fatal(err)
			}
		},
		"a budget for others": func(t *testing.T, budget *policyv1.PodDisruptionBudget, _ *corev1.Pod) {
			patch(t, budget, func() { budget.Spec.Selector.MatchLabels[builder.AppLabel] = "web" })
		},
		"a pod that left its application": func(t *testing.T, _ *policyv1.PodDisruptionBudget, pod *corev1.Pod) {
			patch(t, pod, func() { pod.Labels[builder.AppLabel] = "quarantine" })
		},
	}
	for name, free := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Change(ofApp("db")).Obj())
			budget := createBudget(t, builder.Budget(namespace, "db").Selects(builder.AppLabel, "db").MinAvailable("1").Obj(), 1)
			newNative(t, namespace, "rebalancer", "rebalancer.example.com").apply(t, pod, true)
			er := waitRequest(t, pod, "blocked", blocked)

			free(t, budget, pod)
			gone(t, pod)
			saysAll(t, "the event", waitEvent(t, er, "EvictionAccepted").Note, "because a budget made room")
		})
	}
	t.Cleanup(func() { // The subtests have ended by then.
		for kind, n := range attempts(t, m) {
			if strings.HasSuffix(kind, " by backoff") {
				t.Errorf("want none by a timer, got %d %s", n, kind)
			}
		}
	})
}

// patch changes an object as it is read and written by the test.
func patch(t *testing.T, object client.Object, change func()) {
	t.Helper()
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		t.Fatalf("%T is no object", object)
	}
	change()
	if err := admin.Patch(t.Context(), object, client.MergeFrom(before)); err != nil {
		t.Fatalf("patch %T %s: %v", object, object.GetName(), err)
	}
}

// As many pods as a budget allows leave at a time, and asking costs a number of calls
// that grows with the number of pods and not with its square.
func TestPodsBehindOneBudgetLeaveOneByOne(t *testing.T) {
	m := startManager(t, noTimer)
	const n = 20
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	create(t, builder.Deployment(namespace, "web").Replicas(n).Pods(onNodesOf(namespace)).Obj())
	pods := readyPods(t, namespace, n, nodes...)
	budget := createBudget(t, builder.Budget(namespace, "web").Selects(builder.AppLabel, "web").MinAvailable(fmt.Sprint(n)).Obj(), n)

	mark := kube.RequestLog().Mark()
	rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
	for i := range pods {
		rebalancer.apply(t, &pods[i], true)
	}
	type waiter struct {
		pod, request string
		since        time.Time
	}
	var waiters []waiter
	for i := range pods {
		er := waitRequest(t, &pods[i], "blocked", blocked)
		waiters = append(waiters, waiter{pods[i].Name, er.Name, er.CreationTimestamp.Time})
	}
	slices.SortFunc(waiters, func(a, b waiter) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.request, b.request))
	})
	var want []string
	for _, w := range waiters {
		want = append(want, w.pod)
	}

	patch(t, budget, func() { budget.Spec.MinAvailable = new(intstr.FromInt32(n - 1)) })
	for i := range pods {
		gone(t, &pods[i])
	}
	readyPods(t, namespace, n, nodes...)

	calls := evictionsBy(since(t, mark), drawbridge(), namespace)
	var got []string
	for _, r := range calls {
		if r.Code == http.StatusCreated {
			got = append(got, r.Name)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("pods in the order in which they left, want the oldest request first (-want +got):\n%s", diff)
	}
	t.Logf("%d calls for %d pods: %v", len(calls), n, attempts(t, m))
	if len(calls) > 4*n {
		t.Errorf("want at most %d calls, got %d:\n%s", 4*n, len(calls), calls)
	}
}
