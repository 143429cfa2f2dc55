package hook

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestRetry(t *testing.T) {
	run := func(phase v1alpha1.HookPhase, first int32, at time.Time, message string) v1alpha1.HookRun {
		return v1alpha1.HookRun{RequestUID: "r", Request: "uid", Pod: "db-0", Phase: phase, Generation: 2, Attempt: 3, FirstAttempt: first, StartTime: metav1.NewTime(at), Message: message}
	}
	later := noon.Add(time.Hour)
	cases := map[string]struct {
		run, want v1alpha1.HookRun
		ok        bool
	}{
		"one that is held": {run(v1alpha1.HookHeld, 1, noon, "exit code 1"), run(v1alpha1.HookRetrying, 4, later, "olga lets it try again: exit code 1"), true},
		"one that waits":   {run(v1alpha1.HookRefused, 1, later.Add(time.Minute), "quota"), run(v1alpha1.HookRefused, 1, later, "olga lets it try again: quota"), true},
		"one that runs":    {run: run(v1alpha1.HookRunning, 1, noon, ""), want: run(v1alpha1.HookRunning, 1, noon, "")},
		"one that is done": {run: run(v1alpha1.HookSucceeded, 1, noon, ""), want: run(v1alpha1.HookSucceeded, 1, noon, "")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := Retry(tc.run, "olga", later)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
				t.Errorf("%t, run (-want +got):\n%s", ok, diff)
			}
			if isRetry(tc.run, got) != tc.ok || isRetry(got, tc.run) {
				t.Errorf("it is not told from what we write ourselves: %+v", got)
			}
		})
	}
}

// retry lets the run of the world try again, as somebody else does.
func (w *world) retry(t *testing.T) *v1alpha1.EvacuationHook {
	t.Helper()
	hook := &v1alpha1.EvacuationHook{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.hook), hook); err != nil {
		t.Fatal(err)
	}
	run, ok := Retry(hook.Status.Runs[0], "olga", w.clock.Now())
	if !ok {
		t.Fatalf("run %+v", hook.Status.Runs[0])
	}
	hook.Status.Runs[0] = run
	if err := w.client.Status().Update(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	return hook
}

// woken attaches a queue to the manager and returns what is in it.
func (w *world) woken(t *testing.T) func() []reconcile.Request {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	if err := w.runner.queue.Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	return func() (found []reconcile.Request) {
		for q.Len() > 0 {
			item, _ := q.Get()
			found = append(found, item)
			q.Done(item)
		}
		return found
	}
}

func evacuate(t *testing.T, w *world, n *named) {
	t.Helper()
	if _, err := n.Evacuate(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
}

// The manager reads its own writes from memory, and yet sees that somebody lets a hook try
// again: by the hook's event, by its own next write, and now and then.
func TestAHookThatIsHeldTriesAgain(t *testing.T) {
	for name, see := range map[string]func(t *testing.T, w *world, hook *v1alpha1.EvacuationHook){
		"by the event": func(t *testing.T, w *world, hook *v1alpha1.EvacuationHook) {
			t.Helper()
			if !w.runner.isRetried(hook) {
				t.Fatal("it is not seen")
			}
			w.runner.runs.reread(client.ObjectKeyFromObject(hook))
		},
		"by a write that conflicts": func(t *testing.T, w *world, hook *v1alpha1.EvacuationHook) {
			t.Helper()
			woken := w.woken(t)
			err := w.runner.runs.update(t.Context(), hook, func(s *v1alpha1.EvacuationHookStatus) error { s.MatchingPods = new(int32(7)); return nil })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]reconcile.Request{{NamespacedName: w.target.Request}}, woken()); diff != "" {
				t.Errorf("requests that are woken (-want +got):\n%s", diff)
			}
		},
		"now and then": func(t *testing.T, w *world, _ *v1alpha1.EvacuationHook) {
			t.Helper()
			if err := w.runner.sweepOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Retries = new(int32(0)) }))
			n := w.born()
			evacuate(t, w, n)
			w.finish(batchv1.JobFailed)
			evacuate(t, w, n)
			if run := w.run(t); run.Phase != v1alpha1.HookHeld {
				t.Fatalf("run %+v, want that it is held", run)
			}
			see(t, w, w.retry(t))
			evacuate(t, w, n)
			if run := w.run(t); run.Phase != v1alpha1.HookRunning || run.Attempt != 2 || run.FirstAttempt != 2 {
				t.Errorf("run %+v, want that the second attempt runs, the first of its own", run)
			}
			if diff := cmp.Diff(map[string]int{"dump-1": 1, "dump-2": 1}, w.names()); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
		})
	}
}

// What we write ourselves is not taken for that, in no phase.
func TestOwnWritesAreNoRetries(t *testing.T) {
	w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Retries = new(int32(1)) }))
	w.refuse = forbidden()
	n := w.born()
	for range 40 {
		evacuate(t, w, n)
		hook := &v1alpha1.EvacuationHook{}
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.hook), hook); err != nil {
			t.Fatal(err)
		}
		if w.runner.isRetried(hook) {
			t.Fatalf("taken for a retry: %+v", hook.Status.Runs)
		}
		w.clock.Step(30 * time.Second)
		if w.clock.Since(noon) > 10*time.Minute {
			w.refuse = nil
			w.finish(batchv1.JobFailed)
		}
	}
	if run := w.run(t); run.Phase != v1alpha1.HookHeld {
		t.Errorf("run %+v, want that it is held in the end", run)
	}
}

// Whoever asks need not wait for the pause after a refusal.
func TestARefusedJobIsTriedAtOnceIfSomebodyAsks(t *testing.T) {
	w := newWorld(t, jobHook())
	w.refuse = forbidden()
	n := w.born()
	for range 20 {
		evacuate(t, w, n)
		w.clock.Step(30 * time.Second)
	}
	evacuate(t, w, n)
	w.refuse = nil
	evacuate(t, w, n)
	if run := w.run(t); run.Phase != v1alpha1.HookRefused {
		t.Fatalf("run %+v, want that it waits", run)
	}
	hook := w.retry(t)
	if !w.runner.isRetried(hook) {
		t.Fatal("it is not seen")
	}
	w.runner.runs.reread(client.ObjectKeyFromObject(hook))
	evacuate(t, w, n)
	if run := w.run(t); run.Phase != v1alpha1.HookRunning || run.Attempt != 1 {
		t.Errorf("run %+v, want that the first attempt runs", run)
	}
	if diff := cmp.Diff(map[string]int{"dump-1": 1}, w.names()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}
