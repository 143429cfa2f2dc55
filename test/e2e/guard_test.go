//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// The manager is away in the middle of a drain: plain pods leave, the pod that is
// being evacuated stays, kubectl goes on asking, and when we are back all goes on.
func TestTheGuardProtectsWhileTheManagerIsDown(t *testing.T) {
	m, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "failover.example.com"
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(name).Obj())
	var plain []*corev1.Pod
	for i := range 3 {
		plain = append(plain, createPod(t, builder.Pod(namespace, fmt.Sprintf("web-%d", i)).Node(node).Obj()))
	}
	evict(t, "heidi", pod, eviction(pod))
	waitGuard(t, pod, true)
	outage(t, m)

	drain := startDrain(t, "heidi", node)
	for _, pod := range plain {
		gone(t, pod)
	}
	waitLine(t, drain, `error when evicting pods/"db-0" -n "`+namespace+`" (will retry after 5s): Cannot evict pod as it would violate the pod's disruption budget.`)
	answer := evict(t, "heidi", pod, eviction(pod))
	if status := answer.status(t); answer.code != http.StatusTooManyRequests || answer.header.Get("Retry-After") != "" {
		t.Errorf("while we are down: want a 429 without Retry-After, got %d %v %+v", answer.code, answer.header, status)
	}
	lives(t, pod)

	m = back(t, nil, pod, &labelStop{})
	complete(t, pod, name, m.Clock.Now)
	saysAll(t, "standard output", finishWell(t, drain).Stdout, "node/"+node+" drained")
	gone(t, pod)
	waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
}

// Until the guard is open, the evictor waits and callers hear us. So an evacuation
// costs two labels, and no failed attempt. One that is canceled loses its guard.
func TestTheGuardOpensInTheImperativeStage(t *testing.T) {
	m, labels := startGuarded(t, func(o *app.Options) { noTimer(o); onlyTheGuard(o) })
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "flush.example.com"
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(name).Obj())
	canceled := createPod(t, builder.Pod(namespace, "db-1").Node(node).Interceptors(name).Obj())

	mark := kube.RequestLog().Mark()
	rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
	rebalancer.apply(t, pod, true)
	rebalancer.apply(t, canceled, true)
	waitGuard(t, pod, true)
	waitGuard(t, canceled, true)
	rebalancer.apply(t, canceled, false)
	waitGuard(t, canceled, false)

	labels.stop()
	complete(t, pod, name, m.Clock.Now)
	got := evictUntil(t, "judy", pod, "Eviction triggered evacuation: the guard of the pod is closed")
	if got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "" {
		t.Errorf("before the guard is open: want a 429 without Retry-After, got %d %s", got.code, got.body)
	}
	labels.release()
	gone(t, pod)
	er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	lives(t, canceled)

	if diff := gocmp.Diff(map[string]int{"evicted by first": 1}, attempts(t, m)); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	// One that the API server refuses changed nothing: it tests what it saw, and the cache
	// may be behind.
	patches := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Resource == "pods" && r.Verb == "patch" && r.Namespace == namespace && r.Code == http.StatusOK
	})
	if len(patches) != 4 {
		t.Errorf("want two labels put on and taken off, got:\n%s", patches)
	}
	if er.Labels[v1alpha1.GuardLabel] != "" {
		t.Errorf("the guard's label was copied to the request: %v", er.Labels)
	}
}

// However many pods there are, a namespace has one budget, and a pod costs one
// write.
func TestOneBudgetPerNamespace(t *testing.T) {
	m, _ := startGuarded(t, onlyTheGuard)
	const n, perTurn = 150, 50
	namespaces := []string{kube.Namespace(t), kube.Namespace(t), kube.Namespace(t)}
	mark := kube.RequestLog().Mark()
	// They need not run: a label is a label.
	inParallel(t, n, perTurn, func(ctx context.Context, i int) error {
		namespace, name := namespaces[i%len(namespaces)], fmt.Sprintf("db-%d", i)
		pod := builder.Pod(namespace, name).Interceptors("failover.example.com").Change(func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }).Obj()
		if err := admin.Create(ctx, pod); err != nil {
			return err
		}
		return admin.Create(ctx, builder.EvictionRequest(namespace, name, pod.UID).Requesters("rebalancer.example.com").Obj())
	})
	eventually(t, "all pods to be guarded", func(context.Context) error {
		if closed, open := guardMetric(t, m, "closed"), guardMetric(t, m, "unguarded"); closed < n || open != 0 {
			return fmt.Errorf("%d guarded, %d not yet", closed, open)
		}
		return nil
	})

	budgets := guardBudgets(t, namespaces...)
	if len(budgets) != len(namespaces) {
		t.Errorf("want %d budgets, got %d", len(namespaces), len(budgets))
	}
	for _, pdb := range budgets {
		if len(pdb.OwnerReferences) != 1 || pdb.OwnerReferences[0].Name != "drawbridge-guard" {
			t.Errorf("the budget of %s would outlive the installation: %v", pdb.Namespace, pdb.OwnerReferences)
		}
	}
	counts := map[string]int{}
	for _, r := range since(t, mark).By(drawbridge()) {
		if r.Writes() && (r.Resource == "pods" || r.Resource == "poddisruptionbudgets") && slices.Contains(namespaces, r.Namespace) {
			counts[fmt.Sprintf("%s %s -> %d", r.Verb, r.Resource, r.Code)]++
		}
	}
	// A refused patch has changed nothing: it tests what it saw, and on a busy machine the
	// cache may be behind the guard's own write. That must stay rare.
	const refused = "patch pods -> 422"
	if counts[refused] > n/50 {
		t.Errorf("want at most %d patches refused, got %d", n/50, counts[refused])
	}
	delete(counts, refused)
	t.Logf("writes for %d pods in %d namespaces: %v", n, len(namespaces), counts)
	want := map[string]int{"patch pods -> 200": n, "create poddisruptionbudgets -> 201": len(namespaces)}
	if diff := gocmp.Diff(want, counts); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Callers never stop asking while a user's budget comes to pods whose guard is
// closed, and stays closed for a while. Two budgets on a pod would make the API
// server answer 500, which ends a drain, and a guard's budget that is new a
// Retry-After, in which callers sleep silently.
func TestNoEvictionMeetsTwoBudgets(t *testing.T) {
	m, labels := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name, n = "failover.example.com", 4
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, createPod(t, builder.Pod(namespace, fmt.Sprintf("db-%d", i)).Node(node).Change(ofApp("db")).Interceptors(name).Obj()))
	}

	mark := kube.RequestLog().Mark()
	var callers sync.WaitGroup
	var slept sync.Map
	for i, pod := range pods {
		callers.Go(func() {
			for t.Context().Err() == nil {
				got := evict(t, fmt.Sprintf("caller-%d", i), pod, eviction(pod))
				if got.header.Get("Retry-After") != "" {
					slept.Store(pod.Name, string(got.body))
				}
				if got.code == http.StatusCreated || got.code == http.StatusNotFound {
					return
				}
			}
		})
	}
	for _, pod := range pods {
		waitGuard(t, pod, true)
	}
	labels.stop()
	createBudget(t, builder.Budget(namespace, "db").Selects(builder.AppLabel, "db").MinAvailable("0").Obj(), n)
	for _, pod := range pods {
		complete(t, pod, name, m.Clock.Now)
	}
	for _, pod := range pods {
		evictUntil(t, "judy", pod, "the guard of the pod is closed")
		lives(t, pod)
	}
	labels.release()
	for _, pod := range pods {
		gone(t, pod)
	}
	callers.Wait()

	for _, r := range since(t, mark) {
		if r.Subresource == "eviction" && r.Namespace == namespace && r.Code >= http.StatusInternalServerError {
			t.Errorf("want no such answer: %v", r)
		}
	}
	slept.Range(func(pod, body any) bool {
		t.Errorf("pod %s: an answer with Retry-After: %s", pod, body)
		return true
	})
}

// A budget of the user's wins, and is the only one that counts.
func TestAUsersBudgetKeepsTheGuardAway(t *testing.T) {
	m, _ := startGuarded(t, noTimer)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	const name = "failover.example.com"
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Change(ofApp("db")).Interceptors(name).Obj())
	before := guardMetric(t, m, "other_budget")
	newNative(t, namespace, "rebalancer", "rebalancer.example.com").apply(t, pod, true)
	waitGuard(t, pod, true)

	budget := createBudget(t, builder.Budget(namespace, "db").Selects(builder.AppLabel, "db").MinAvailable("1").Obj(), 1)
	waitGuard(t, pod, false)
	eventually(t, "the metric to tell", func(context.Context) error {
		if got := guardMetric(t, m, "other_budget"); got != before+1 {
			return fmt.Errorf("other_budget is %d, was %d", got, before)
		}
		return nil
	})
	complete(t, pod, name, m.Clock.Now)
	er := waitRequest(t, pod, "blocked", blocked)
	if got := er.Status.Interceptors[1].Refusal; got == nil || got.Reason != "BudgetNeverAllows" || !slices.Equal(got.Budgets, []string{"db"}) {
		t.Errorf("the report should name budget db, got %+v", got)
	}
	lives(t, pod)
	if err := admin.Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	gone(t, pod)
}

// Whoever switches the guard off, or uninstalls the chart, deletes the role that
// owns the budgets. No pod stays protected then that nobody could release.
func TestTheBudgetsGoWithTheirOwner(t *testing.T) {
	m, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors("failover.example.com").Obj())
	newNative(t, namespace, "rebalancer", "rebalancer.example.com").apply(t, pod, true)
	waitGuard(t, pod, true)
	outage(t, m)

	role := &rbacv1.ClusterRole{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "drawbridge-guard"}, role); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		role.ObjectMeta = metav1.ObjectMeta{Name: role.Name, Labels: role.Labels, Annotations: role.Annotations}
		if err := admin.Create(context.Background(), role); err != nil {
			t.Error(err)
		}
	})
	if err := admin.Delete(t.Context(), role.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget to go", func(context.Context) error {
		if n := len(guardBudgets(t, namespace)); n != 0 {
			return fmt.Errorf("there is %d", n)
		}
		return nil
	})
	if got := evict(t, "ivan", pod, eviction(pod)); got.code != http.StatusCreated {
		t.Errorf("an eviction without us: want it accepted, got %d %s", got.code, got.body)
	}
}

// A namespace that needs its budget no more loses it after a while.
func TestAnIdleBudgetGoes(t *testing.T) {
	m, _ := startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors("failover.example.com").Obj())
	rebalancer := newNative(t, namespace, "rebalancer", "rebalancer.example.com")
	rebalancer.apply(t, pod, true)
	waitGuard(t, pod, true)
	rebalancer.apply(t, pod, false)
	waitGuard(t, pod, false)
	if n := len(guardBudgets(t, namespace)); n != 1 {
		t.Fatalf("want the budget to stay for a while, there are %d", n)
	}
	eventually(t, "the budget to go", func(context.Context) error {
		m.Clock.Advance(time.Minute)
		if n := len(guardBudgets(t, namespace)); n != 0 {
			return fmt.Errorf("there is %d", n)
		}
		return nil
	})
}
