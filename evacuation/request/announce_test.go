package request

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestTheEventOfAnInterceptorsEnd(t *testing.T) {
	const name = "a.example.com"
	decision := process.Decision{
		Transitions:  []process.Transition{{Name: name, To: process.Completed}},
		Participants: []process.Participant{{Name: name}},
	}
	cases := map[string]struct {
		report v1alpha1.InterceptorStatus
		want   events.Event
	}{
		"it was done itself":      {want: events.InterceptorCompleted(name)},
		"a person did it instead": {v1alpha1.InterceptorStatus{SkippedBy: "alice", Message: "it hangs"}, events.InterceptorSkipped(name, "alice", "it hangs")},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors(name).Report(name, func(s *v1alpha1.InterceptorStatus) {
				s.SkippedBy, s.Message = tc.report.SkippedBy, tc.report.Message
			})
			got := announcements(er.Obj(), process.OutcomeRunning, decision, process.Policy{})
			if diff := cmp.Diff([]events.Event{tc.want}, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheEventOfASilentInterceptorHasItsDeadline(t *testing.T) {
	const name = "a.example.com"
	policy := process.Policy{HeartbeatDeadline: 20 * time.Minute}
	for title, tc := range map[string]struct{ own, want time.Duration }{
		"that of the installation": {0, 20 * time.Minute},
		"that of its registration": {time.Hour, time.Hour},
	} {
		t.Run(title, func(t *testing.T) {
			got := announcements(builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors(name).Obj(), process.OutcomeRunning, process.Decision{
				Transitions:  []process.Transition{{Name: name, From: process.Active, To: process.Interrupted}},
				Participants: []process.Participant{{Name: name, HeartbeatDeadline: tc.own}},
			}, policy)
			if diff := cmp.Diff([]events.Event{events.InterceptorTimedOut(name, tc.want, time.Time{})}, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
