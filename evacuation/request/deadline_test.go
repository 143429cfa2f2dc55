package request

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestDeadlineOf(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	pod := func(grace int64) *corev1.Pod {
		return builder.Pod("shop", "db-0").UID("uid-1").GracePeriod(grace).Obj()
	}
	asks := func(name string, at time.Time, grace *int64) v1alpha1.Requester {
		return v1alpha1.Requester{Name: name, Deadline: &metav1.Time{Time: at}, GracePeriodSeconds: grace}
	}
	patient := v1alpha1.Requester{Name: "patient.example.com"}
	hard := v1alpha1.Requester{Name: "hard.example.com", Type: v1alpha1.RequesterHard}
	spot, karpenter := "spot.example.com", "karpenter.example.com"
	taint := translate.Learnt{Source: "taint reclaimed of node n1", After: 2 * time.Minute}
	claim := func(at time.Time) []translate.Learnt { return []translate.Learnt{{Source: "NodeClaim c", At: at}} }
	cases := map[string]struct {
		requesters []v1alpha1.Requester
		learnt     []translate.Learnt
		pod        *corev1.Pod
		stored     deadline
		active     string
		margin     time.Duration
		// now is an hour before noon if it is not set.
		now  time.Time
		want deadline
	}{
		"nobody has one": {requesters: []v1alpha1.Requester{patient}, pod: pod(30)},
		"the pod has its grace period and the margin less": {
			requesters: []v1alpha1.Requester{patient, asks(spot, noon, nil)}, pod: pod(30), margin: 5 * time.Second,
			want: deadline{at: noon.Add(-35 * time.Second), source: "requester " + spot},
		},
		"the earliest counts": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil), asks(karpenter, noon.Add(-time.Minute), nil), asks("later.example.com", noon.Add(time.Hour), nil)}, pod: pod(0),
			want: deadline{at: noon.Add(-time.Minute), source: "requester " + karpenter},
		},
		"so does the longest grace period that anybody asks for": {
			requesters: []v1alpha1.Requester{asks(spot, noon, ptr.To[int64](10)), {Name: karpenter, GracePeriodSeconds: ptr.To[int64](90)}}, pod: pod(30),
			want: deadline{at: noon.Add(-90 * time.Second), source: "requester " + spot},
		},
		"a shorter one than the pod's does, if all ask for it": {
			requesters: []v1alpha1.Requester{asks(spot, noon, ptr.To[int64](10))}, pod: pod(30),
			want: deadline{at: noon.Add(-10 * time.Second), source: "requester " + spot},
		},
		"it has whole seconds": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(0), margin: 1500 * time.Millisecond,
			want: deadline{at: noon.Add(-2 * time.Second), source: "requester " + spot},
		},
		"the longest grace period there is leaves a moment": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(math.MaxInt64), now: noon,
			want: deadline{at: noon.Add(10 * time.Second), source: "requester " + spot, over: noon.Sub(time.Unix(1, 0))},
		},
		"a grace period below zero is none": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(-1),
			want: deadline{at: noon, source: "requester " + spot},
		},
		"a moved one replaces the stored one": {
			requesters: []v1alpha1.Requester{asks(spot, noon.Add(time.Hour), nil)}, pod: pod(0), stored: deadline{at: noon, source: "requester " + spot}, active: "a.example.com",
			want: deadline{at: noon.Add(time.Hour), source: "requester " + spot},
		},
		"a withdrawn one is none": {
			requesters: []v1alpha1.Requester{patient}, pod: pod(0), stored: deadline{at: noon, source: "requester " + spot}, active: "a.example.com",
		},
		"it stays once the last interceptor has its turn": {
			requesters: []v1alpha1.Requester{patient}, pod: pod(0), stored: deadline{at: noon, source: "requester " + spot}, active: v1alpha1.ImperativeEvictionInterceptor,
			want: deadline{at: noon, source: "requester " + spot},
		},
		"it stays when the pod is gone": {
			requesters: []v1alpha1.Requester{patient}, stored: deadline{at: noon, source: "requester " + spot}, active: "a.example.com",
			want: deadline{at: noon, source: "requester " + spot},
		},
		"one that has come is not moved": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(0), stored: deadline{at: noon, source: "requester " + spot}, active: "a.example.com", now: noon.Add(time.Minute),
			want: deadline{at: noon, source: "requester " + spot},
		},
		"one that was over before it was seen leaves a moment": {
			requesters: []v1alpha1.Requester{asks(spot, noon.Add(-time.Hour), nil)}, pod: pod(0), now: noon,
			want: deadline{at: noon.Add(10 * time.Second), source: "requester " + spot, over: time.Hour},
		},
		"that moment ends": {
			requesters: []v1alpha1.Requester{asks(spot, noon.Add(-time.Hour), nil)}, pod: pod(0), now: noon.Add(8 * time.Second),
			stored: deadline{at: noon.Add(10 * time.Second), source: "requester " + spot},
			want:   deadline{at: noon.Add(10 * time.Second), source: "requester " + spot, over: time.Hour + 8*time.Second},
		},
		"one that is moved into the past leaves a moment": {
			requesters: []v1alpha1.Requester{asks(spot, noon.Add(-time.Hour), nil)}, pod: pod(0), now: noon, active: "a.example.com",
			stored: deadline{at: noon.Add(time.Hour), source: "requester " + spot},
			want:   deadline{at: noon.Add(10 * time.Second), source: "requester " + spot, over: time.Hour},
		},
		"Hard leaves a moment, whatever the grace period": {
			requesters: []v1alpha1.Requester{hard, asks(spot, noon, nil)}, pod: pod(30), now: noon.Add(-time.Hour), margin: 5 * time.Second,
			want: deadline{at: noon.Add(-time.Hour).Add(10 * time.Second), source: "requester hard.example.com, type Hard"},
		},
		"one that was over does not prolong the moment of Hard": {
			requesters: []v1alpha1.Requester{hard, asks(spot, noon.Add(-time.Hour), nil)}, pod: pod(0), now: noon,
			stored: deadline{at: noon.Add(2 * time.Second), source: "requester hard.example.com, type Hard"},
			want:   deadline{at: noon.Add(2 * time.Second), source: "requester hard.example.com, type Hard"},
		},
		"that of Hard ends as well": {
			requesters: []v1alpha1.Requester{hard}, pod: pod(30), now: noon, stored: deadline{at: noon.Add(-time.Second), source: "requester hard.example.com, type Hard"},
			want: deadline{at: noon.Add(-time.Second), source: "requester hard.example.com, type Hard"},
		},
		"what is learnt counts as that of a requester": {
			requesters: []v1alpha1.Requester{patient}, learnt: claim(noon), pod: pod(30), margin: 5 * time.Second,
			want: deadline{at: noon.Add(-35 * time.Second), source: "NodeClaim c"},
		},
		"a requester's may be earlier": {
			requesters: []v1alpha1.Requester{asks(spot, noon.Add(-time.Minute), nil)}, learnt: claim(noon), pod: pod(0),
			want: deadline{at: noon.Add(-time.Minute), source: "requester " + spot},
		},
		"a taint that does not say since when it is there counts from now": {
			learnt: []translate.Learnt{taint}, pod: pod(30), now: noon, margin: 5 * time.Second,
			want: deadline{at: noon.Add(85 * time.Second), source: taint.Source},
		},
		"and not again from later": {
			learnt: []translate.Learnt{taint}, pod: pod(30), now: noon.Add(time.Minute), stored: deadline{at: noon.Add(85 * time.Second), source: taint.Source},
			want: deadline{at: noon.Add(85 * time.Second), source: taint.Source},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors("a.example.com")
			for _, r := range tc.requesters {
				er.Requester(r)
			}
			if tc.active != "" {
				er.Active(tc.active, noon)
			}
			if tc.now.IsZero() {
				tc.now = noon.Add(-time.Hour)
			}
			tc.stored.write(&er.Status)
			got := deadlineOf(er.Obj(), tc.pod, tc.learnt, tc.now, process.Policy{DeadlineMargin: tc.margin, HardNotice: 10 * time.Second})
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(deadline{})); diff != "" {
				t.Errorf("deadline (-want +got):\n%s", diff)
			}
			got.write(&er.Status)
			if (er.Status.Deadline == nil) != tc.want.at.IsZero() || er.Status.DeadlineSource != tc.want.source {
				t.Errorf("status has %s of %q", er.Status.Deadline, er.Status.DeadlineSource)
			}
		})
	}
}

// Who was cut off is told once: in the condition, in one event, and as the end of one turn.
func TestWhatACutOffTells(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	a, b, c := "a.example.com", "b.example.com", "c.example.com"
	cases := map[string]struct {
		over        time.Duration
		transitions []process.Transition
		want        string
		turns       []string
	}{
		"one was at work, and two had no turn": {
			transitions: []process.Transition{
				{Name: a, From: process.Active, To: process.Interrupted}, {Name: b, To: process.Interrupted}, {Name: c, To: process.Interrupted},
			},
			want:  "The deadline of requester spot.example.com leaves the interceptors until 2026-05-04T12:00:00Z: a.example.com was not done, and b.example.com, c.example.com got no turn.",
			turns: []string{"turn cut_off"},
		},
		"one was just done": {
			transitions: []process.Transition{{Name: a, From: process.Active, To: process.Completed}, {Name: b, To: process.Interrupted}},
			want:        "The deadline of requester spot.example.com leaves the interceptors until 2026-05-04T12:00:00Z: b.example.com got no turn.",
			turns:       []string{"turn completed"},
		},
		"it was over before": {
			over:        time.Minute,
			transitions: []process.Transition{{Name: a, To: process.Interrupted}},
			want: "The deadline of requester spot.example.com leaves the interceptors until 2026-05-04T12:00:00Z: a.example.com got no turn." +
				" The time asked for was over 1m0s ago, so the interceptors were given a moment: the clock of the requester may be wrong, or the pod's grace period is longer than it waits.",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors(a, b, c).Deadline("spot.example.com", noon).Obj()
			decision := process.Decision{
				CutOff: true, Participants: []process.Participant{{Name: a}, {Name: b}, {Name: c}},
				Transitions: append(tc.transitions, process.Transition{Name: v1alpha1.ImperativeEvictionInterceptor, To: process.Active}),
			}
			decision.Participants = append(decision.Participants, process.Participant{Name: v1alpha1.ImperativeEvictionInterceptor})
			noteCutOff(er, decision, tc.over, noon)
			if diff := cmp.Diff(tc.want, messageOf(er, v1alpha1.ConditionCutOff)); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
			want := []events.Event{events.DeadlineReached(tc.want)}
			if tc.transitions[0].To == process.Completed {
				want = append([]events.Event{events.InterceptorCompleted(a)}, want...)
			}
			if diff := cmp.Diff(want, announcements(er, process.OutcomeRunning, decision, process.Policy{})); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			m := &metricsLog{}
			account(m, er, process.Snapshot{}, decision, "", noon)
			if diff := cmp.Diff(tc.turns, m.told); diff != "" {
				t.Errorf("metrics were told (-want +got):\n%s", diff)
			}
		})
	}
}

// The API refuses a condition with a message of more than 4096 characters, for good.
func TestTheMessageOfACutOffIsNeverTooLong(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	decision := process.Decision{CutOff: true}
	for i := range v1alpha1.MaxPodInterceptors {
		decision.Transitions = append(decision.Transitions, process.Transition{
			Name: fmt.Sprintf("%s%02d.example.com", strings.Repeat("a.", 119), i), To: process.Interrupted,
		})
	}
	er := builder.EvictionRequest("shop", "db-0", "uid-1").Deadline("spot.example.com", noon).Obj()
	for range 2 { // A second time after an EvictionBudget.
		noteCutOff(er, decision, time.Hour, noon)
		if message := messageOf(er, v1alpha1.ConditionCutOff); len(message) > v1alpha1.MaxMessageLength || !strings.HasSuffix(message, "...") {
			t.Errorf("%d characters: %q", len(message), message)
		}
	}
}
