package request

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// t0 is the start of every case.
var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const imperative = v1alpha1.ImperativeEvictionInterceptor

// newRequest is a request nobody has looked at yet.
func newRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", "uid-1").UID("er-1").Created(t0).Requesters("drain.example.com").Generation(1)
}

// planned is one that has been looked at: a.example.com is active.
func planned() *builder.EvictionRequestWrapper {
	return newRequest().Observed().Interceptors("a.example.com").Active("a.example.com", t0)
}

func TestDecode(t *testing.T) {
	present := process.Target{Presence: process.Present}
	tests := map[string]struct {
		request *v1alpha1.EvictionRequest
		planned []process.Participant
		seen    observation
		want    process.Snapshot
	}{
		"a new request has its plan and nobody active": {
			request: newRequest().Obj(),
			planned: []process.Participant{{Name: "a.example.com"}, {Name: imperative, LastResort: true}},
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1,
				Planned: []process.Participant{{Name: "a.example.com"}, {Name: imperative, LastResort: true}},
			},
		},
		"the active one has its times and what was seen of them": {
			request: planned().Generation(4).Heartbeat("a.example.com", t0.Add(time.Minute)).Obj(),
			seen:    observation{heartbeatSeenAt: t0.Add(time.Minute + time.Second)},
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 4, ObservedGeneration: 1,
				Participants: []process.Participant{
					{Name: "a.example.com", State: process.Active, ActivatedAt: t0, HeartbeatAt: t0.Add(time.Minute), HeartbeatSeenAt: t0.Add(time.Minute + time.Second)},
					{Name: imperative, LastResort: true},
				},
			},
		},
		"without an activation time the creation stands in": {
			request: func() *v1alpha1.EvictionRequest {
				er := planned().Obj()
				er.Status.ActivationTime = nil
				return er
			}(),
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1, ObservedGeneration: 1,
				Participants: []process.Participant{
					{Name: "a.example.com", State: process.Active, ActivatedAt: t0},
					{Name: imperative, LastResort: true},
				},
			},
		},
		"a processed one with a completion has completed, without it was interrupted": {
			request: newRequest().Observed().Interceptors("a.example.com", "b.example.com").
				Completed("b.example.com", t0).Processed("a.example.com", "b.example.com").Active(imperative, t0).Obj(),
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1, ObservedGeneration: 1,
				Participants: []process.Participant{
					{Name: "a.example.com", State: process.Interrupted},
					{Name: "b.example.com", State: process.Completed, CompletedAt: t0},
					{Name: imperative, LastResort: true, State: process.Active, ActivatedAt: t0},
				},
			},
		},
		"the last processed one of a canceled request was canceled": {
			request: newRequest().Observed().Interceptors("a.example.com", "b.example.com").
				Processed("a.example.com", "b.example.com").Canceled(v1alpha1.ReasonNoRequesters, t0).Obj(),
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1, ObservedGeneration: 1,
				Outcome: process.OutcomeCanceled, Cause: process.NoIntent,
				Participants: []process.Participant{
					{Name: "a.example.com", State: process.Interrupted},
					{Name: "b.example.com", State: process.Canceled},
					{Name: imperative, LastResort: true},
				},
			},
		},
		"the end of the target was seen": {
			request: newRequest().Obj(),
			seen:    observation{endSeenAt: t0},
			want: process.Snapshot{
				Target:  process.Target{Presence: process.Present, EndSeenAt: t0},
				Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1,
			},
		},
		"Evicted counts before Canceled": {
			request: newRequest().Canceled(v1alpha1.ReasonNoRequesters, t0).Evicted(v1alpha1.ReasonPodTerminal, t0).Obj(),
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1,
				Outcome: process.OutcomeEvicted, Cause: process.TargetTerminal,
			},
		},
		"a foreign condition is no outcome": {
			request: newRequest().Condition("Stale", "Silent", t0).Obj(),
			want: process.Snapshot{
				Target: present, Intents: []string{"drain.example.com"}, CreatedAt: t0, Generation: 1,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := decode(tc.request, present, tc.planned, tc.seen, time.Time{})
			// Builders differ in whether a heartbeat brings its start along.
			ignore := cmpopts.IgnoreFields(process.Participant{}, "StartedAt")
			if diff := cmp.Diff(tc.want, got, ignore, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("snapshot (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeConditions(t *testing.T) {
	tests := map[string]struct {
		outcome process.Outcome
		cause   process.Cause
		want    metav1.Condition
	}{
		"51: not found": {process.OutcomeCanceled, process.TargetNotFound, metav1.Condition{
			Type: "Canceled", Reason: "ValidationFailed", Message: "Target Pod web-1 was not found.",
		}},
		"52: another UID is named": {process.OutcomeCanceled, process.TargetMismatch, metav1.Condition{
			Type: "Canceled", Reason: "ValidationFailed",
			Message: "Target Pod web-1 was not found. The pod of that name has UID uid-2, the request names UID uid-1.",
		}},
		"53: a member of a group": {process.OutcomeCanceled, process.TargetGrouped, metav1.Condition{
			Type: "Canceled", Reason: "ValidationFailed",
			Message: "Target Pod web-1 is part of a Workload/PodGroup. Eviction of such pods is currently not supported.",
		}},
		"90: terminal": {process.OutcomeEvicted, process.TargetTerminal, metav1.Condition{
			Type: "Evicted", Reason: "PodTerminal", Message: "Pod has reached terminal state",
		}},
		"91: deleted": {process.OutcomeEvicted, process.TargetDeleted, metav1.Condition{
			Type: "Evicted", Reason: "PodDeleted", Message: "Target pod has been deleted",
		}},
		"92: no requesters": {process.OutcomeCanceled, process.NoIntent, metav1.Condition{
			Type: "Canceled", Reason: "NoRequesters", Message: "Nobody wants the pod evicted any more, so it stays: the list of requesters is empty",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			er := newRequest().Obj()
			encode(er, process.Decision{Outcome: tc.outcome, Cause: tc.cause, ObservedGeneration: 7},
				facts{now: t0.Add(1500 * time.Millisecond), foundUID: "uid-2"})
			tc.want.Status = metav1.ConditionTrue
			tc.want.ObservedGeneration = 7
			tc.want.LastTransitionTime = metav1.NewTime(t0.Add(time.Second))
			if diff := cmp.Diff([]metav1.Condition{tc.want}, er.Status.Conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeStatus(t *testing.T) {
	decide := func(er *v1alpha1.EvictionRequest, target process.Target, at time.Duration) process.Decision {
		return process.Step(decode(er, target, plan([]string{"a.example.com"}, deadlines{}.of), observation{}, time.Time{}), t0.Add(at), process.DefaultPolicy())
	}
	present := process.Target{Presence: process.Present}
	tests := map[string]struct {
		request *v1alpha1.EvictionRequest
		target  process.Target
		at      time.Duration
		node    string
		want    v1alpha1.EvictionRequestStatus
	}{
		"62, 64, 65: the first look fills the lists": {
			request: newRequest().Obj(), target: present, at: 300 * time.Millisecond, node: "n1",
			want: v1alpha1.EvictionRequestStatus{
				ObservedGeneration: 1,
				NodeName:           "n1",
				TargetInterceptors: []v1alpha1.Interceptor{{Name: "a.example.com"}, {Name: imperative}},
				Interceptors:       []v1alpha1.InterceptorStatus{{Name: "a.example.com"}, {Name: imperative}},
				ActiveInterceptors: []string{"a.example.com"},
				ActivationTime:     new(metav1.NewTime(t0)),
			},
		},
		"67: a switch moves the names in one go and leaves the reports alone": {
			request: planned().Completed("a.example.com", t0).Obj(), target: present, at: time.Minute, node: "n1",
			want: v1alpha1.EvictionRequestStatus{
				ObservedGeneration:    1,
				NodeName:              "n1",
				TargetInterceptors:    []v1alpha1.Interceptor{{Name: "a.example.com"}, {Name: imperative}},
				Interceptors:          []v1alpha1.InterceptorStatus{{Name: "a.example.com", CompletionTime: new(metav1.NewTime(t0))}, {Name: imperative}},
				ActiveInterceptors:    []string{imperative},
				ActivationTime:        new(metav1.NewTime(t0.Add(time.Minute))),
				ProcessedInterceptors: []string{"a.example.com"},
			},
		},
		"the node stays as it was first seen": {
			request: planned().NodeName("n1").Obj(), target: present, at: time.Minute, node: "n2",
			want: v1alpha1.EvictionRequestStatus{
				ObservedGeneration: 1,
				NodeName:           "n1",
				TargetInterceptors: []v1alpha1.Interceptor{{Name: "a.example.com"}, {Name: imperative}},
				Interceptors:       []v1alpha1.InterceptorStatus{{Name: "a.example.com"}, {Name: imperative}},
				ActiveInterceptors: []string{"a.example.com"},
				ActivationTime:     new(metav1.NewTime(t0)),
			},
		},
		"92: the end leaves nobody active": {
			request: func() *v1alpha1.EvictionRequest {
				er := planned().Obj()
				er.Spec.Requesters = nil
				return er
			}(), target: present, at: time.Minute,
			want: v1alpha1.EvictionRequestStatus{
				ObservedGeneration:    1,
				TargetInterceptors:    []v1alpha1.Interceptor{{Name: "a.example.com"}, {Name: imperative}},
				Interceptors:          []v1alpha1.InterceptorStatus{{Name: "a.example.com"}, {Name: imperative}},
				ProcessedInterceptors: []string{"a.example.com"},
				Conditions: []metav1.Condition{{
					Type: "Canceled", Status: "True", ObservedGeneration: 1, Reason: "NoRequesters", Message: "Nobody wants the pod evicted any more, so it stays: the list of requesters is empty",
					LastTransitionTime: metav1.NewTime(t0.Add(time.Minute)),
				}},
			},
		},
		"54: a refusal fills no list": {
			request: newRequest().Obj(), target: process.Target{Presence: process.Gone},
			want: v1alpha1.EvictionRequestStatus{
				ObservedGeneration: 1,
				Conditions: []metav1.Condition{{
					Type: "Canceled", Status: "True", ObservedGeneration: 1, Reason: "ValidationFailed", Message: "Target Pod web-1 was not found.",
					LastTransitionTime: metav1.NewTime(t0),
				}},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := decide(tc.request, tc.target, tc.at)
			encode(tc.request, d, facts{now: t0.Add(tc.at), nodeName: tc.node})
			tc.want.Summary = v1alpha1.Summarize(tc.request)
			if diff := cmp.Diff(tc.want, tc.request.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// A final condition must survive whatever is written later (statements 39, 93).
func TestEncodeLeavesAFinalConditionAlone(t *testing.T) {
	er := planned().Processed("a.example.com").Evicted(v1alpha1.ReasonPodDeleted, t0).Generation(3).Obj()
	er.Status.ActiveInterceptors, er.Status.ActivationTime = nil, nil
	want := er.DeepCopy()
	want.Status.ObservedGeneration = 3
	want.Status.Summary = v1alpha1.Summarize(want)

	d := process.Step(decode(er, process.Target{}, nil, observation{}, time.Time{}), t0.Add(time.Hour), process.DefaultPolicy())
	encode(er, d, facts{now: t0.Add(time.Hour), nodeName: "n2"})
	if diff := cmp.Diff(want.Status, er.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestPlan(t *testing.T) {
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf("i%d.example.com", i)
	}
	tests := map[string]struct {
		interceptors []string
		want         []string
	}{
		"63: nobody leaves the default one": {nil, []string{imperative}},
		"62: the order is kept, the default one is last": {
			[]string{"b.example.com", "a.example.com"}, []string{"b.example.com", "a.example.com", imperative},
		},
		"25: a name counts once": {
			[]string{"a.example.com", "b.example.com", "a.example.com"}, []string{"a.example.com", "b.example.com", imperative},
		},
		"12: the default one cannot be moved": {
			[]string{imperative, "a.example.com"}, []string{"a.example.com", imperative},
		},
		"R1: at most 15 and the default one": {many, append(append([]string{}, many[:15]...), imperative)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range plan(tc.interceptors, deadlines{"b.example.com": time.Hour}.of) {
				got = append(got, p.Name)
				if last := p.Name == imperative; p.LastResort != last {
					t.Errorf("%s is the last resort: %v", p.Name, p.LastResort)
				}
				if want := (deadlines{"b.example.com": time.Hour})[p.Name]; p.HeartbeatDeadline != want {
					t.Errorf("%s may be silent for %s, want %s", p.Name, p.HeartbeatDeadline, want)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// What encode writes, decode reads back: random requests are driven by reports
// and time, and after every step the object must say exactly what was decided.
func TestDecodeReadsWhatEncodeWrote(t *testing.T) {
	outcomes := map[process.Outcome]int{}
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		names := plan([]string{"a.example.com", "b.example.com", "c.example.com"}[:random.IntN(4)], deadlines{"b.example.com": 5 * time.Minute}.of)
		er, now, target := newRequest().Obj(), t0, process.Target{Presence: process.Present}
		var seen observed
		for step := range 20 {
			ended := target.Presence != process.Present || target.Terminal
			s := decode(er, target, names, seen.observe(er, ended, now), time.Time{})
			d := process.Step(s, now, process.DefaultPolicy())
			encode(er, d, facts{now: now, nodeName: "n1", foundUID: "uid-2"})

			read := decode(er, target, names, observation{}, time.Time{})
			got := process.Decision{
				Participants: read.Participants, Outcome: read.Outcome, Cause: read.Cause, ObservedGeneration: read.ObservedGeneration,
			}
			if diff := cmp.Diff(storable(d), got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d, step %d: decision (-want +got):\n%s", seed, step, diff)
			}
			now = now.Add(time.Duration(random.IntN(1500)) * time.Second)
			disturb(random, er, &target, now)
		}
		o, _ := decodeOutcome(er.Status.Conditions)
		outcomes[o]++
	}
	for _, o := range []process.Outcome{process.OutcomeRunning, process.OutcomeEvicted, process.OutcomeCanceled} {
		if outcomes[o] < 10 {
			t.Errorf("only %d of 500 random requests ended as %s", outcomes[o], o)
		}
	}
}

// storable leaves out what the API has no place for.
func storable(d process.Decision) process.Decision {
	for i := range d.Participants {
		d.Participants[i].HeartbeatSeenAt = time.Time{}
		if d.Participants[i].State != process.Active {
			d.Participants[i].ActivatedAt = time.Time{}
		}
	}
	if d.Cause == process.TargetMismatch || d.Cause == process.TargetGrouped {
		d.Cause = process.TargetNotFound
	}
	d.Transitions, d.Changed, d.WakeAt = nil, false, time.Time{}
	return d
}

func disturb(random *rand.Rand, er *v1alpha1.EvictionRequest, target *process.Target, now time.Time) {
	report := func(change func(*v1alpha1.InterceptorStatus)) {
		for i := range er.Status.Interceptors {
			if active := er.Status.ActiveInterceptors; len(active) > 0 && er.Status.Interceptors[i].Name == active[0] {
				change(&er.Status.Interceptors[i])
			}
		}
	}
	switch random.IntN(24) {
	case 0, 1, 2, 3, 4, 5, 6, 7:
		report(func(s *v1alpha1.InterceptorStatus) { s.HeartbeatTime = new(metav1.NewTime(now)) })
	case 8, 9, 10, 11:
		report(func(s *v1alpha1.InterceptorStatus) { s.CompletionTime = new(metav1.NewTime(now)) })
	case 12:
		er.Spec.Requesters, er.Generation = nil, er.Generation+1
	case 13:
		*target = process.Target{Presence: process.Presence(1 + random.IntN(3)), Terminal: random.IntN(2) == 0}
	}
}
