package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// later is a refusal that lasts until then.
type later time.Time

func (l later) Error() string { return "refused" }

func (l later) RetryAt() time.Time { return time.Time(l) }

func TestPatient(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) error { return later(now.Add(d)) }
	boom := errors.New("boom")
	tests := map[string]struct {
		result reconcile.Result
		err    error
		want   reconcile.Result
		fails  bool
	}{
		"no error":                           {result: reconcile.Result{RequeueAfter: time.Hour}, want: reconcile.Result{RequeueAfter: time.Hour}},
		"another error is returned":          {err: boom, fails: true},
		"a refusal is waited for":            {err: fmt.Errorf("write: %w", in(time.Minute)), want: reconcile.Result{RequeueAfter: time.Minute}},
		"one that is just over":              {err: in(0), want: reconcile.Result{RequeueAfter: time.Millisecond}},
		"of two, the earlier one counts":     {err: errors.Join(in(time.Hour), in(time.Minute)), want: reconcile.Result{RequeueAfter: time.Minute}},
		"a refusal beside another error":     {err: errors.Join(in(time.Hour), boom), fails: true},
		"what is due earlier does not wait":  {result: reconcile.Result{RequeueAfter: time.Second}, err: in(time.Minute), want: reconcile.Result{RequeueAfter: time.Second}},
		"what is due later comes in between": {result: reconcile.Result{RequeueAfter: time.Hour}, err: in(time.Minute), want: reconcile.Result{RequeueAfter: time.Minute}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := Patient(testingclock.NewFakeClock(now), reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				return tc.result, tc.err
			}))
			got, err := r.Reconcile(t.Context(), reconcile.Request{})
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("got %+v, %v, want %+v, an error: %t", got, err, tc.want, tc.fails)
			}
		})
	}
}
