package conformance

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// patientEngine keeps the engine from passing over anybody for silence, so that
// only the webhook goes by the clock.
func patientEngine(o *app.Options) { o.Policy.StartupGrace = 1000 * time.Hour }

// reportCase is a change of the status of a request whose interceptor A has its
// turn, made by somebody who is not the manager. The times are made when the case
// runs, from the manager's clock. A time that must be refused is so far away that
// a slow machine cannot make it right; the exact edges are the unit tests' matter.
type reportCase struct {
	given []func(*world) change
	write func(*world) change
	want  string
}

func (c reportCase) run(t *testing.T, w *world, name string) {
	t.Helper()
	tr := w.request(t, w.pod(t, name, interceptorA, interceptorB))
	w.untilActive(t, tr.ObjectKey, interceptorA)
	for _, given := range c.given {
		w.report(t, tr.ObjectKey, given(w))
	}
	before := w.get(t, tr.ObjectKey).Status
	checkAnswer(t, w.tryReport(t, tr.ObjectKey, c.write(w)), c.want)
	if c.want != accepted {
		after := w.get(t, tr.ObjectKey).Status
		after.Summary = before.Summary // It follows the given writes.
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("rejected, but the stored status has changed (-want +got):\n%s", diff)
		}
	}
}

// F4 time rules, those that need a clock.
func TestConformance_F4_Webhook(t *testing.T) {
	mgr := startManager(t, manager.Options{Change: patientEngine})
	// A manager that is ahead of the API server shows whose clock counts.
	mgr.Clock.Advance(72 * time.Hour)

	// start, beat, done and finish set one time each, so far from now.
	start := func(from time.Duration) func(*world) change {
		return func(w *world) change {
			return report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.StartTime, r.HeartbeatTime = w.in(from), w.in(0) })
		}
	}
	beat := func(from time.Duration) func(*world) change {
		return func(w *world) change {
			return report(interceptorA, func(r *v1alpha1.InterceptorStatus) {
				if r.StartTime == nil {
					r.StartTime = w.in(0)
				}
				r.HeartbeatTime = w.in(from)
			})
		}
	}
	done := func(from time.Duration) func(*world) change {
		return func(w *world) change {
			return report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.CompletionTime = w.in(from) })
		}
	}
	finish := func(from time.Duration) func(*world) change {
		return func(w *world) change {
			return report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.ExpectedFinishTime = w.in(from) })
		}
	}
	always := func(changes ...change) func(*world) change {
		return func(*world) change { return together(changes...) }
	}
	started := []func(*world) change{start(0)}
	handOver := always(active(interceptorB), processed(interceptorA))
	const (
		future = "must not be in the future"
		notNow = "must be close to now"
		past   = "must not be in the past"
		ours   = "only Drawbridge may write status.activeInterceptors"
	)

	cases := map[string]reportCase{
		"41 a heartbeat 9 s ahead of the clock is accepted": {write: beat(9 * time.Second), want: accepted},
		"41 a heartbeat more than 10 s ahead is refused":    {write: beat(20 * time.Second), want: future},
		"41 a heartbeat of tomorrow is refused":             {write: beat(24 * time.Hour), want: future},
		"41 a later heartbeat that is ahead is refused":     {given: started, write: beat(90 * time.Second), want: future},
		"41 an old first heartbeat is accepted":             {write: beat(-time.Minute), want: accepted},

		"46 a startTime 5 s ago is accepted":              {write: start(-5 * time.Second), want: accepted},
		"46 a startTime 9 s ahead is accepted":            {write: start(9 * time.Second), want: accepted},
		"46 a startTime more than 10 s ago is refused":    {write: start(-11 * time.Second), want: notNow},
		"46 a startTime more than 10 s ahead is refused":  {write: start(20 * time.Second), want: notNow},
		"46 the API server's own clock is of no interest": {write: start(-72 * time.Hour), want: notNow},

		"47 a completionTime 5 s ago is accepted":             {given: started, write: done(-5 * time.Second), want: accepted},
		"47 a completionTime 9 s ahead is accepted":           {given: started, write: done(9 * time.Second), want: accepted},
		"47 a completionTime more than 10 s ago is refused":   {given: started, write: done(-11 * time.Second), want: notNow},
		"47 a completionTime more than 10 s ahead is refused": {given: started, write: done(20 * time.Second), want: notNow},
		"47 who declines must say so now, too":                {write: done(-time.Hour), want: notNow},

		"48 an expectedFinishTime ahead is accepted":      {given: started, write: finish(24 * time.Hour), want: accepted},
		"48 an expectedFinishTime in the past is refused": {given: started, write: finish(-5 * time.Second), want: past},
		"48 none at all is fine":                          {write: start(0), want: accepted},
		"48 it can be moved": {
			given: []func(*world) change{start(0), finish(time.Hour)}, write: finish(30 * time.Minute), want: accepted,
		},
		"48 it cannot be moved into the past": {
			given: []func(*world) change{start(0), finish(time.Hour)}, write: finish(-time.Minute), want: past,
		},
		"48 it can go": {
			given: []func(*world) change{start(0), finish(time.Hour)},
			write: always(report(interceptorA, func(r *v1alpha1.InterceptorStatus) { r.ExpectedFinishTime = nil })), want: accepted,
		},

		// Only the controller switches. When it does: statements 67, 68, 90 to 92.
		"29 who is at work cannot be passed over":        {given: started, write: handOver, want: ours},
		"29 who has not begun cannot be passed over":     {write: handOver, want: ours},
		"29 nobody is put in its place, refused as well": {given: started, write: always(active(), processed(interceptorA)), want: ours},
		"29 completionTime does not make the switch one's own": {
			given: started,
			write: func(w *world) change { return together(done(0)(w), handOver(w)) }, want: ours,
		},
		"29 neither does Canceled": {
			given: started,
			write: always(active(), processed(interceptorA), condition(v1alpha1.ConditionCanceled, metav1.ConditionTrue, v1alpha1.ReasonNoRequesters)),
			want:  "only Drawbridge may write",
		},
		"29 nor Evicted": {
			given: started,
			write: always(active(), processed(interceptorA), condition(v1alpha1.ConditionEvicted, metav1.ConditionTrue, v1alpha1.ReasonPodDeleted)),
			want:  "only Drawbridge may write",
		},
		"41, 46, 47, 48 what is wrong is named all at once": {
			write: always(report(interceptorA, func(r *v1alpha1.InterceptorStatus) {
				r.StartTime, r.HeartbeatTime, r.CompletionTime, r.ExpectedFinishTime = at(0), at(1000*3600), at(0), at(0)
			})),
			want: "[status.interceptors[a.example.com].heartbeatTime: ",
		},
	}
	t.Run("now", func(t *testing.T) {
		w := newWorld(t, mgr)
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tc.run(t, w, podName(t))
			})
		}
	})
}

// A heartbeat that no webhook has seen.
func TestConformance_F4_FutureHeartbeat(t *testing.T) {
	t.Run("50 a heartbeat from next year holds the turn for 20 minutes and 10 s", func(t *testing.T) {
		mgr := startManager(t, manager.Options{Change: noStartupGrace})
		w := newWorld(t, mgr)
		tr := w.request(t, w.pod(t, "web", interceptorA, interceptorB))
		w.untilActive(t, tr.ObjectKey, interceptorA)
		stopManager(t, mgr)
		w.report(t, tr.ObjectKey, beats(interceptorA, *w.in(365 * 24 * time.Hour)))

		before := mgr.Clock.Now()
		w.mgr = startManager(t, manager.Options{Change: noStartupGrace, Clock: mgr.Clock})
		w.sync(t, tr.ObjectKey)
		seen := w.mgr.Clock.Now() // At the latest.
		w.advanceTo(before.Add(deadline))
		if er := w.sync(t, tr.ObjectKey); progress(er) != "[a]" && w.mgr.Clock.Now().Before(before.Add(deadline+skew)) {
			t.Errorf("after 20 minutes: %s", progress(er))
		}
		w.advanceTo(seen.Add(deadline + skew))
		er := w.untilActive(t, tr.ObjectKey, interceptorB)
		if got, earliest := er.Status.ActivationTime.Time, before.Add(deadline+skew).Truncate(time.Second); got.Before(earliest) {
			t.Errorf("passed over at %s, not before %s", got, earliest)
		}
	})
}
