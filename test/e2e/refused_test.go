//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// refusedRows are the rows of the table in docs/operations/observability.md: each refuses
// exactly that write, wants what the table promises, takes the cause away, and wants that
// the work goes on, without anybody touching an object of Drawbridge.
var refusedRows = map[refused.Write]func(*testing.T, *manager.Manager){
	refused.Request:           refusedRequest,
	refused.RequestLabels:     refusedRequestLabels,
	refused.RequestStatus:     refusedRequestStatus,
	refused.Report:            refusedReport,
	refused.Lease:             refusedLease,
	refused.GuardBudget:       refusedGuardBudget,
	refused.GuardLabel:        refusedGuardLabel,
	refused.HandUp:            refusedHandUp,
	refused.Job:               refusedJob,
	refused.HookStatus:        refusedHookStatus,
	refused.BudgetStatus:      refusedBudgetStatus,
	refused.Mark:              refusedMark,
	refused.Migration:         refusedMigration,
	refused.PolicyStatus:      refusedPolicyStatus,
	refused.InterceptorStatus: refusedInterceptorStatus,
	refused.Node:              refusedNode,
	refused.PodCondition:      refusedPodCondition,
	refused.Maintenance:       refusedMaintenance,
	refused.DeschedulerMark:   refusedDeschedulerMark,
}

// alone are the rows that would disturb the other tests; they are proved with managers of
// their own.
var alone = map[refused.Write]string{
	refused.Preset:               "TestRefusedWritesOfTheInstallation",
	refused.Certificate:          "TestRefusedWritesOfTheInstallation",
	refused.WebhookConfiguration: "TestRefusedWritesOfTheInstallation",
	refused.DeletionCost:         "TestRefusedDeletionCost",
	refused.NativeRequest:        "test/e2e/native: TestRefusedNativeWrites",
	refused.NativeEviction:       "test/e2e/native: TestRefusedNativeWrites",
	refused.NativeReport:         "test/e2e/native: TestRefusedNativeWrites",
	refused.NativeCharge:         "test/e2e/native: TestAnotherControllerAppears",
}

func TestRefusedWrites(t *testing.T) {
	m := shareManager(t)
	for what, row := range refusedRows {
		t.Run(string(what), func(t *testing.T) {
			t.Parallel()
			row(t, m)
		})
	}
}

// The table has a row for each write, and each row has a test.
func TestEachRefusedWriteHasARowAndATest(t *testing.T) {
	t.Parallel()
	page := string(must(os.ReadFile("../../docs/operations/observability.md"))(t))
	rows, tests, want := map[refused.Write]bool{}, map[refused.Write]bool{}, map[refused.Write]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z_]+) \| `).FindAllStringSubmatch(page, -1) {
		rows[refused.Write(row[1])] = true
	}
	for what := range refusedRows {
		tests[what] = true
	}
	for what := range alone {
		tests[what] = true
	}
	for _, what := range refused.Writes() {
		want[what] = true
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows of the table (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, tests); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}

// placed makes a namespace with a node.
func placed(t *testing.T) (namespace, node string) {
	t.Helper()
	namespace = kube.Namespace(t)
	return namespace, addNodes(t, namespace, 1)[0]
}

// held makes a pod with an interceptor that the test acts for.
func held(t *testing.T) (pod *corev1.Pod, interceptor string) {
	t.Helper()
	namespace, node := placed(t)
	interceptor = nameIn(namespace, "slow")
	return createPod(t, builder.Pod(namespace, "db-0").Node(node).Interceptors(interceptor).Obj()), interceptor
}

// goes completes the turn of an interceptor and wants the pod to be evicted.
func goes(t *testing.T, m *manager.Manager, pod *corev1.Pod, interceptor string) {
	t.Helper()
	evict(t, "alice", pod, eviction(pod)) // Still interested.
	complete(t, pod, interceptor, m.Clock.Now)
	evictUntilGranted(t, pod)
	gone(t, pod)
}

func refusedRequest(t *testing.T, m *manager.Manager) {
	pod, interceptor := held(t)
	quota := without(t, pod.Namespace, "count/evictionrequests.drawbridge.dev")
	mark := kube.RequestLog().Mark()
	answered(t, pod, "Eviction could not be coordinated yet: a quota of the namespace refuses the request, retry")
	wantRefused(t, m, pod, refused.Request, refused.Quota, "exceeded quota: none")
	noRequest(t, pod)
	lives(t, pod)
	deleteObject(t, quota)
	answered(t, pod, "Eviction triggered evacuation")
	goes(t, m, pod, interceptor)
	wantNoLoop(t, mark, pod.Namespace)
}

func refusedRequestLabels(t *testing.T, m *manager.Manager) {
	pod, interceptor := held(t)
	answered(t, pod, "waiting for interceptor")
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evictionrequests", namespace: pod.Namespace, only: "request.options.?fieldManager.orValue('') == 'drawbridge-labels'"})
	label := func(value string) {
		if err := admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"tier":"`+value+`"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	label("gold")
	wantRefused(t, m, pod, refused.RequestLabels, refused.Policy, words)
	end()
	waitRequest(t, pod, "labeled like its pod", func(er *v1alpha1.EvictionRequest) bool { return er.Labels["tier"] == "gold" })
	goes(t, m, pod, interceptor)
}

func refusedRequestStatus(t *testing.T, m *manager.Manager) {
	pod, interceptor := held(t)
	end := refuse(t, refusal{
		group: v1alpha1.GroupName, resource: "evictionrequests/status", namespace: pod.Namespace, reason: metav1.StatusReasonForbidden,
		only: "request.options.?fieldManager.orValue('') == 'drawbridge'",
	})
	mark := kube.RequestLog().Mark()
	answered(t, pod, "Eviction triggered evacuation: accepted")
	wantRefused(t, m, pod, refused.RequestStatus, refused.Policy, words)
	answered(t, pod, "Eviction triggered evacuation: accepted")
	end()
	goes(t, m, pod, interceptor)
	wantNoLoop(t, mark, pod.Namespace)
}

func refusedReport(t *testing.T, m *manager.Manager) {
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "ready", 1, v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "true"}})
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evictionrequests/status", namespace: h.namespace, only: fmt.Sprintf("request.options.?fieldManager.orValue('') == '%s'", actsAs(hook))})
	mark := kube.RequestLog().Mark()
	answered(t, pod, "waiting for interceptor")
	wantRefused(t, m, pod, refused.Report, refused.Policy, words)
	lives(t, pod)
	end()
	evictUntilGranted(t, pod)
	gone(t, pod)
	wantNoLoop(t, mark, h.namespace)
}

func refusedLease(t *testing.T, m *manager.Manager) {
	pod, interceptor := held(t)
	end := refuse(t, refusal{
		group: "coordination.k8s.io", resource: "leases", namespace: inst.Namespace,
		only: fmt.Sprintf("object.metadata.?annotations.orValue({}).exists(k, object.metadata.annotations[k] == '%s')", pod.Spec.NodeName),
	})
	answered(t, pod, "Eviction could not be coordinated yet: an admission policy refuses the lease of the caller, retry")
	wantRefused(t, m, pod, refused.Lease, refused.Policy, words)
	noRequest(t, pod)
	end()
	answered(t, pod, "Eviction triggered evacuation")
	goes(t, m, pod, interceptor)
}

// guarded makes a pod whose guard is to be closed from its start, without waiting for that.
func guarded(t *testing.T, prepare func(namespace string)) (pod *corev1.Pod, interceptor string) {
	t.Helper()
	namespace, node := placed(t)
	interceptor = nameIn(namespace, "always")
	prepare(namespace)
	register(t, builder.EvictionInterceptor(interceptor).InNamespace(namespace).Pods(builder.AppLabel, "vm").Guard(v1alpha1.GuardAlways))
	return createPod(t, builder.Pod(namespace, "vm-0").Node(node).Change(ofApp("vm")).Obj()), interceptor
}

func refusedGuardBudget(t *testing.T, m *manager.Manager) {
	var quota *corev1.ResourceQuota
	pod, interceptor := guarded(t, func(namespace string) { quota = without(t, namespace, "count/poddisruptionbudgets.policy") })
	wantRefused(t, m, pod, refused.GuardBudget, refused.Quota, "exceeded quota: none")
	noGuard(t, pod)
	eventually(t, "the guard's metrics to tell", func(context.Context) error {
		if n := guardMetric(t, m, "unguarded"); n == 0 {
			return fmt.Errorf("no pod is unguarded")
		}
		return nil
	})
	deleteObject(t, quota)
	waitGuard(t, pod, true)
	goes(t, m, pod, interceptor)
}

func refusedGuardLabel(t *testing.T, m *manager.Manager) {
	var end func()
	pod, interceptor := guarded(t, func(namespace string) {
		end = refuse(t, refusal{resource: "pods", namespace: namespace, only: "request.options.?fieldManager.orValue('') == 'guard.drawbridge.dev'"})
	})
	wantRefused(t, m, pod, refused.GuardLabel, refused.Policy, words)
	noGuard(t, pod)
	end()
	waitGuard(t, pod, true)
	goes(t, m, pod, interceptor)
}

func refusedHandUp(t *testing.T, m *manager.Manager) {
	a := newApplication(t, 1)
	pod := &a.pods[0]
	addNodes(t, a.namespace, 1)
	end := refuse(t, refusal{resource: "pods", namespace: a.namespace, only: "request.options.?fieldManager.orValue('') == 'surge.drawbridge.dev'"})
	mark := kube.RequestLog().Mark()
	answered(t, pod, "waiting for interceptor")
	wantRefused(t, m, pod, refused.HandUp, refused.Policy, words)
	waitRequest(t, pod, "told that it waits", says(surge.Name, "cannot be handed up"))
	lives(t, pod)
	end()
	unschedulable(t, a.node, true)
	evictUntilGranted(t, pod)
	gone(t, pod)
	wantNoLoop(t, mark, a.namespace)
}

func refusedJob(t *testing.T, m *manager.Manager) {
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job(), Retries: new(int32(0))})
	end := refuse(t, refusal{group: "batch", resource: "jobs", namespace: h.namespace})
	mark := kube.RequestLog().Mark()
	answered(t, pod, "waiting for interceptor")
	wantRefused(t, m, pod, refused.Job, refused.Policy, words)
	waitHook(t, hook, "waiting", func(s v1alpha1.EvacuationHookStatus) bool {
		return len(s.Runs) == 1 && s.Runs[0].Phase == v1alpha1.HookRefused && s.Runs[0].Attempt == 1
	})
	lives(t, pod)
	end()
	evictUntilGranted(t, pod)
	gone(t, pod)
	wantNoLoop(t, mark, h.namespace)
}

func refusedHookStatus(t *testing.T, m *manager.Manager) {
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job()})
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evacuationhooks/status", namespace: h.namespace})
	mark := kube.RequestLog().Mark()
	answered(t, pod, "waiting for interceptor")
	wantRefused(t, m, pod, refused.HookStatus, refused.Policy, words)
	lives(t, pod)
	end()
	evictUntilGranted(t, pod)
	gone(t, pod)
	wantNoLoop(t, mark, h.namespace)
}

func refusedBudgetStatus(t *testing.T, m *manager.Manager) {
	namespace, node := placed(t)
	pods := createSet(t, namespace, "ring", 2, node)
	budget := createEvictionBudget(t, builder.EvictionBudget(namespace, "ring", builder.AppLabel, "ring").MaxUnavailable("1"), 2)
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evictionbudgets/status", namespace: namespace})
	mark := kube.RequestLog().Mark()
	answered(t, &pods[0], "waiting for interceptor")
	wantRefused(t, m, budget, refused.BudgetStatus, refused.Policy, words)
	lives(t, &pods[0])
	end()
	addNodes(t, namespace, 1)
	eventually(t, "the pod to be evicted", func(ctx context.Context) error {
		// Its successor has its name, and is not asked for.
		now := &corev1.Pod{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(&pods[0]), now); client.IgnoreNotFound(err) != nil || now.UID != pods[0].UID {
			return err
		}
		got := evict(t, "alice", &pods[0], eviction(&pods[0]))
		return fmt.Errorf("%d %s", got.code, got.body)
	})
	wantNoLoop(t, mark, namespace)
}

// machines of KubeVirt are marked by its preset.
func refusedMark(t *testing.T, m *manager.Manager) {
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true})
	waitPolicy(t, "kubevirt", v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	pod := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	end := refuse(t, refusal{group: "kubevirt.io", resource: "virtualmachineinstances", namespace: namespace})
	mark := kube.RequestLog().Mark()
	evictUntil(t, "alice", pod, kubevirtInterceptor)
	wantRefused(t, m, pod, refused.Mark, refused.Policy, words)
	lives(t, pod)
	end()
	evictUntilGranted(t, pod)
	gone(t, pod)
	wantNoLoop(t, mark, namespace)
}

func refusedMigration(t *testing.T, m *manager.Manager) {
	takeMigrations(t) // Else those of the twenty machines may leave no room for this one.
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	policy := ownPolicy(t, namespace, presetPolicy(t, "kubevirt"), nil)
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1]})
	pod := createOwnMachine(t, namespace, "vm", nodes[0], "LiveMigrate")
	end := refuse(t, refusal{group: "kubevirt.io", resource: "virtualmachineinstancemigrations", namespace: namespace})
	mark := kube.RequestLog().Mark()
	evictUntil(t, "alice", pod, policy.Spec.Interceptor)
	wantRefused(t, m, pod, refused.Migration, refused.Policy, words)
	lives(t, pod)
	end()
	evictUntilGranted(t, pod)
	gone(t, pod)
	wantNoLoop(t, mark, namespace)
}

func refusedPolicyStatus(t *testing.T, m *manager.Manager) {
	namespace := kube.Namespace(t)
	policy := ownPolicy(t, namespace, presetPolicy(t, "kubevirt"), nil)
	waitPolicy(t, policy.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evacuationpolicies/status", namespace: namespace, only: "object.metadata.name == '" + policy.Name + "'"})
	patch(t, policy, func() { policy.Spec.Evacuating = "no such thing" })
	wantRefused(t, m, policy, refused.PolicyStatus, refused.Policy, words)
	end()
	waitPolicy(t, policy.Name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, "")
}

func refusedInterceptorStatus(t *testing.T, m *manager.Manager) {
	namespace, node := placed(t)
	registration := register(t, builder.EvictionInterceptor(nameIn(namespace, "status")).InNamespace(namespace).Pods(builder.AppLabel, "web"))
	end := refuse(t, refusal{group: v1alpha1.GroupName, resource: "evictioninterceptors/status", namespace: namespace, only: "object.metadata.name == '" + registration.Name + "'"})
	createPod(t, builder.Pod(namespace, "web-0").Node(node).Change(ofApp("web")).Obj())
	wantRefused(t, m, registration, refused.InterceptorStatus, refused.Policy, words)
	end()
	waitRegistration(t, registration.Name, "counting its pod", func(r *v1alpha1.EvictionInterceptor) bool {
		return r.Status.MatchingPods != nil && *r.Status.MatchingPods == 1
	})
}

func refusedDeschedulerMark(t *testing.T, m *manager.Manager) {
	pod, interceptor := held(t)
	end := refuse(t, refusal{resource: "pods", namespace: pod.Namespace, only: "request.options.?fieldManager.orValue('') == 'descheduler.drawbridge.dev'"})
	if !newDescheduler(t, pod.Namespace)(pod) {
		t.Error("the descheduler takes the eviction for failed")
	}
	wantRefused(t, m, pod, refused.DeschedulerMark, refused.Policy, words)
	end()
	waitHint(t, pod, inProgress, ourHint)
	complete(t, pod, interceptor, m.Clock.Now)
	gone(t, pod)
}

// A quota of zero and a policy do not depend on who asks: two callers are told the same.
func TestARefusalIsTheSameForEverybody(t *testing.T) {
	shareManager(t)
	pod, _ := held(t)
	without(t, pod.Namespace, "count/evictionrequests.drawbridge.dev")
	answered(t, pod, "a quota of the namespace refuses the request")
	for _, user := range []string{"alice", "bob"} {
		if got := evict(t, user, pod, eviction(pod)); got.code != http.StatusTooManyRequests || got.header.Get("Retry-After") != "" {
			t.Errorf("%s is answered %d, %v", user, got.code, got.header)
		}
	}
}
