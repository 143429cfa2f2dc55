//go:build unix

package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// The Job runs elsewhere, knows the pod, and the pod goes after it.
func TestHookADrainWaitsForAJob(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{Job: h.job(cluster.CompleteAfterAnnotation, "1h", cluster.SaysAnnotation, "reading\n3 tables dumped")})

	drain := startDrain(t, "alice", h.node)
	er := waitHookSays(t, pod, hook, "Hook dump, attempt 1 of 3: Job dump-")
	h.seen.waitJobs(t, 1)
	names := attemptsOf(hook, er, 1)
	job := &batchv1.Job{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: names[0]}, job); err != nil {
		t.Fatal(err)
	}
	if owners := job.OwnerReferences; len(owners) != 1 || owners[0].Kind != "EvictionRequest" || owners[0].UID != er.UID {
		t.Errorf("owners %+v, want the request", owners)
	}
	env := map[string]string{}
	for _, v := range job.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	if _, err := time.Parse(time.RFC3339, env["DEADLINE"]); err != nil {
		t.Error(err)
	}
	delete(env, "DEADLINE")
	want := map[string]string{
		"POD_NAME": pod.Name, "POD_UID": string(pod.UID), "POD_IP": pod.Status.PodIP, "NODE_NAME": h.node,
		"REQUESTERS": "alice.users.drawbridge.dev", "ATTEMPT": "1",
	}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	works := readyPods(t, h.namespace, 1, h.other)[0]
	if diff := cmp.Diff([]string{hook.Name, string(er.UID)}, []string{works.Labels[v1alpha1.HookLabel], works.Labels[v1alpha1.HookRequestLabel]}); diff != "" {
		t.Errorf("labels of the Job's pod (-want +got):\n%s", diff)
	}
	waitLine(t, drain, waitingFor(pod, actsAs(hook), 1, 2))
	lives(t, pod)

	h.endJob(t, &works)
	er = evicted(t, drain, pod)
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hook)).Message, "it is done: Job "+names[0]+" has completed: 3 tables dumped")
	if diff := cmp.Diff(names, h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	h.seen.endedBefore(t, names[0], pod)
	waitEvent(t, er, events.ReasonHookBegan)
	waitEvent(t, pod, events.ReasonHookSucceeded)
	waitHook(t, hook, "done", func(s v1alpha1.EvacuationHookStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionLastRun)
	})

	if err := admin.Delete(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	h.seen.waitRemoved(t, names[0])
}

func runPhase(er *v1alpha1.EvictionRequest, phase v1alpha1.HookPhase) func(v1alpha1.EvacuationHookStatus) bool {
	return func(s v1alpha1.EvacuationHookStatus) bool {
		return slices.ContainsFunc(s.Runs, func(r v1alpha1.HookRun) bool { return r.RequestUID == string(er.UID) && r.Phase == phase })
	}
}

// A pod is kept after the last attempt, with the reason, until the hook is repaired.
func TestHookThatFailsHoldsUntilItIsRepaired(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{
		Job: h.job(cluster.ExitCodeAnnotation, "1", cluster.SaysAnnotation, "the disk is full"), Retries: new(int32(1)),
	})

	drain := startDrain(t, "alice", h.node)
	er := waitHookSays(t, pod, hook, "has failed and keeps the pod", "the disk is full", "Change the hook, or skip its interceptor")
	names := attemptsOf(hook, er, 3)
	if diff := cmp.Diff(names[:2], h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	waitHook(t, hook, "Held", runPhase(er, v1alpha1.HookHeld))
	if c := meta.FindStatusCondition(hook.Status.Conditions, v1alpha1.ConditionLastRun); c == nil || c.Status != "False" || c.Reason != v1alpha1.ReasonFailed {
		t.Errorf("LastRun is %+v", c)
	}
	saysAll(t, "the event", waitEvent(t, pod, events.ReasonHookFailed).Note, "EvacuationHook dump has failed for pod ledger-0", "the disk is full")
	lives(t, pod)
	drainGoesOn(t, drain)

	repair(t, hook, func(s *v1alpha1.EvacuationHookSpec) { s.Job = h.job() })
	evicted(t, drain, pod)
	if diff := cmp.Diff(names, h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	h.seen.endedBefore(t, names[2], pod)
}

// What was begun is stopped, and then undone, once.
func TestHookIsUndoneWhenTheEvictionIsCalledOff(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "handover", 1, v1alpha1.EvacuationHookSpec{
		Job: h.job(cluster.CompleteAfterAnnotation, "1h"), Undo: &v1alpha1.HookUndo{Job: h.job(cluster.CompleteAfterAnnotation, "1s")},
	})

	drain := startDrain(t, "alice", h.node)
	er := waitRequest(t, pod, "in progress", activeIs(actsAs(hook)))
	readyPods(t, h.namespace, 1, h.other)
	callOff(t, "alice", drain, h.node)

	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	begun := attemptsOf(hook, er, 1)[0]
	h.seen.waitRemoved(t, begun)
	saysAll(t, "the event", waitEvent(t, pod, events.ReasonHookUndone).Note, "What EvacuationHook handover did for pod ledger-0 is undone")
	undone(t, h, hook, er, begun)
	lives(t, pod)
}

// undone fails the test unless there were those Jobs, and that of the undo, which is done.
func undone(t *testing.T, h *hooked, hook *v1alpha1.EvacuationHook, er *v1alpha1.EvictionRequest, begun ...string) {
	t.Helper()
	undo := v1alpha1.HookJobName(hook.Name+"-undo", er.UID, 1)
	if diff := cmp.Diff(slices.Sorted(slices.Values(append(begun, undo))), h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	job := &batchv1.Job{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: undo}, job); err != nil {
		t.Fatal(err)
	}
	if jobEnded(job) != batchv1.JobComplete {
		t.Errorf("the undo was told before its end: %+v", job.Status)
	}
}

// The hook was done long before, and somebody else has the turn.
func TestHookIsUndoneAlsoAfterItsTurn(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	slow := nameIn(h.namespace, "slow")
	startInterceptor(t, h.namespace, slow, time.Hour)
	register(t, builder.EvictionInterceptor(slow).InNamespace(h.namespace).Priority(100).ActedBy(h.namespace, slow).Pods(builder.AppLabel, ledger))
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "handover", 1, v1alpha1.EvacuationHookSpec{Job: h.job(), Undo: &v1alpha1.HookUndo{Job: h.job()}})

	drain := startDrain(t, "alice", h.node)
	er := waitRequest(t, pod, "at the next interceptor", activeIs(slow))
	if report := v1alpha1.ReportOf(er, actsAs(hook)); report.CompletionTime == nil {
		t.Errorf("the hook has not completed: %+v", report)
	}
	callOff(t, "alice", drain, h.node)
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitEvent(t, pod, events.ReasonHookUndone)
	undone(t, h, hook, er, attemptsOf(hook, er, 1)...)
	lives(t, pod)
}

// A person who skips the hook wants the pod to go: nothing is undone.
func TestHookThatHoldsCanBeSkipped(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{
		Job: h.job(cluster.ExitCodeAnnotation, "1"), Retries: new(int32), Undo: &v1alpha1.HookUndo{Job: h.job()},
	})

	drain := startDrain(t, "alice", h.node)
	waitHookSays(t, pod, hook, "has failed and keeps the pod", "exit code 1")
	lives(t, pod)
	plugin(t, "skip", pod.Name, actsAs(hook), "-n", h.namespace, "--reason=the dump is not needed")
	er := evicted(t, drain, pod)
	if report := v1alpha1.ReportOf(er, actsAs(hook)); report.SkippedBy != "olga" {
		t.Errorf("report %+v", report)
	}
	if diff := cmp.Diff(attemptsOf(hook, er, 1), h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

// The pods of a hook's own Jobs are nobody's to wait for.
func TestHookDoesNotCoverItsOwnJobs(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	job := h.job(cluster.CompleteAfterAnnotation, "1h")
	job.OnSameNode = true
	hook := h.hook(t, "dump", 1, v1alpha1.EvacuationHookSpec{PodSelector: &metav1.LabelSelector{}, Job: job})

	drain := startDrain(t, "alice", h.node)
	er := waitRequest(t, pod, "in progress", activeIs(actsAs(hook)))
	both := readyPods(t, h.namespace, 2, h.node) // It tolerates the cordon.
	for i := range both {
		if works := &both[i]; works.Name != pod.Name {
			dry := eviction(works)
			dry.DeleteOptions.DryRun = []string{metav1.DryRunAll}
			if got := evict(t, "bob", works, dry); got.code != http.StatusCreated || len(got.header.Values("Warning")) > 0 {
				t.Errorf("an eviction of the Job's pod: %d, warnings %v, %s", got.code, got.header.Values("Warning"), got.body)
			}
			h.endJob(t, works)
		}
	}
	evicted(t, drain, pod)
	if diff := cmp.Diff(attemptsOf(hook, er, 1), h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

// Many pods of one namespace share its room.
func TestHooksOfANamespaceAreLimited(t *testing.T) {
	shareManager(t)
	h := newHooked(t)
	const n = 12
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = h.pod(t, "ledger-"+string(rune('a'+i)))
	}
	h.hook(t, "dump", n, v1alpha1.EvacuationHookSpec{Job: h.job(cluster.CompleteAfterAnnotation, "1s")})

	unschedulable(t, h.other, true) // No Job ends before there are as many as may be, however slowly they are made.
	drain := startDrain(t, "alice", h.node)
	h.seen.waitJobs(t, 5)
	unschedulable(t, h.other, false)
	for _, pod := range pods {
		gone(t, pod)
	}
	finishWell(t, drain)
	if got := h.seen.created(t); len(got) != n {
		t.Errorf("%d Jobs: %v", len(got), got)
	}
	if most := h.seen.most; most != 5 {
		t.Errorf("%d Jobs at a time, want 5, which is the default", most)
	}
}
