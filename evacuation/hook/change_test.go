package hook

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// A manager that may not read why a Job has no pod does not keep the pod beyond the
// deadline.
func TestADeadlineCountsAlsoWhenNothingCanBeSeen(t *testing.T) {
	w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) {
		s.Deadline, s.Retries, s.OnFailure = &metav1.Duration{Duration: time.Minute}, new(int32), v1alpha1.HookContinue
	}))
	w.blind = true
	n := w.born()
	for range 4 {
		p, err := n.Evacuate(t.Context(), w.target)
		if err != nil {
			t.Fatal(err)
		}
		if p.Done {
			if late := w.clock.Now().Sub(noon); late < time.Minute {
				t.Errorf("it goes on after %s", late)
			}
			return
		}
		w.clock.Step(40 * time.Second)
	}
	t.Error("the pod is kept")
}

// change writes another generation of the hook.
func (w *world) change(to func(*v1alpha1.EvacuationHookSpec)) {
	w.t.Helper()
	hook := &v1alpha1.EvacuationHook{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(w.hook), hook); err != nil {
		w.t.Fatal(err)
	}
	hook.Generation++
	to(&hook.Spec)
	if err := w.client.Update(w.t.Context(), hook); err != nil {
		w.t.Fatal(err)
	}
}

// A hook is changed while its Job runs: to one of another kind, and the Job is stopped
// before that begins; or in its deadline, and the Job goes on.
func TestAHookThatIsChangedWhileItRuns(t *testing.T) {
	cases := map[string]struct {
		change func(*v1alpha1.EvacuationHookSpec)
		left   int
		phase  v1alpha1.HookPhase
	}{
		"to a request": {func(s *v1alpha1.EvacuationHookSpec) {
			s.Job, s.HTTP = nil, &v1alpha1.HookHTTP{URL: "https://a.example.com/"}
		}, 0, v1alpha1.HookRetrying},
		"to a wait":    {func(s *v1alpha1.EvacuationHookSpec) { s.Job, s.Wait = nil, &v1alpha1.HookWait{Until: "true"} }, 0, v1alpha1.HookRetrying},
		"its deadline": {func(s *v1alpha1.EvacuationHookSpec) { s.Deadline = &metav1.Duration{Duration: time.Hour} }, 1, v1alpha1.HookRunning},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Undo = nil }))
			n := w.born()
			if _, err := n.Evacuate(t.Context(), w.target); err != nil {
				t.Fatal(err)
			}
			w.change(tc.change)
			if p, err := n.Evacuate(t.Context(), w.target); err != nil || p.Done {
				t.Fatalf("want that it goes on: %+v, %v", p, err)
			}
			var jobs batchv1.JobList
			if err := w.client.List(t.Context(), &jobs); err != nil || len(jobs.Items) != tc.left {
				t.Errorf("%d Jobs are left, want %d (%v)", len(jobs.Items), tc.left, err)
			}
			hook := &v1alpha1.EvacuationHook{}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.hook), hook); err != nil {
				t.Fatal(err)
			}
			if got := hook.Status.Runs; len(got) != 1 || got[0].Phase != tc.phase {
				t.Errorf("the record: %+v, want one that is %s", got, tc.phase)
			}
		})
	}
}
