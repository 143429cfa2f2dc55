package hook

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	eventsclient "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// A manager dies at each of its writes, before or after it is stored, while a first
// attempt fails, a second one succeeds, and the eviction is canceled afterwards or in
// the middle: there is one Job for each attempt, and one undo.
func TestThereIsOneJobForEachAttempt(t *testing.T) {
	scenarios := map[string]struct {
		// cancelAt is the attempt in the middle of which the eviction is canceled, 0 for
		// after the end.
		cancelAt int
		want     map[string]int
	}{
		"canceled after the hook is done":          {0, map[string]int{"dump-1": 1, "dump-2": 1, "dump-undo-2": 1}},
		"canceled in the middle of the first one":  {1, map[string]int{"dump-1": 1, "dump-undo-1": 1}},
		"canceled in the middle of the second one": {2, map[string]int{"dump-1": 1, "dump-2": 1, "dump-undo-2": 1}},
	}
	for name, tc := range scenarios {
		t.Run(name, func(t *testing.T) {
			for _, stored := range []bool{false, true} {
				dies := 0
				for dieAt := 1; ; dieAt++ {
					w := newWorld(t, jobHook())
					w.dieAt, w.stored = dieAt, stored
					w.play(tc.cancelAt)
					if diff := cmp.Diff(tc.want, w.names()); diff != "" {
						t.Errorf("died at write %d, stored %t: Jobs (-want +got):\n%s", dieAt, stored, diff)
					}
					if w.writes < dieAt {
						break
					}
					dies++
				}
				if dies < 5 {
					t.Errorf("it died at %d writes only", dies)
				}
			}
		})
	}
}

// play plays a scenario to its end; a manager that dies is followed by another one.
func (w *world) play(cancelAt int) {
	w.t.Helper()
	n := w.born()
	ctx := w.t.Context()
	canceled := false
	for range 60 {
		if w.dead {
			n = w.born()
		}
		w.clock.Step(15 * time.Second)
		if !canceled {
			p, err := n.Evacuate(ctx, w.target)
			if err != nil || w.dead {
				continue
			}
			switch {
			case p.Done && cancelAt == 0, w.names()[fmt.Sprintf("dump-%d", cancelAt)] > 0:
				w.cancel()
				canceled = true
			case w.names()["dump-2"] > 0:
				w.finish(batchv1.JobComplete)
			case w.names()["dump-1"] > 0:
				w.finish(batchv1.JobFailed)
			}
			continue
		}
		err := n.Cancel(ctx, w.target)
		switch {
		case w.dead:
		case err == nil:
			if n.Cancel(ctx, w.target) != nil {
				w.t.Error("it wants to undo once more")
			}
			return
		case !errors.Is(err, interceptor.ErrNotYet):
			w.t.Fatalf("cancel: %v", err)
		default:
			w.finish(batchv1.JobComplete)
		}
	}
	w.t.Error("it does not end")
}

// What a hook did that was done when the eviction was canceled is undone as well, also
// for a request that was deleted while no manager ran.
func TestWhatIsOverIsSettled(t *testing.T) {
	for name, gone := range map[string]bool{"a request that was canceled": false, "a request that was deleted": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobHook())
			n := w.born()
			for range 3 {
				if _, err := n.Evacuate(t.Context(), w.target); err != nil {
					t.Fatal(err)
				}
				w.finish(batchv1.JobComplete)
			}
			if p, err := n.Evacuate(t.Context(), w.target); err != nil || !p.Done {
				t.Fatalf("it is not done: %+v, %v", p, err)
			}
			w.cancel()
			er := &v1alpha1.EvictionRequest{}
			if err := w.client.Get(t.Context(), w.target.Request, er); err != nil {
				t.Fatal(err)
			}
			if gone {
				if err := w.client.Delete(t.Context(), er); err != nil {
					t.Fatal(err)
				}
				er = nil
			}
			c := w.mortal()
			r := newRunner(c, c, Options{
				Clock: w.clock, Metrics: metrics.NewHooks(prometheus.NewRegistry()), Bounds: Bounds{MaxTotal: 24 * time.Hour},
				MaxConcurrent: 1, MaxPerNamespace: 1, HTTP: &httpcall.Client{}, Watches: &waitfor.Watches{}, Recorder: eventsclient.NewFakeRecorder(1000),
			})
			if err := r.sweepOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				if _, err := r.settle(t.Context(), w.target.Request, er, nil); err != nil {
					t.Fatal(err)
				}
				w.finish(batchv1.JobComplete)
			}
			if diff := cmp.Diff(map[string]int{"dump-1": 1, "dump-undo-1": 1}, w.names()); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
			if err := r.sweepOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			hook := &v1alpha1.EvacuationHook{}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.hook), hook); err != nil {
				t.Fatal(err)
			}
			if len(hook.Status.Runs) != 0 {
				t.Errorf("the record stays: %+v", hook.Status.Runs)
			}
			if running, _ := r.limiter.count(); running != 0 {
				t.Errorf("%d attempts still count", running)
			}
		})
	}
}

// A turn that was skipped is not undone: the eviction goes on.
func TestASkippedHookIsNotUndone(t *testing.T) {
	w := newWorld(t, jobHook())
	n := w.born()
	for range 2 {
		if _, err := n.Evacuate(t.Context(), w.target); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Cancel(t.Context(), w.target); !errors.Is(err, interceptor.ErrNotYet) {
		t.Fatalf("cancel: %v, want that it waits for the Job", err)
	}
	if err := n.Cancel(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"dump-1": 1}, w.names()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
	var jobs batchv1.JobList
	if err := w.client.List(t.Context(), &jobs); err != nil || len(jobs.Items) != 0 {
		t.Errorf("%d Jobs are left, %v", len(jobs.Items), err)
	}
}

// The last requester has left, and the request is not canceled yet: that is no skip.
func TestARequestWithoutRequestersIsUndone(t *testing.T) {
	w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Undo = &v1alpha1.HookUndo{Job: s.Job} }))
	n := w.born()
	if _, err := n.Evacuate(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
	w.finish(batchv1.JobComplete)
	if _, err := n.Evacuate(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
	er := &v1alpha1.EvictionRequest{}
	if err := w.client.Get(t.Context(), w.target.Request, er); err != nil {
		t.Fatal(err)
	}
	er.Spec.Requesters = nil
	if err := w.client.Update(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	if err := n.Cancel(t.Context(), w.target); !errors.Is(err, interceptor.ErrNotYet) {
		t.Fatalf("cancel: %v, want that it waits for the undo", err)
	}
	if diff := cmp.Diff(map[string]int{"dump-1": 1, "dump-undo-1": 1}, w.names()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

// What has no way back is finished, and its pod's hook says so.
func TestThePointOfNoReturn(t *testing.T) {
	w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.PointOfNoReturn = true }))
	n := w.born()
	if err := n.Cancel(t.Context(), w.target); err != nil {
		t.Errorf("before anything began: %v", err)
	}
	p, err := n.Evacuate(t.Context(), w.target)
	if err != nil || !p.PointOfNoReturn {
		t.Errorf("want a point of no return: %+v, %v", p, err)
	}
	w.cancel()
	if err := n.Cancel(t.Context(), w.target); !errors.Is(err, interceptor.ErrPointOfNoReturn) {
		t.Errorf("cancel: %v", err)
	}
	w.finish(batchv1.JobComplete)
	if p, err = n.Evacuate(t.Context(), w.target); err != nil || !p.Done {
		t.Errorf("want that it is finished: %+v, %v", p, err)
	}
	if err := n.Cancel(t.Context(), w.target); err != nil {
		t.Errorf("cancel after the end: %v", err)
	}
	if diff := cmp.Diff(map[string]int{"dump-1": 1}, w.names()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

// A Job that somebody deletes is an attempt that failed.
func TestADeletedJobIsAFailure(t *testing.T) {
	w := newWorld(t, jobHook(func(s *v1alpha1.EvacuationHookSpec) { s.Retries = new(int32) }))
	n := w.born()
	if _, err := n.Evacuate(t.Context(), w.target); err != nil {
		t.Fatal(err)
	}
	if err := w.client.DeleteAllOf(t.Context(), &batchv1.Job{}, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
	p, err := n.Evacuate(t.Context(), w.target)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(p.Message, "was deleted") || p.Done {
		t.Errorf("want that the pod is kept: %+v", p)
	}
	if diff := cmp.Diff(map[string]int{"dump-1": 1}, w.names()); diff != "" {
		t.Errorf("Jobs (-want +got):\n%s", diff)
	}
}

// A trial runs the hook and hands over to nobody: its requester is withdrawn first.
func TestATrialEvictsNothing(t *testing.T) {
	w := newWorld(t, jobHook())
	er := &v1alpha1.EvictionRequest{}
	if err := w.client.Get(t.Context(), w.target.Request, er); err != nil {
		t.Fatal(err)
	}
	er.Spec.Requesters = []v1alpha1.Requester{{Name: v1alpha1.HookTestRequester}, {Name: "other.example.com"}}
	if err := w.client.Update(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	w.target.Requesters = []string{v1alpha1.HookTestRequester, "other.example.com"}
	n := w.born()
	for range 4 {
		p, err := n.Evacuate(t.Context(), w.target)
		if err != nil {
			t.Fatal(err)
		}
		if p.Done {
			t.Fatal("it hands over")
		}
		w.finish(batchv1.JobComplete)
	}
	if err := w.client.Get(t.Context(), w.target.Request, er); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]v1alpha1.Requester{{Name: "other.example.com"}}, er.Spec.Requesters); diff != "" {
		t.Errorf("requesters (-want +got):\n%s", diff)
	}
	// Somebody else wants the eviction.
	w.target.Requesters = []string{"other.example.com"}
	if p, err := n.Evacuate(t.Context(), w.target); err != nil || !p.Done {
		t.Errorf("want that it hands over: %+v, %v", p, err)
	}
}

// Nor does it when the hook is deleted.
func TestATrialOfADeletedHookEvictsNothing(t *testing.T) {
	w := newWorld(t, jobHook())
	er := &v1alpha1.EvictionRequest{}
	if err := w.client.Get(t.Context(), w.target.Request, er); err != nil {
		t.Fatal(err)
	}
	er.Spec.Requesters = []v1alpha1.Requester{{Name: v1alpha1.HookTestRequester}}
	if err := w.client.Update(t.Context(), er); err != nil {
		t.Fatal(err)
	}
	w.target.Requesters = []string{v1alpha1.HookTestRequester}
	n := w.born()
	if err := w.client.Delete(t.Context(), w.hook.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if p, err := n.Evacuate(t.Context(), w.target); err != nil || p.Done {
		t.Errorf("want that it does not hand over: %+v, %v", p, err)
	}
	if err := w.client.Get(t.Context(), w.target.Request, er); err != nil || len(er.Spec.Requesters) > 0 {
		t.Errorf("requesters %v, error %v, want none", er.Spec.Requesters, err)
	}
}

// What still runs for a pod that has ended is stopped, and nothing is undone: so is what a
// hook that was deleted has begun.
func TestWhatRunsForNobodyIsStopped(t *testing.T) {
	cases := map[string]func(*world, *named) error{
		"the pod has ended": func(w *world, n *named) error { return n.Gone(w.t.Context(), w.target) },
		"the hook was deleted": func(w *world, n *named) error {
			if err := w.client.Delete(w.t.Context(), w.hook.DeepCopy()); err != nil {
				return err
			}
			p, err := n.Evacuate(w.t.Context(), w.target)
			if err == nil && !p.Done {
				w.t.Errorf("it does not hand over: %+v", p)
			}
			return err
		},
		"the hook was deleted, and the eviction canceled": func(w *world, n *named) error {
			if err := w.client.Delete(w.t.Context(), w.hook.DeepCopy()); err != nil {
				return err
			}
			w.cancel()
			return n.Cancel(w.t.Context(), w.target)
		},
	}
	for name, ends := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobHook())
			n := w.born()
			if _, err := n.Evacuate(t.Context(), w.target); err != nil {
				t.Fatal(err)
			}
			if running, _ := n.limiter.count(); running != 1 || len(w.made) != 1 {
				t.Fatalf("%d run, and the Jobs are %v", running, w.made)
			}
			if err := ends(w, n); err != nil {
				t.Fatal(err)
			}
			var jobs batchv1.JobList
			if err := w.client.List(t.Context(), &jobs); err != nil || len(jobs.Items) != 0 {
				t.Errorf("%d Jobs are left, %v", len(jobs.Items), err)
			}
			if running, waiting := n.limiter.count(); running+waiting != 0 {
				t.Errorf("%d run and %d wait", running, waiting)
			}
			if diff := cmp.Diff(map[string]int{"dump-1": 1}, w.names()); diff != "" {
				t.Errorf("Jobs there were (-want +got):\n%s", diff)
			}
		})
	}
}
