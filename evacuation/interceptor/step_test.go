package interceptor

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	ourName   = "a.example.com"
	otherName = "b.example.com"
)

// at is so many seconds after noon.
func at(seconds float64) time.Time {
	return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// newRequest begins with a request in which it is ourName's turn.
func newRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", "uid-1").UID("er-1").ResourceVersion("1").Created(at(-60)).
		Requesters("drain.example.com").NodeName("node-1").Interceptors(ourName, otherName).Active(ourName, at(0))
}

func TestSDKTurnOf(t *testing.T) {
	t.Parallel()
	requests := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("drain.example.com").Interceptors(ourName, otherName)
	}
	deleting := newRequest()
	deleting.DeletionTimestamp = &metav1.Time{Time: at(1)}
	unwanted := newRequest()
	unwanted.Spec.Requesters = nil
	empty := newRequest()
	empty.Spec.Target.Pod = nil
	cases := map[string]struct {
		er   *builder.EvictionRequestWrapper
		want turn
	}{
		"no interceptors yet":                     {builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("drain.example.com"), noTurn},
		"nobody is active":                        {requests(), noTurn},
		"another one is active":                   {requests().Active(otherName, at(0)), noTurn},
		"it is active":                            {newRequest(), active},
		"it is active and started":                {newRequest().Started(ourName, at(0)), active},
		"it completed":                            {newRequest().Completed(ourName, at(0)), noTurn},
		"it completed and others follow":          {requests().Processed(ourName).Active(otherName, at(0)).Completed(ourName, at(0)), noTurn},
		"the name is another pod's UID":           {newRequest().Name("uid-2"), noTurn},
		"there is no pod":                         {empty, noTurn},
		"the pod has ended in its turn":           {newRequest().Evicted(v1alpha1.ReasonPodDeleted, at(1)), podGone},
		"it has ended in its turn, which is over": {requests().Processed(ourName).Evicted(v1alpha1.ReasonPodDeleted, at(1)), podGone},
		"it has ended after its completion":       {requests().Processed(ourName).Completed(ourName, at(0)).Evicted(v1alpha1.ReasonPodDeleted, at(1)), noTurn},
		"it has ended before its turn":            {requests().Evicted(v1alpha1.ReasonPodDeleted, at(1)), noTurn},
		"passed over":                             {requests().Processed(ourName).Active(otherName, at(0)), passedOver},
		"passed over, and the pod ended":          {requests().Processed(ourName, otherName).Evicted(v1alpha1.ReasonPodDeleted, at(1)), noTurn},
		"canceled in its turn":                    {requests().Processed(ourName).Canceled(v1alpha1.ReasonNoRequesters, at(1)), calledOff},
		"canceled before its turn":                {requests().Canceled(v1alpha1.ReasonNoRequesters, at(1)), noTurn},
		"canceled after its completion":           {requests().Processed(ourName).Completed(ourName, at(0)).Canceled(v1alpha1.ReasonNoRequesters, at(1)), noTurn},
		"nobody wants it any more":                {unwanted, calledOff},
		"it is being deleted in its turn":         {deleting, calledOff},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := turnOf(tc.er.Obj(), ourName); got != tc.want {
				t.Errorf("turn %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSDKStepCalls(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		in   input
		want call
	}{
		"no turn":                               {input{CanCancel: true}, callNothing},
		"its turn":                              {input{Turn: active}, callEvacuate},
		"its turn after the point of no return": {input{Turn: active, NoReturn: true, CanCancel: true}, callEvacuate},
		"its turn, completed but not seen":      {input{Turn: active, Settled: true}, callNothing},
		"canceled":                              {input{Turn: calledOff, CanCancel: true}, callCancel},
		"canceled, it cannot cancel":            {input{Turn: calledOff}, callNothing},
		"canceled and undone":                   {input{Turn: calledOff, CanCancel: true, Settled: true}, callNothing},
		"canceled after the point of no return": {input{Turn: calledOff, CanCancel: true, NoReturn: true}, callEvacuate},
		"canceled too late for one that cannot": {input{Turn: calledOff, NoReturn: true}, callEvacuate},
		"passed over":                           {input{Turn: passedOver, CanCancel: true}, callCancel},
		"passed over, it cannot cancel":         {input{Turn: passedOver}, callNothing},
		"passed over after the point of no return": {
			input{Turn: passedOver, CanCancel: true, NoReturn: true}, callNothing,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(decision{Call: tc.want}, step(tc.in, at(0))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSDKStepReports(t *testing.T) {
	t.Parallel()
	const interval = 3 * time.Minute
	started := item{StartedAt: at(0), HeartbeatAt: at(0), Message: "copying"}
	expected := started
	expected.ExpectedFinishAt = at(600)
	forbidden := started
	forbidden.Forbidden = true
	cases := map[string]struct {
		item   item
		answer Progress
		turn   turn
		trial  bool
		now    float64
		want   decision
	}{
		"the first time start and heartbeat come together": {
			answer: Progress{Message: "copying", ExpectedFinishTime: at(600.2)}, now: 0.9,
			want: decision{
				Report: &item{StartedAt: at(0), HeartbeatAt: at(0), ExpectedFinishAt: at(601), Message: "copying"},
				WakeAt: at(180),
			},
		},
		"nothing new":                  {item: started, answer: Progress{Message: "copying"}, now: 100, want: decision{WakeAt: at(180)}},
		"nothing new, it looks sooner": {item: started, answer: Progress{Message: "copying", CheckAfter: 30 * time.Second}, now: 100, want: decision{WakeAt: at(130)}},
		"nothing new, it looks later":  {item: started, answer: Progress{Message: "copying", CheckAfter: time.Hour}, now: 100, want: decision{WakeAt: at(180)}},
		"the heartbeat is due": {
			item: started, answer: Progress{Message: "copying"}, now: 180.5,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(180), Message: "copying"}, WakeAt: at(360)},
		},
		"a new message within a minute waits": {
			item: started, answer: Progress{Message: "flushing"}, now: 59.99, want: decision{WakeAt: at(60)},
		},
		"a new message after a minute goes at once": {
			item: started, answer: Progress{Message: "flushing"}, now: 60,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(60), Message: "flushing"}, WakeAt: at(240)},
		},
		"a first estimate is news": {
			item: started, answer: Progress{Message: "copying", ExpectedFinishTime: at(300)}, now: 100,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(100), ExpectedFinishAt: at(300), Message: "copying"}, WakeAt: at(280)},
		},
		"an estimate that trembles is none": {
			item: expected, answer: Progress{Message: "copying", ExpectedFinishTime: at(630)}, now: 100, want: decision{WakeAt: at(180)},
		},
		"an estimate that moves is": {
			item: expected, answer: Progress{Message: "copying", ExpectedFinishTime: at(540)}, now: 100,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(100), ExpectedFinishAt: at(540), Message: "copying"}, WakeAt: at(280)},
		},
		"an estimate that was wrong is replaced": {
			item: expected, answer: Progress{Message: "copying", ExpectedFinishTime: at(630)}, now: 601,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(601), ExpectedFinishAt: at(630), Message: "copying"}, WakeAt: at(781)},
		},
		"an estimate that is given up is taken back": {
			item: expected, answer: Progress{Message: "copying"}, now: 100,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(100), Message: "copying"}, WakeAt: at(280)},
		},
		"an estimate in the past is not reported": {
			answer: Progress{ExpectedFinishTime: at(0)}, now: 0,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(0)}, WakeAt: at(180)},
		},
		"a heartbeat by a clock ahead of ours is waited for": {
			item: item{StartedAt: at(0), HeartbeatAt: at(9)}, answer: Progress{Message: "copying"}, now: 0, want: decision{WakeAt: at(69)},
		},
		"done is told at once, and is no heartbeat": {
			item: expected, answer: Progress{Done: true, Message: "copied", ExpectedFinishTime: at(540)}, now: 10.5,
			want: decision{Settled: true, Report: &item{StartedAt: at(0), HeartbeatAt: at(0), CompletedAt: at(10), Message: "copied"}},
		},
		"to decline is a completion without a start": {
			answer: Progress{Done: true, Message: "not mine"}, now: 0,
			want: decision{Settled: true, Report: &item{CompletedAt: at(0), Message: "not mine"}},
		},
		"the point of no return is told at once, and is no heartbeat": {
			item: expected, answer: Progress{Message: "cutting over", PointOfNoReturn: true}, now: 10,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(0), ExpectedFinishAt: at(600), Message: "copying", Forbidden: true}, WakeAt: at(180)},
		},
		"the point of no return is told with the first heartbeat": {
			answer: Progress{Message: "cutting over", PointOfNoReturn: true}, now: 0,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(0), Message: "cutting over", Forbidden: true}, WakeAt: at(180)},
		},
		"the point of no return is told with each heartbeat": {
			item: forbidden, answer: Progress{Message: "copying"}, now: 180,
			want: decision{Report: &item{StartedAt: at(0), HeartbeatAt: at(180), Message: "copying", Forbidden: true}, WakeAt: at(360)},
		},
		"the point of no return is told with the completion": {
			item: forbidden, answer: Progress{Done: true}, now: 10,
			want: decision{Settled: true, Report: &item{StartedAt: at(0), HeartbeatAt: at(0), CompletedAt: at(10), Forbidden: true}},
		},
		"the trial of a hook forbids nothing": {
			item: started, trial: true, answer: Progress{Message: "copying", PointOfNoReturn: true}, now: 100, want: decision{WakeAt: at(180)},
		},
		"past the point of no return it goes on in silence": {
			item: started, turn: calledOff, answer: Progress{Message: "flushing"}, now: 100, want: decision{WakeAt: at(280)},
		},
		"past the point of no return it is done in silence": {
			item: started, turn: calledOff, answer: Progress{Done: true}, now: 100, want: decision{Settled: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input{Turn: active, Item: tc.item, Revocable: tc.trial, Interval: interval, Answer: &tc.answer}
			if tc.turn != noTurn {
				in.Turn = tc.turn
			}
			if diff := cmp.Diff(tc.want, step(in, at(tc.now))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever an interceptor says and whenever it is asked, also by a clock that
// jumps: no two heartbeats within a minute, none that goes back, start with the
// first one, no estimate in the past, no message that is too long, and while time
// flows no more than the interval between two.
func TestSDKStepNeverBreaksTheRules(t *testing.T) {
	t.Parallel()
	messages := []string{"", "a", "b", strings.Repeat("ä", 5000), "\xff\xfe"}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		interval := time.Minute + time.Duration(random.IntN(600))*time.Second
		now, item := at(random.Float64()), item{}
		for n := range 200 {
			answer := Progress{Message: messages[random.IntN(len(messages))], CheckAfter: time.Duration(random.IntN(200)-20) * time.Second}
			if random.IntN(2) == 0 {
				answer.ExpectedFinishTime = now.Add(time.Duration(random.IntN(4000)-1000) * time.Second / 3)
			}
			d := step(input{Turn: active, Item: item, Interval: interval, Answer: &answer}, now)
			if !d.WakeAt.After(now) {
				t.Fatalf("seed %d, step %d: it wakes at %s, now is %s", seed, n, d.WakeAt, now)
			}
			if r := d.Report; r != nil {
				switch {
				case !item.HeartbeatAt.IsZero() && r.HeartbeatAt.Sub(item.HeartbeatAt) < time.Minute:
					t.Fatalf("seed %d, step %d: heartbeat %s after %s", seed, n, r.HeartbeatAt, item.HeartbeatAt)
				case r.HeartbeatAt.After(now) || now.Sub(r.HeartbeatAt) >= time.Second:
					t.Fatalf("seed %d, step %d: heartbeat %s at %s", seed, n, r.HeartbeatAt, now)
				case item.StartedAt.IsZero() && r.StartedAt != r.HeartbeatAt, !item.StartedAt.IsZero() && r.StartedAt != item.StartedAt:
					t.Fatalf("seed %d, step %d: start %s, before %s", seed, n, r.StartedAt, item.StartedAt)
				case !r.ExpectedFinishAt.IsZero() && r.ExpectedFinishAt.Before(now):
					t.Fatalf("seed %d, step %d: finish %s at %s", seed, n, r.ExpectedFinishAt, now)
				case utf8.RuneCountInString(r.Message) > v1alpha1.MaxMessageLength || !utf8.ValidString(r.Message):
					t.Fatalf("seed %d, step %d: message of %d bytes", seed, n, len(r.Message))
				}
				item = *r
			}
			if latest := item.HeartbeatAt.Add(interval); d.WakeAt.After(latest) && latest.After(now) {
				t.Fatalf("seed %d, step %d: it wakes at %s, a heartbeat is due at %s", seed, n, d.WakeAt, latest)
			}
			switch random.IntN(10) {
			case 0: // The clock is set back.
				now = now.Add(-time.Duration(random.IntN(90)) * time.Second)
			case 1, 2: // An event.
				now = now.Add(time.Duration(random.IntN(70_000)) * time.Millisecond)
			default:
				now = d.WakeAt
			}
		}
	}
}

func TestSDKMessage(t *testing.T) {
	t.Parallel()
	limit := v1alpha1.MaxMessageLength
	cases := map[string]struct{ message, want string }{
		"short":             {"moving", "moving"},
		"just short enough": {strings.Repeat("ä", limit), strings.Repeat("ä", limit)},
		"too long":          {strings.Repeat("ä", limit) + "x", strings.Repeat("ä", limit)},
		"not UTF-8":         {"a\xffb", "a\uFFFDb"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, cutMessage(tc.message)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
