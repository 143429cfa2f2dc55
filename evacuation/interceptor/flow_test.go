package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor/interceptortest"
)

// scripted answers as it is told to.
type scripted struct {
	progress interceptor.Progress
	err      error
	panics   bool
}

func (s *scripted) Evacuate(context.Context, interceptor.Target) (interceptor.Progress, error) {
	if s.panics {
		panic("no idea")
	}
	return s.progress, s.err
}

// undoing is one that can cancel.
type undoing struct {
	scripted
	cancelErr error
}

func (u *undoing) Cancel(context.Context, interceptor.Target) error { return u.cancelErr }

func working(message string) interceptor.Progress { return interceptor.Progress{Message: message} }

func done(message string) interceptor.Progress {
	return interceptor.Progress{Done: true, Message: message}
}

func wantMethods(t *testing.T, b *interceptortest.Bench, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.Methods()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func wantEvents(t *testing.T, b *interceptortest.Bench, want ...string) {
	t.Helper()
	var got []string
	for _, event := range b.Events() {
		reason, _, _ := strings.Cut(event, ":")
		got = append(got, reason)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestSDKWorksAndHandsOver(t *testing.T) {
	t.Parallel()
	impl := &scripted{progress: working("copying")}
	b := interceptortest.New(t, impl, interceptortest.Options{})
	b.Changed()
	wantMethods(t, b) // It is not its turn.

	b.Activate()
	b.Advance(7 * time.Minute)
	impl.progress = done("copied")
	b.Changed()
	b.Advance(time.Hour)
	wantMethods(t, b, "Evacuate", "Evacuate", "Evacuate", "Evacuate")
	wantEvents(t, b, "Normal EvacuationStarted", "Normal EvacuationCompleted")
	var beats []string
	for _, r := range b.Reports() {
		beats = append(beats, fmt.Sprintf("%s %s %t", r.HeartbeatTime.UTC().Format("15:04"), r.Message, r.CompletionTime != nil))
	}
	want := []string{"00:00 copying false", "00:03 copying false", "00:06 copying false", "00:06 copied true"}
	if diff := cmp.Diff(want, beats); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
	if target := b.Calls()[3].Target; target.StartedAt != b.Calls()[0].At || target.ActivatedAt != b.Calls()[0].At {
		t.Errorf("target %+v, want to be told start and activation %s", target, b.Calls()[0].At)
	}
	if first := b.Calls()[0].Target; !first.StartedAt.IsZero() || first.NodeName != "node-1" ||
		first.PodUID == "" || !cmp.Equal(first.Requesters, []string{"drain.example.com"}) {
		t.Errorf("first target %+v", first)
	}
}

func TestSDKDeclines(t *testing.T) {
	t.Parallel()
	b := interceptortest.New(t, &undoing{scripted: scripted{progress: done("not mine")}}, interceptortest.Options{})
	b.Activate()
	b.Cancel()
	wantMethods(t, b, "Evacuate")
	if r := b.Reports(); len(r) != 1 || r[0].StartTime != nil || r[0].CompletionTime == nil || r[0].Message != "not mine" {
		t.Errorf("reports %+v, want one: the completion", r)
	}
}

// hurrying tells which of its calls may take less than half of a day.
type hurrying struct {
	undoing
	short []bool
}

func (h *hurrying) Evacuate(ctx context.Context, _ interceptor.Target) (interceptor.Progress, error) {
	deadline, _ := ctx.Deadline()
	h.short = append(h.short, time.Until(deadline) < 12*time.Hour)
	return h.progress, h.err
}

// A requester does not wait for ever: the interceptor is told at its first call, and
// whenever that changes, and undoes what it began when the time is over.
func TestSDKTellsTheDeadline(t *testing.T) {
	t.Parallel()
	impl := &hurrying{undoing: undoing{scripted: scripted{progress: working("copying")}}}
	b := interceptortest.New(t, impl, interceptortest.Options{SDK: interceptor.Options{Timeout: 24 * time.Hour}})
	begin := b.Now()
	b.Hurry(20 * time.Hour)
	b.Activate()
	b.Hurry(15 * time.Second)
	b.Advance(20 * time.Second)
	b.Changed() // The controller is late.
	b.PassOver()
	wantMethods(t, b, "Evacuate", "Evacuate", "Evacuate", "Cancel")
	var told []time.Duration
	for _, call := range b.Calls() {
		told = append(told, call.Target.Deadline.Sub(begin))
	}
	if diff := cmp.Diff([]time.Duration{20 * time.Hour, 15 * time.Second, 15 * time.Second, 15 * time.Second}, told); diff != "" {
		t.Errorf("told deadlines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]bool{false, true, false}, impl.short); diff != "" {
		t.Errorf("calls with little time (-want +got):\n%s", diff)
	}
}

func TestSDKHoldsBackNewsForAMinute(t *testing.T) {
	t.Parallel()
	impl := &scripted{progress: working("1 of 3")}
	b := interceptortest.New(t, impl, interceptortest.Options{})
	b.Activate()
	for i, message := range []string{"2 of 3", "3 of 3"} {
		b.Advance(10 * time.Second)
		impl.progress = working(message)
		b.Changed()
		if got := b.Report().Message; got != "1 of 3" {
			t.Errorf("change %d: message %q within the minute", i, got)
		}
	}
	b.Advance(40 * time.Second)
	if got := b.Report().Message; got != "3 of 3" {
		t.Errorf("message %q after a minute, want the last one", got)
	}
}

func TestSDKIsSilentWhileItFails(t *testing.T) {
	t.Parallel()
	impl := &undoing{scripted: scripted{progress: working("copying")}}
	b := interceptortest.New(t, impl, interceptortest.Options{})
	b.Activate()
	impl.err = errors.New("disk full")
	b.Advance(20 * time.Minute)
	if n := len(b.Reports()); n != 1 {
		t.Errorf("%d reports, want none but the first", n)
	}
	if n := len(b.Calls()); n < 20 || n > 40 {
		t.Errorf("%d calls in 20 minutes of failure, want one a minute", n)
	}
	wantLast := "Warning EvacuationFailed: Interceptor interceptor.example.com failed with pod pod-1 and will try again: disk full"
	if last := b.Events()[len(b.Events())-1]; last != wantLast {
		t.Errorf("event %q, want %q", last, wantLast)
	}
	b.PassOver()
	if m := b.Methods(); m[len(m)-1] != "Cancel" {
		t.Errorf("calls %v, want Cancel at last", m)
	}
	calls := len(b.Calls())
	b.Advance(time.Hour)
	b.Changed()
	if n := len(b.Calls()); n != calls {
		t.Errorf("%d more calls after the end", n-calls)
	}
}

func TestSDKTakesAPanicForAnError(t *testing.T) {
	t.Parallel()
	impl := &scripted{panics: true}
	b := interceptortest.New(t, impl, interceptortest.Options{})
	b.Activate()
	wantEvents(t, b, "Warning EvacuationFailed")
	impl.panics, impl.progress = false, done("")
	b.Advance(time.Second)
	if !b.Completed() {
		t.Error("it has not gone on")
	}
}

func TestSDKEndsOfATurn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		end    func(*interceptortest.Bench)
		cancel bool
	}{
		"canceled":    {(*interceptortest.Bench).Cancel, true},
		"deleted":     {(*interceptortest.Bench).Delete, true},
		"passed over": {(*interceptortest.Bench).PassOver, true},
		"evicted":     {(*interceptortest.Bench).PodEnds, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			impl := &undoing{scripted: scripted{progress: working("copying")}, cancelErr: errors.New("busy")}
			b := interceptortest.New(t, impl, interceptortest.Options{})
			b.Activate()
			tc.end(b)
			if !tc.cancel {
				b.Advance(time.Hour)
				wantMethods(t, b, "Evacuate")
				return
			}
			b.Advance(250 * time.Millisecond)
			impl.cancelErr = nil
			b.Advance(time.Hour)
			b.Changed()
			wantMethods(t, b, "Evacuate", "Cancel", "Cancel", "Cancel")
			wantEvents(t, b, "Normal EvacuationStarted", "Warning CancelFailed", "Warning CancelFailed", "Normal EvacuationCanceled")
			if first, last := b.Calls()[0].Target, b.Calls()[3].Target; first.PodUID != last.PodUID || first.RequestUID != last.RequestUID || last.StartedAt.IsZero() {
				t.Errorf("Cancel got %+v, Evacuate had %+v", last, first)
			}
			if n := len(b.Reports()); n != 1 {
				t.Errorf("%d reports, want none after the first", n)
			}
		})
		t.Run(name+", and it cannot cancel", func(t *testing.T) {
			t.Parallel()
			b := interceptortest.New(t, &scripted{progress: working("copying")}, interceptortest.Options{})
			b.Activate()
			tc.end(b)
			b.Advance(time.Hour)
			wantMethods(t, b, "Evacuate")
		})
	}
}

func TestSDKUndoesTheOldBeforeItBeginsTheNew(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]bool{"the deletion was seen": true, "only the new one was seen": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			impl := &undoing{scripted: scripted{progress: working("copying")}, cancelErr: errors.New("busy")}
			b := interceptortest.New(t, impl, interceptortest.Options{})
			b.Activate()
			if seen {
				b.Delete()
			}
			b.Recreate()
			b.Advance(10 * time.Second)
			for i, call := range b.Calls()[1:] {
				if call.Method != "Cancel" || call.Target.RequestUID != "request-1" {
					t.Fatalf("call %d: %s of %s before Cancel had succeeded", i, call.Method, call.Target.RequestUID)
				}
			}
			impl.cancelErr = nil
			b.Advance(time.Minute)
			calls := b.Calls()[len(b.Calls())-2:]
			if calls[0].Method != "Cancel" || calls[1].Method != "Evacuate" || calls[1].Target.RequestUID != "request-2" {
				t.Errorf("at last %s of %s and %s of %s", calls[0].Method, calls[0].Target.RequestUID, calls[1].Method, calls[1].Target.RequestUID)
			}
			if b.Report().StartTime == nil {
				t.Error("the new turn has not begun")
			}
		})
	}
}

func TestSDKPointOfNoReturn(t *testing.T) {
	t.Parallel()
	told := interceptor.Progress{Message: "cutting over", PointOfNoReturn: true}
	cases := map[string]struct {
		impl   *undoing
		end    func(*interceptortest.Bench)
		want   []string
		events []string
	}{
		"told before, canceled": {
			&undoing{scripted: scripted{progress: told}}, (*interceptortest.Bench).Cancel,
			[]string{"Evacuate", "Evacuate", "Evacuate"}, []string{"Normal EvacuationStarted"},
		},
		"told before, deleted": {
			&undoing{scripted: scripted{progress: told}}, (*interceptortest.Bench).Delete,
			[]string{"Evacuate", "Evacuate", "Evacuate"}, []string{"Normal EvacuationStarted"},
		},
		"told by Cancel, canceled": {
			&undoing{scripted: scripted{progress: working("cutting over")}, cancelErr: fmt.Errorf("no: %w", interceptor.ErrPointOfNoReturn)}, (*interceptortest.Bench).Cancel,
			[]string{"Evacuate", "Cancel", "Evacuate", "Evacuate"}, []string{"Normal EvacuationStarted", "Warning PointOfNoReturn"},
		},
		"told by Cancel, deleted": {
			&undoing{scripted: scripted{progress: working("cutting over")}, cancelErr: interceptor.ErrPointOfNoReturn}, (*interceptortest.Bench).Delete,
			[]string{"Evacuate", "Cancel", "Evacuate", "Evacuate"}, []string{"Normal EvacuationStarted", "Warning PointOfNoReturn"},
		},
		"told before, passed over": {
			&undoing{scripted: scripted{progress: told}}, (*interceptortest.Bench).PassOver,
			[]string{"Evacuate"}, []string{"Normal EvacuationStarted"},
		},
		"told by Cancel, passed over": {
			&undoing{scripted: scripted{progress: working("cutting over")}, cancelErr: interceptor.ErrPointOfNoReturn}, (*interceptortest.Bench).PassOver,
			[]string{"Evacuate", "Cancel"}, []string{"Normal EvacuationStarted", "Warning PointOfNoReturn"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := interceptortest.New(t, tc.impl, interceptortest.Options{})
			b.Activate()
			tc.end(b)
			tc.impl.progress = done("")
			b.Advance(3 * time.Minute)
			b.Advance(time.Hour)
			b.Changed()
			wantMethods(t, b, tc.want...)
			wantEvents(t, b, tc.events...)
			if n := len(b.Reports()); n != 1 {
				t.Errorf("%d reports, want none after the first", n)
			}
		})
	}
	t.Run("who was passed over has stopped for good", func(t *testing.T) {
		t.Parallel()
		b := interceptortest.New(t, &undoing{scripted: scripted{progress: told}}, interceptortest.Options{})
		b.Activate()
		b.PassOver()
		b.Delete()
		b.Advance(time.Hour)
		wantMethods(t, b, "Evacuate")
	})
	t.Run("a new request takes over what cannot be stopped", func(t *testing.T) {
		t.Parallel()
		impl := &undoing{scripted: scripted{progress: told}}
		b := interceptortest.New(t, impl, interceptortest.Options{})
		b.Activate()
		b.Delete()
		b.Recreate()
		impl.progress = done("cut over")
		b.Changed()
		wantMethods(t, b, "Evacuate", "Evacuate", "Evacuate", "Evacuate")
		if !b.Completed() {
			t.Error("the new request has not heard that it is done")
		}
	})
}

func TestSDKReportsAgainWhatWasNotHeard(t *testing.T) {
	t.Parallel()
	impl := &scripted{progress: done("copied")}
	b := interceptortest.New(t, impl, interceptortest.Options{})
	b.FailReports(errors.New("connection refused"))
	b.Activate()
	b.Advance(10 * time.Second)
	if b.Completed() {
		t.Fatal("completed without a report")
	}
	b.FailReports(nil)
	b.Advance(time.Minute)
	if !b.Completed() {
		t.Error("the completion is lost")
	}
}

func TestSDKSelector(t *testing.T) {
	t.Parallel()
	for shard, want := range map[string]int{"a": 1, "b": 0} {
		selector := labels.SelectorFromSet(labels.Set{"shard": "a"})
		b := interceptortest.New(t, &scripted{progress: working("")}, interceptortest.Options{
			Labels: map[string]string{"shard": shard}, SDK: interceptor.Options{Selector: selector},
		})
		b.Activate()
		if n := len(b.Calls()); n != want {
			t.Errorf("shard %s: %d calls, want %d", shard, n, want)
		}
	}
}
