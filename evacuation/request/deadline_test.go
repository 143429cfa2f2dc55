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
	spot, karpenter := "spot.example.com", "karpenter.example.com"
	cases := map[string]struct {
		requesters []v1alpha1.Requester
		pod        *corev1.Pod
		stored     deadline
		active     string
		margin     time.Duration
		want       deadline
	}{
		"nobody has one": {requesters: []v1alpha1.Requester{patient}, pod: pod(30)},
		"the pod has its grace period and the margin less": {
			requesters: []v1alpha1.Requester{patient, asks(spot, noon, nil)}, pod: pod(30), margin: 5 * time.Second,
			want: deadline{noon.Add(-35 * time.Second), spot},
		},
		"the earliest counts": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil), asks(karpenter, noon.Add(-time.Minute), nil), asks("later.example.com", noon.Add(time.Hour), nil)}, pod: pod(0),
			want: deadline{noon.Add(-time.Minute), karpenter},
		},
		"so does the longest grace period that anybody asks for": {
			requesters: []v1alpha1.Requester{asks(spot, noon, ptr.To[int64](10)), {Name: karpenter, GracePeriodSeconds: ptr.To[int64](90)}}, pod: pod(30),
			want: deadline{noon.Add(-90 * time.Second), spot},
		},
		"a shorter one than the pod's does, if all ask for it": {
			requesters: []v1alpha1.Requester{asks(spot, noon, ptr.To[int64](10))}, pod: pod(30),
			want: deadline{noon.Add(-10 * time.Second), spot},
		},
		"it has whole seconds": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(0), margin: 1500 * time.Millisecond,
			want: deadline{noon.Add(-2 * time.Second), spot},
		},
		"the longest grace period there is leaves nothing": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(math.MaxInt64),
			want: deadline{time.Unix(1, 0), spot},
		},
		"a grace period below zero is none": {
			requesters: []v1alpha1.Requester{asks(spot, noon, nil)}, pod: pod(-1),
			want: deadline{noon, spot},
		},
		"a moved one replaces the stored one": {
			requesters: []v1alpha1.Requester{asks(spot, noon.Add(time.Hour), nil)}, pod: pod(0), stored: deadline{noon, spot}, active: "a.example.com",
			want: deadline{noon.Add(time.Hour), spot},
		},
		"a withdrawn one is none": {
			requesters: []v1alpha1.Requester{patient}, pod: pod(0), stored: deadline{noon, spot}, active: "a.example.com",
		},
		"it stays once the last interceptor has its turn": {
			requesters: []v1alpha1.Requester{patient}, pod: pod(0), stored: deadline{noon, spot}, active: v1alpha1.ImperativeEvictionInterceptor,
			want: deadline{noon, spot},
		},
		"it stays when the pod is gone": {
			requesters: []v1alpha1.Requester{patient}, stored: deadline{noon, spot}, active: "a.example.com",
			want: deadline{noon, spot},
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
			tc.stored.write(&er.Status)
			got := deadlineOf(er.Obj(), tc.pod, tc.margin)
			if !got.at.Equal(tc.want.at) || got.requester != tc.want.requester {
				t.Errorf("want %v, got %v", tc.want, got)
			}
			got.write(&er.Status)
			if (er.Status.Deadline == nil) != tc.want.at.IsZero() || er.Status.DeadlineRequester != tc.want.requester {
				t.Errorf("status has %s of %q", er.Status.Deadline, er.Status.DeadlineRequester)
			}
		})
	}
}

// Who was cut off is told once: in the condition, in one event, and as the end of one turn.
func TestWhatACutOffTells(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	a, b, c := "a.example.com", "b.example.com", "c.example.com"
	cases := map[string]struct {
		created     time.Time
		transitions []process.Transition
		want        string
		turns       []string
	}{
		"one was at work, and two had no turn": {
			created: noon.Add(-time.Hour),
			transitions: []process.Transition{
				{Name: a, From: process.Active, To: process.Interrupted}, {Name: b, To: process.Interrupted}, {Name: c, To: process.Interrupted},
			},
			want:  "The deadline of spot.example.com leaves the interceptors until 2026-05-04T12:00:00Z: a.example.com was not done, and b.example.com, c.example.com got no turn.",
			turns: []string{"turn cut_off"},
		},
		"one was just done": {
			created:     noon.Add(-time.Hour),
			transitions: []process.Transition{{Name: a, From: process.Active, To: process.Completed}, {Name: b, To: process.Interrupted}},
			want:        "The deadline of spot.example.com leaves the interceptors until 2026-05-04T12:00:00Z: b.example.com got no turn.",
			turns:       []string{"turn completed"},
		},
		"it was over before": {
			created:     noon.Add(time.Minute),
			transitions: []process.Transition{{Name: a, To: process.Interrupted}},
			want: "The deadline of spot.example.com leaves the interceptors until 2026-05-04T12:00:00Z: a.example.com got no turn." +
				" That was over 1m0s before it was asked for: the clock of the requester may be wrong, or the pod's grace period is longer than it waits.",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := builder.EvictionRequest("shop", "db-0", "uid-1").Created(tc.created).Interceptors(a, b, c).Deadline("spot.example.com", noon).Obj()
			decision := process.Decision{
				CutOff: true, Participants: []process.Participant{{Name: a}, {Name: b}, {Name: c}},
				Transitions: append(tc.transitions, process.Transition{Name: v1alpha1.ImperativeEvictionInterceptor, To: process.Active}),
			}
			decision.Participants = append(decision.Participants, process.Participant{Name: v1alpha1.ImperativeEvictionInterceptor})
			noteCutOff(er, decision, noon)
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
	er := builder.EvictionRequest("shop", "db-0", "uid-1").Created(noon.Add(time.Hour)).Deadline("spot.example.com", noon).Obj()
	for range 2 { // A second time after an EvictionBudget.
		noteCutOff(er, decision, noon)
		if message := messageOf(er, v1alpha1.ConditionCutOff); len(message) > v1alpha1.MaxMessageLength || !strings.HasSuffix(message, "...") {
			t.Errorf("%d characters: %q", len(message), message)
		}
	}
}
