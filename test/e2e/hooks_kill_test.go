//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// The manager dies at several moments of a drain, and each time the next one goes on from
// what is recorded: each attempt has one Job, ever.
func TestHooksSurviveAKilledManager(t *testing.T) {
	process := startProcess(t)
	h := newHooked(t)
	pods := make([]*corev1.Pod, 4)
	for i := range pods {
		pods[i] = h.pod(t, fmt.Sprintf("ledger-%d", i))
	}
	hook := h.hook(t, "dump", 4, v1alpha1.EvacuationHookSpec{Job: h.job(cluster.CompleteAfterAnnotation, "2s")})

	// The moments are seen from outside, so the manager dies a little later than that.
	inPhase := func(phase v1alpha1.HookPhase, n int) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(hook), hook); err != nil {
				return err
			}
			found := 0
			for _, run := range hook.Status.Runs {
				if run.Phase == phase {
					found++
				}
			}
			if found < n {
				return fmt.Errorf("the runs are %+v", hook.Status.Runs)
			}
			return nil
		}
	}
	moments := []struct {
		what string
		// jobsEnd: the pods of Jobs have a node. Before, no run ends while the test does not look.
		jobsEnd bool
		reached func(context.Context) error
	}{
		{"a request is there", false, func(ctx context.Context) error { _, err := getRequest(ctx, pods[0]); return err }},
		{"a run is recorded", false, inPhase(v1alpha1.HookRunning, 1)},
		{"two Jobs are there", false, func(context.Context) error {
			if got := h.seen.created(t); len(got) < 2 {
				return fmt.Errorf("there are %v", got)
			}
			return nil
		}},
		{"a run has succeeded", true, func(ctx context.Context) error {
			for _, pod := range pods { // What is reported stays, and the run does not.
				if er, err := getRequest(ctx, pod); err == nil && v1alpha1.ReportOf(er, actsAs(hook)).CompletionTime != nil {
					return nil
				}
			}
			return inPhase(v1alpha1.HookSucceeded, 1)(ctx)
		}},
	}
	for _, moment := range moments {
		unschedulable(t, h.other, !moment.jobsEnd)
		drain := startDrain(t, "alice", h.node)
		eventually(t, moment.what, moment.reached)
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed(t, drain)
		process = startProcess(t)
	}
	drain := startDrain(t, "alice", h.node)
	for _, pod := range pods {
		gone(t, pod)
	}
	finishWell(t, drain)

	var want []string
	for _, pod := range pods {
		er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
		name := attemptsOf(hook, er, 1)[0]
		want = append(want, name)
		h.seen.endedBefore(t, name, pod)
	}
	slices.Sort(want)
	// Not by the log of requests: it says of a creation whose client was killed that it
	// failed, also if it did not.
	if diff := cmp.Diff(want, h.seen.created(t)); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	if err := process.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// phaseIs waits until the run of a request is in a phase.
func phaseIs(t *testing.T, hook *v1alpha1.EvacuationHook, er *v1alpha1.EvictionRequest, phase v1alpha1.HookPhase) {
	t.Helper()
	waitHook(t, hook, "in phase "+string(phase), func(s v1alpha1.EvacuationHookStatus) bool {
		return slices.ContainsFunc(s.Runs, func(r v1alpha1.HookRun) bool { return r.RequestUID == string(er.UID) && r.Phase == phase })
	})
}

// The manager dies in the middle of an undo, and the next one finishes it: there is one
// Job of the undo, ever.
func TestHookIsUndoneOnceByTheNextManager(t *testing.T) {
	process := startProcess(t)
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	hook := h.hook(t, "handover", 1, v1alpha1.EvacuationHookSpec{
		Job: h.job(cluster.CompleteAfterAnnotation, "1h"), Undo: &v1alpha1.HookUndo{Job: h.job(cluster.CompleteAfterAnnotation, "4s")},
	})
	create(t, builder.EvictionRequest(h.namespace, pod.Name, pod.UID).Requesters("native.example.com").Obj())
	er := waitRequest(t, pod, "in progress", activeIs(actsAs(hook)))
	h.seen.waitJobs(t, 1)
	for _, node := range []string{h.node, h.other} { // The undo ends when the next manager runs.
		unschedulable(t, node, true)
	}
	eventually(t, "the eviction to be canceled", func(ctx context.Context) error {
		now, err := getRequest(ctx, pod)
		if err != nil {
			return err
		}
		now.Spec.Requesters = nil
		return admin.Update(ctx, now)
	})
	phaseIs(t, hook, er, v1alpha1.HookUndoing)
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	process = startProcess(t)
	unschedulable(t, h.other, false)
	waitEvent(t, pod, events.ReasonHookUndone)
	undone(t, h, hook, er, attemptsOf(hook, er, 1)...)
	lives(t, pod)
	if err := process.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// Nobody knows how a command ended whose manager died. It runs again, which is no retry.
func TestHookRunsACommandAgainThatAManagerDiedIn(t *testing.T) {
	process := startProcess(t, "--hooks-exec")
	h := newHooked(t)
	pod := h.pod(t, "ledger-0")
	// It runs on this machine, and does not end before its manager has died.
	dead := filepath.Join(t.TempDir(), "dead")
	const untilDead = `for i in $(seq 300); do test -e "$0" && break; sleep 1; done; echo flushed`
	hook := h.hook(t, "flush", 1, v1alpha1.EvacuationHookSpec{
		Retries: new(int32), Exec: &v1alpha1.HookExec{Command: []string{"sh", "-c", untilDead, dead}},
	})
	create(t, builder.EvictionRequest(h.namespace, pod.Name, pod.UID).Requesters("native.example.com").Obj())
	er := waitRequest(t, pod, "in progress", activeIs(actsAs(hook)))
	phaseIs(t, hook, er, v1alpha1.HookRunning)
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	process = startProcess(t, "--hooks-exec")
	gone(t, pod)
	er = waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	saysAll(t, "the report", v1alpha1.ReportOf(er, actsAs(hook)).Message, "flushed")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(hook), hook); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(hook.Status.Conditions, v1alpha1.ConditionLastRun); c == nil || !strings.Contains(c.Message, "attempt 2") {
		t.Errorf("condition LastRun is %+v, want that attempt 2 succeeded", c)
	}
	if err := process.Stop(t.Context()); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}
