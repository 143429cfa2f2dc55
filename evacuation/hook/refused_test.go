package hook

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// forbidden is the API server's answer to who creates a Job, with its causes.
func forbidden(causes ...metav1.CauseType) error {
	err := apierrors.NewForbidden(batchv1.Resource("jobs"), "dump", errors.New("it is so"))
	for _, cause := range causes {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

// done is a world in which the hook was done, and then the eviction was canceled.
func done(t *testing.T) (*world, *named) {
	t.Helper()
	w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Undo = &v1alpha1.HookUndo{Job: s.Job} }))
	n := w.born()
	if _, err := n.Evacuate(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
	w.finish(batchv1.JobComplete)
	if _, err := n.Evacuate(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
	w.cancel()
	return w, n
}

// However often the undo is asked for, and however long its Job is refused: it is tried with
// growing pauses, and is no failure of the hook.
func TestAnUndoWhoseJobIsRefusedIsTriedNowAndThen(t *testing.T) {
	w, n := done(t)
	w.refuse = forbidden()
	var tried []int
	for range 6 {
		for range 20 {
			if err := n.Cancel(t.Context(), w.target); !errors.Is(err, interceptor.ErrNotYet) {
				t.Fatalf("cancel: %v, want that it waits", err)
			}
			w.clock.Step(30 * time.Second)
		}
		tried = append(tried, w.refused)
	}
	// Of the first ten minutes, and then one in five.
	if diff := cmp.Diff([]int{7, 9, 11, 13, 15, 17}, tried); diff != "" {
		t.Errorf("Jobs that were tried after ten minutes each (-want +got):\n%s", diff)
	}
	w.refuse = nil
	w.clock.Step(5 * time.Minute)
	if err := n.Cancel(t.Context(), w.target); !errors.Is(err, interceptor.ErrNotYet) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"dump-1": 1, "dump-undo-1": 1}, w.names()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

// In a namespace that is being deleted, nothing can be undone, and nobody tries forever.
func TestAnUndoEndsWithItsNamespace(t *testing.T) {
	w, n := done(t)
	w.refuse = forbidden(corev1.NamespaceTerminatingCause)
	for range 3 {
		if err := n.Cancel(t.Context(), w.target); err != nil {
			t.Fatalf("cancel: %v, want that it is over", err)
		}
	}
	if w.refused != 1 {
		t.Errorf("the Job was tried %d times", w.refused)
	}
}

// A turn waits: its pod ends with the namespace.
func TestATurnWaitsForTheEndOfItsNamespace(t *testing.T) {
	w := newWorld(t, jobHook())
	w.refuse = forbidden(corev1.NamespaceTerminatingCause)
	n := w.born()
	for range 3 {
		p, err := n.Evacuate(t.Context(), w.target)
		if err != nil || p.Done {
			t.Errorf("want that it waits: %+v, %v", p, err)
		}
	}
	if w.refused != 1 {
		t.Errorf("the Job was tried %d times", w.refused)
	}
}

// A refusal from outside is no failure of the hook: however long it lasts, the same attempt
// begins when it ends, and has all of its time. Another manager goes on with it.
func TestAnAttemptBeginsWhenItsJobIsRefusedNoMore(t *testing.T) {
	denied := apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), "dump", nil)
	denied.ErrStatus.Message = `jobs.batch "dump" is forbidden: ValidatingAdmissionPolicy 'labels' with binding 'labels' denied request: it has no label team`
	for name, refusal := range map[string]error{
		"a missing right or a quota": forbidden(),
		"a policy, which says 422":   denied,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Retries = new(int32(0)) }))
			w.refuse = refusal
			n := w.born()
			for range 40 {
				p, err := n.Evacuate(t.Context(), w.target)
				if err != nil || p.Done {
					t.Fatalf("want that it waits: %+v, %v", p, err)
				}
				w.clock.Step(30 * time.Second)
			}
			run := w.run(t)
			if run.Phase != v1alpha1.HookRefused || run.Attempt != 1 || run.Message == "" {
				t.Fatalf("run while the Job is refused: %+v", run)
			}
			if w.refused > 10 {
				t.Errorf("the Job was tried %d times in 20 minutes", w.refused)
			}
			w.refuse = nil
			n = w.born()
			w.clock.Step(5 * time.Minute)
			if _, err := n.Evacuate(t.Context(), w.target); err != nil {
				t.Fatal(err)
			}
			run = w.run(t)
			if run.Phase != v1alpha1.HookRunning || run.Attempt != 1 || w.clock.Since(run.StartTime.Time) > time.Minute {
				t.Errorf("run after that: %+v, now %s", run, w.clock.Now())
			}
			if diff := cmp.Diff(map[string]int{"dump-1": 1}, w.names()); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
		})
	}
}
