//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// without lets a quota refuse all objects of a kind in the namespace.
func without(t *testing.T, namespace string, kind corev1.ResourceName) *corev1.ResourceQuota {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{kind: resource.MustParse("0")}},
	}
	create(t, quota)
	fresh := quota.DeepCopy()
	fresh.ResourceVersion, fresh.UID = "", ""
	tries := 0
	cluster.Eventually(t, "the quota to be in force", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if _, ok := quota.Status.Used[kind]; ok {
			return nil
		}
		// The quota controller looks for new kinds every 30 seconds, and then not at the quotas
		// that it has.
		if tries++; tries%20 == 0 {
			if err := admin.Delete(ctx, quota); err != nil {
				return err
			}
			quota = fresh.DeepCopy()
			if err := admin.Create(ctx, quota); err != nil {
				return err
			}
		}
		return fmt.Errorf("status %+v", quota.Status)
	})
	return quota
}

// forbid lets a policy deny everybody but olga to create objects like this one in its
// namespace. It returns when that is in force, and what ends it.
func forbid(t *testing.T, group, plural string, like client.Object) (end func()) {
	t.Helper()
	name := like.GetNamespace() + "-" + plural
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: like.GetNamespace()}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{plural}},
		}}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "request.userInfo.username == 'olga'", Message: "it has no label team"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	create(t, policy)
	create(t, binding)
	end = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete %T %s: %v", object, name, err)
			}
		}
	}
	t.Cleanup(end)
	eventually(t, "the policy to be in force", func(ctx context.Context) error {
		err := admin.Create(ctx, like.DeepCopyObject().(client.Object), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "it has no label team") {
			return fmt.Errorf("it is answered: %w", errors.Join(err, errors.New("not denied")))
		}
		return nil
	})
	return end
}

// aRequest and aJob are for forbid.
func aRequest(namespace string) *v1alpha1.EvictionRequest {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "example"}}
	er.Spec.Target.Pod = &v1alpha1.LocalPodReference{Name: "example", UID: types.UID("example")}
	er.Spec.Requesters = []v1alpha1.Requester{{Name: "example.com"}}
	return er
}

func aJob(namespace string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "example"}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/job:1"}}}
	return job
}

// refusedWorlds are states in which the cluster refuses a write before the eviction. Each
// has a namespace of its own.
func refusedWorlds(silent string) map[string]foretellWorld {
	const (
		request = "be evicted after %s; currently it cannot be requested: a quota of the namespace refuses it: evictionrequests.drawbridge.dev \"UID\" is forbidden: exceeded quota: none, requested: count/evictionrequests.drawbridge.dev=1, used: count/evictionrequests.drawbridge.dev=0, limited: count/evictionrequests.drawbridge.dev=0"
		kind    = "count/evictionrequests.drawbridge.dev"
	)
	intercepted := func(prepare func(t *testing.T, namespace string), called bool) func(t *testing.T, _, name, node string) *corev1.Pod {
		return func(t *testing.T, _, name, node string) *corev1.Pod {
			t.Helper()
			namespace := kube.Namespace(t)
			prepare(t, namespace)
			pod := createPod(t, builder.Pod(namespace, name).Node(node).Interceptors(silent).Obj())
			if called {
				evictUntil(t, "carol", pod, "refuses the request, retry")
			}
			return pod
		}
	}
	quota := func(t *testing.T, namespace string) { t.Helper(); without(t, namespace, kind) }
	policy := func(t *testing.T, namespace string) {
		t.Helper()
		forbid(t, v1alpha1.GroupName, "evictionrequests", aRequest(namespace))
	}
	job := func(t *testing.T, _, name, node string) *corev1.Pod {
		t.Helper()
		namespace := kube.Namespace(t)
		forbid(t, "batch", "jobs", aJob(namespace))
		h := &hooked{namespace: namespace, node: node}
		pod := h.pod(t, name)
		hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job()})
		evict(t, "carol", pod, eviction(pod))
		er := waitRequest(t, pod, "in the hands of the hook", activeIs(actsAs(hook)))
		waitHook(t, hook, "refused", runPhase(er, v1alpha1.HookRefused))
		return pod
	}
	return map[string]foretellWorld{
		"no-request":          {create: intercepted(quota, false), drained: fmt.Sprintf(request, silent), unasked: "be evicted after " + silent},
		"no-request-called":   {create: intercepted(quota, true), drained: fmt.Sprintf(request, silent), unasked: "be evicted after " + silent},
		"no-request-for-some": {create: intercepted(policy, true), drained: "be evicted after " + silent},
		"no-job":              {create: job, drained: "be evicted, as is requested already: waiting for dump.NAMESPACE.hooks.drawbridge.dev (1 of 2)"},
	}
}

// What is refused is told, by `why`, `doctor` and the plan of a drain, and the other way
// round when the cause is gone.
func TestWhyAndDoctorTellWhatTheClusterRefuses(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	silent := nameIn(namespace, "silent")
	quota := without(t, namespace, "count/evictionrequests.drawbridge.dev")
	pod := createPod(t, builder.Pod(namespace, "db-0").Node(addNodes(t, namespace, 1)[0]).Interceptors(silent).Obj())
	told := wantForetoldOf(t, pod, why.VerdictWriteRefused)
	saysAll(t, "headline", told.Headline, "a quota of the namespace refuses it", "exceeded quota: none")
	saysAll(t, "advice", strings.Join(told.Advice, "\n"), "kubectl get resourcequotas -n "+namespace)
	if diff := cmp.Diff([]string{"WARN"}, refusalsByDoctor(t, namespace)); diff != "" {
		t.Errorf("doctor's findings (-want +got):\n%s", diff)
	}
	noRequest(t, pod)
	evictUntil(t, "carol", pod, "a quota of the namespace refuses the request, retry")
	saysAll(t, "the event", waitEvent(t, pod, "RefusedByQuota").Note, "exceeded quota: none")
	deleteObject(t, quota)
	evictUntil(t, "carol", pod, "waiting for interceptor")
	wantForetoldOf(t, pod, why.VerdictInterceptorWorks)
	if diff := cmp.Diff([]string(nil), refusalsByDoctor(t, namespace)); diff != "" {
		t.Errorf("doctor's findings after that (-want +got):\n%s", diff)
	}
}

// refusalsByDoctor are the severities of the findings about the namespace.
func refusalsByDoctor(t *testing.T, namespace string) (found []string) {
	t.Helper()
	p := &pluginCall{user: "doctor", group: "system:masters"}
	_, _ = p.run(t.Context(), t, "doctor", "-o", "json") // Other checks fail: there is no Deployment.
	var report doctor.Report
	if err := json.Unmarshal([]byte(p.printed()), &report); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(report.Checks, func(c doctor.Result) bool { return c.Check == "refused-writes" })
	for _, f := range report.Checks[i].Findings {
		if f.Object == "namespace/"+namespace {
			found = append(found, string(f.Severity))
		}
	}
	return found
}

// A hook that is held tries again when somebody says so, and one that waits at once.
func TestHooksRetry(t *testing.T) {
	shareManager(t)
	t.Run("one that is held", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t)
		pod := h.pod(t, "ledger-0")
		hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job(cluster.ExitCodeAnnotation, "1"), Retries: new(int32(0))})
		startDrain(t, "alice", h.node)
		er := waitHookSays(t, pod, hook, "has failed and keeps the pod")
		if told := wantForetoldOf(t, pod, why.VerdictHeldByHook); !slices.ContainsFunc(told.Advice, func(a string) bool { return strings.HasSuffix(a, "hooks retry dump ledger-0 -n "+h.namespace) }) {
			t.Errorf("advice %q", told.Advice)
		}
		said := plugin(t, "hooks", "retry", "dump", "ledger-0", "-n", h.namespace)
		if diff := cmp.Diff("hook dump tries again for pod ledger-0\n", said); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		waitHook(t, hook, "held again", func(s v1alpha1.EvacuationHookStatus) bool {
			return runPhase(er, v1alpha1.HookHeld)(s) && s.Runs[0].Attempt == 2 && s.Runs[0].FirstAttempt == 2
		})
		if diff := cmp.Diff(attemptsOf(hook, er, 2), h.seen.created(t)); diff != "" {
			t.Errorf("Jobs (-want +got):\n%s", diff)
		}
	})
	t.Run("one that waits", func(t *testing.T) {
		t.Parallel()
		h := newHooked(t)
		end := forbid(t, "batch", "jobs", aJob(h.namespace))
		pod := h.pod(t, "ledger-0")
		hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job()})
		drain := startDrain(t, "alice", h.node)
		er := waitHookSays(t, pod, hook, "cannot be created", "it has no label team")
		waitHook(t, hook, "refused", runPhase(er, v1alpha1.HookRefused))
		told := wantForetoldOf(t, pod, why.VerdictWaitsForHook)
		saysAll(t, "headline", told.Headline, "continues by itself", "it has no label team")
		end()
		eventually(t, "the policy to be gone", func(ctx context.Context) error {
			return admin.Create(ctx, aJob(h.namespace), client.DryRunAll)
		})
		// Its own next attempt may come first.
		p := &pluginCall{user: "olga", group: operators}
		if code, said := p.run(t.Context(), t, "hooks", "retry", "dump", "-n", h.namespace); code != 0 {
			waitHook(t, hook, "beyond its refusal, after "+said, func(s v1alpha1.EvacuationHookStatus) bool { return !runPhase(er, v1alpha1.HookRefused)(s) })
		}
		er = evicted(t, drain, pod)
		if diff := cmp.Diff(attemptsOf(hook, er, 1), h.seen.created(t)); diff != "" {
			t.Errorf("Jobs (-want +got):\n%s", diff)
		}
	})
}
