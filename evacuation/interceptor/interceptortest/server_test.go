package interceptortest

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// idle has nothing to say.
type idle struct{}

func (idle) Evacuate(context.Context, interceptor.Target) (interceptor.Progress, error) {
	return interceptor.Progress{}, nil
}

// The bench is only worth something if its server refuses what the real one does.
func TestTheServerRefusesWhatTheRealOneRefuses(t *testing.T) {
	t.Parallel()
	type report = apply.InterceptorStatusApplyConfiguration
	cases := map[string]struct {
		// after the first heartbeat, whose time is sent along.
		wait   time.Duration
		change func(r *report, start, now metav1.Time)
		want   string
	}{
		"the same again":        {0, func(r *report, start, _ metav1.Time) { r.WithStartTime(start).WithHeartbeatTime(start) }, ""},
		"a heartbeat in time":   {time.Minute, func(r *report, start, now metav1.Time) { r.WithStartTime(start).WithHeartbeatTime(now) }, ""},
		"a heartbeat too early": {59 * time.Second, func(r *report, start, now metav1.Time) { r.WithStartTime(start).WithHeartbeatTime(now) }, "heartbeatTime"},
		"a heartbeat that goes": {time.Minute, func(*report, metav1.Time, metav1.Time) {}, "heartbeatTime"},
		"a heartbeat to come": {time.Minute, func(r *report, start, now metav1.Time) {
			r.WithStartTime(start).WithHeartbeatTime(metav1.NewTime(now.Add(11 * time.Second)))
		}, "heartbeatTime"},
		"another start": {time.Minute, func(r *report, _, now metav1.Time) { r.WithStartTime(now).WithHeartbeatTime(now) }, "startTime"},
		"an estimate in the past": {time.Minute, func(r *report, start, now metav1.Time) {
			r.WithStartTime(start).WithHeartbeatTime(now).WithExpectedFinishTime(start)
		}, "expectedFinishTime"},
		"a completion": {time.Second, func(r *report, start, now metav1.Time) {
			r.WithStartTime(start).WithHeartbeatTime(start).WithCompletionTime(now)
		}, ""},
		"a completion from earlier": {time.Minute, func(r *report, start, _ metav1.Time) {
			r.WithStartTime(start).WithHeartbeatTime(start).WithCompletionTime(start)
		}, "completionTime"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := New(t, idle{}, Options{})
			b.Activate()
			start := *b.Report().StartTime
			b.clock.Step(tc.wait)
			sent := apply.InterceptorStatus().WithName(b.o.SDK.Name).WithMessage("")
			tc.change(sent, start, *b.server.stamp())
			err := b.server.SubResource("status").Apply(t.Context(), b.config(sent))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("answer %v, want a refusal for %s", err, tc.want)
			}
		})
	}
	t.Run("whose turn it is not", func(t *testing.T) {
		t.Parallel()
		b := New(t, idle{}, Options{})
		sent := apply.InterceptorStatus().WithName(b.o.SDK.Name).WithMessage("").WithCompletionTime(*b.server.stamp())
		if err := b.server.SubResource("status").Apply(t.Context(), b.config(sent)); !apierrors.IsInvalid(err) {
			t.Errorf("answer %v, want a refusal", err)
		}
	})
	t.Run("another version", func(t *testing.T) {
		t.Parallel()
		b := New(t, idle{}, Options{})
		config := b.config(apply.InterceptorStatus().WithName(b.o.SDK.Name).WithMessage(""))
		b.Activate()
		if err := b.server.SubResource("status").Apply(t.Context(), config); !apierrors.IsConflict(err) {
			t.Errorf("answer %v, want a conflict", err)
		}
	})
	t.Run("anything but requests", func(t *testing.T) {
		t.Parallel()
		b := New(t, idle{}, Options{})
		if err := b.server.Get(t.Context(), b.o.Pod, &corev1.Pod{}); err == nil {
			t.Error("it has a pod")
		}
	})
}

// config is a report for the present version.
func (b *Bench) config(sent *apply.InterceptorStatusApplyConfiguration) *apply.EvictionRequestApplyConfiguration {
	er := b.server.request
	return apply.EvictionRequest(er.Name, er.Namespace).WithUID(er.UID).WithResourceVersion(er.ResourceVersion).
		WithStatus(apply.EvictionRequestStatus().WithInterceptors(sent))
}

func TestTheControllerHandsOver(t *testing.T) {
	t.Parallel()
	b := New(t, idle{}, Options{})
	b.Activate()
	b.PassOver()
	if got := b.server.request.Status.ActiveInterceptors; len(got) != 1 || got[0] != v1alpha1.ImperativeEvictionInterceptor {
		t.Errorf("active: %v", got)
	}
	if next := b.NextLook(); !next.IsZero() {
		t.Errorf("it looks again at %s", next)
	}
}
