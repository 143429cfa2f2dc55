package request

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Who needs longer than there is time is told in the condition and in an event, and counts
// when the pod is evicted.
func TestWhatShortNoticeTells(t *testing.T) {
	dump, migrate, b := "dump.example.com", "migrate.example.com", "b.example.com"
	minimum := &metav1.Duration{Duration: 10 * time.Minute}
	planned := map[string]v1alpha1.Interceptor{
		dump:    {Name: dump, Minimum: minimum, OnShortNotice: v1alpha1.ShortNoticeSkip},
		migrate: {Name: migrate, Minimum: minimum, OnShortNotice: v1alpha1.ShortNoticeBegin},
		b:       {Name: b},
	}
	participants := plan([]string{dump, migrate, b}, func(name string) v1alpha1.Interceptor { return planned[name] })
	er := newRequest().Deadline("spot.example.com", t0.Add(30*time.Second)).Obj()
	decided := func(now time.Time, target process.Target) process.Decision {
		s := decode(er, target, participants, observation{endSeenAt: t0}, time.Time{})
		s.Deadline = er.Status.Deadline.Time
		d := process.Step(s, now, process.DefaultPolicy())
		encode(er, d, facts{now: now, deadline: deadline{at: s.Deadline, source: er.Status.DeadlineSource}})
		return d
	}

	d := decided(t0.Add(500*time.Millisecond), process.Target{Presence: process.Present})
	if diff := cmp.Diff([]v1alpha1.Interceptor{
		planned[dump], {Name: migrate, Minimum: minimum}, planned[b], {Name: v1alpha1.ImperativeEvictionInterceptor},
	}, er.Status.TargetInterceptors); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	message := "dump.example.com needs 10m0s and has 30s, because of requester spot.example.com: it is skipped." +
		" migrate.example.com needs 10m0s and has 30s, because of requester spot.example.com: it begins nevertheless."
	if diff := cmp.Diff(message, messageOf(er, v1alpha1.ConditionShortNotice)); diff != "" {
		t.Errorf("condition (-want +got):\n%s", diff)
	}
	want := []events.Event{events.InterceptorActivated(migrate, 2, 4), events.ShortNotice(message)}
	if diff := cmp.Diff(want, announcements(er, process.OutcomeRunning, d, process.Policy{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	m := &metricsLog{}
	account(m, er, process.Snapshot{}, d, "", t0)
	if diff := cmp.Diff([]string(nil), m.told); diff != "" {
		t.Errorf("at the beginning metrics were told (-want +got):\n%s", diff)
	}

	d = decided(t0.Add(20*time.Second), process.Target{Presence: process.Gone})
	account(m, er, process.Snapshot{CreatedAt: t0.Add(-time.Minute)}, d, "", t0)
	if diff := cmp.Diff([]string{"turn cut_short", "finished evicted 1m0s", "deadline too_short"}, m.told); diff != "" {
		t.Errorf("at the end metrics were told (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(message, messageOf(er, v1alpha1.ConditionShortNotice)); diff != "" {
		t.Errorf("condition at the end (-want +got):\n%s", diff)
	}
}

func TestWhatBecameOfADeadline(t *testing.T) {
	of := func(conditions ...string) *builder.EvictionRequestWrapper {
		w := builder.EvictionRequest("shop", "db-0", "uid-1").Deadline("spot.example.com", t0)
		for _, condition := range conditions {
			w.Condition(condition, "Because", t0)
			w.Status.Conditions[len(w.Status.Conditions)-1].Message = "It is so."
		}
		return w
	}
	for name, tc := range map[string]struct {
		request *builder.EvictionRequestWrapper
		cause   process.Cause
		want    []string
	}{
		"there was none":         {builder.EvictionRequest("shop", "db-0", "uid-1"), process.TargetDeleted, []string{"finished evicted 1m0s"}},
		"all were done":          {of(), process.TargetDeleted, []string{"finished evicted 1m0s", "deadline kept"}},
		"somebody was not":       {of(v1alpha1.ConditionCutOff), process.TargetTerminal, []string{"finished evicted 1m0s", "deadline cut_off"}},
		"somebody had said so":   {of(v1alpha1.ConditionCutOff, v1alpha1.ConditionShortNotice), process.TargetDeleted, []string{"finished evicted 1m0s", "deadline too_short"}},
		"it was not wanted then": {of(), process.NoIntent, []string{"finished canceled 1m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &metricsLog{}
			d := process.Decision{Outcome: process.OutcomeEvicted, Cause: tc.cause}
			account(m, tc.request.Obj(), process.Snapshot{CreatedAt: t0.Add(-time.Minute)}, d, "", t0)
			if diff := cmp.Diff(tc.want, m.told); diff != "" {
				t.Errorf("metrics were told (-want +got):\n%s", diff)
			}
		})
	}
}
