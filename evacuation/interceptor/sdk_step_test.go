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
	"github.com/drawbridge-dev/drawbridge/test/builder"
)

const (
	sdkName  = "a.example.com"
	sdkOther = "b.example.com"
)

// sdkAt is so many seconds after noon.
func sdkAt(seconds float64) time.Time {
	return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// sdkRequest begins with a request in which it is sdkName's turn.
func sdkRequest() *builder.EvictionRequestWrapper {
	return builder.EvictionRequest("shop", "web-1", "uid-1").UID("er-1").ResourceVersion("1").Created(sdkAt(-60)).
		Requesters("drain.example.com").NodeName("node-1").Interceptors(sdkName, sdkOther).Active(sdkName, sdkAt(0))
}

func TestSDKTurnOf(t *testing.T) {
	t.Parallel()
	requests := func() *builder.EvictionRequestWrapper {
		return builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("drain.example.com").Interceptors(sdkName, sdkOther)
	}
	deleting := sdkRequest()
	deleting.DeletionTimestamp = &metav1.Time{Time: sdkAt(1)}
	unwanted := sdkRequest()
	unwanted.Spec.Requesters = nil
	empty := sdkRequest()
	empty.Spec.Target.Pod = nil
	cases := map[string]struct {
		er   *builder.EvictionRequestWrapper
		want sdkTurn
	}{
		"no interceptors yet":                     {builder.EvictionRequest("shop", "web-1", "uid-1").Requesters("drain.example.com"), sdkNoTurn},
		"nobody is active":                        {requests(), sdkNoTurn},
		"another one is active":                   {requests().Active(sdkOther, sdkAt(0)), sdkNoTurn},
		"it is active":                            {sdkRequest(), sdkActive},
		"it is active and started":                {sdkRequest().Started(sdkName, sdkAt(0)), sdkActive},
		"it completed":                            {sdkRequest().Completed(sdkName, sdkAt(0)), sdkNoTurn},
		"it completed and others follow":          {requests().Processed(sdkName).Active(sdkOther, sdkAt(0)).Completed(sdkName, sdkAt(0)), sdkNoTurn},
		"the name is another pod's UID":           {sdkRequest().Name("uid-2"), sdkNoTurn},
		"there is no pod":                         {empty, sdkNoTurn},
		"the pod has ended in its turn":           {sdkRequest().Evicted(v1alpha1.ReasonPodDeleted, sdkAt(1)), sdkPodGone},
		"it has ended in its turn, which is over": {requests().Processed(sdkName).Evicted(v1alpha1.ReasonPodDeleted, sdkAt(1)), sdkPodGone},
		"it has ended after its completion":       {requests().Processed(sdkName).Completed(sdkName, sdkAt(0)).Evicted(v1alpha1.ReasonPodDeleted, sdkAt(1)), sdkNoTurn},
		"it has ended before its turn":            {requests().Evicted(v1alpha1.ReasonPodDeleted, sdkAt(1)), sdkNoTurn},
		"passed over":                             {requests().Processed(sdkName).Active(sdkOther, sdkAt(0)), sdkPassedOver},
		"passed over, and the pod ended":          {requests().Processed(sdkName, sdkOther).Evicted(v1alpha1.ReasonPodDeleted, sdkAt(1)), sdkNoTurn},
		"canceled in its turn":                    {requests().Processed(sdkName).Canceled(v1alpha1.ReasonNoRequesters, sdkAt(1)), sdkCalledOff},
		"canceled before its turn":                {requests().Canceled(v1alpha1.ReasonNoRequesters, sdkAt(1)), sdkNoTurn},
		"canceled after its completion":           {requests().Processed(sdkName).Completed(sdkName, sdkAt(0)).Canceled(v1alpha1.ReasonNoRequesters, sdkAt(1)), sdkNoTurn},
		"nobody wants it any more":                {unwanted, sdkCalledOff},
		"it is being deleted in its turn":         {deleting, sdkCalledOff},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sdkTurnOf(tc.er.Obj(), sdkName); got != tc.want {
				t.Errorf("turn %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSDKStepCalls(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		in   sdkInput
		want sdkCall
	}{
		"no turn":                                 {sdkInput{CanCancel: true}, sdkCallNothing},
		"its turn":                                {sdkInput{Turn: sdkActive}, sdkCallEvacuate},
		"its turn after the point of no return":   {sdkInput{Turn: sdkActive, NoReturn: true, CanCancel: true}, sdkCallEvacuate},
		"its turn, completed but not seen":        {sdkInput{Turn: sdkActive, Settled: true}, sdkCallNothing},
		"called off":                              {sdkInput{Turn: sdkCalledOff, CanCancel: true}, sdkCallCancel},
		"called off, it cannot cancel":            {sdkInput{Turn: sdkCalledOff}, sdkCallNothing},
		"called off and undone":                   {sdkInput{Turn: sdkCalledOff, CanCancel: true, Settled: true}, sdkCallNothing},
		"called off after the point of no return": {sdkInput{Turn: sdkCalledOff, CanCancel: true, NoReturn: true}, sdkCallEvacuate},
		"called off too late for one that cannot": {sdkInput{Turn: sdkCalledOff, NoReturn: true}, sdkCallEvacuate},
		"passed over":                             {sdkInput{Turn: sdkPassedOver, CanCancel: true}, sdkCallCancel},
		"passed over, it cannot cancel":           {sdkInput{Turn: sdkPassedOver}, sdkCallNothing},
		"passed over after the point of no return": {
			sdkInput{Turn: sdkPassedOver, CanCancel: true, NoReturn: true}, sdkCallNothing,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(sdkDecision{Call: tc.want}, sdkStep(tc.in, sdkAt(0))); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSDKStepReports(t *testing.T) {
	t.Parallel()
	const interval = 3 * time.Minute
	started := sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(0), Message: "copying"}
	expected := started
	expected.ExpectedFinishAt = sdkAt(600)
	cases := map[string]struct {
		item   sdkItem
		answer Progress
		turn   sdkTurn
		now    float64
		want   sdkDecision
	}{
		"the first time start and heartbeat come together": {
			answer: Progress{Message: "copying", ExpectedFinishTime: sdkAt(600.2)}, now: 0.9,
			want: sdkDecision{
				Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(0), ExpectedFinishAt: sdkAt(601), Message: "copying"},
				WakeAt: sdkAt(180),
			},
		},
		"nothing new":                  {item: started, answer: Progress{Message: "copying"}, now: 100, want: sdkDecision{WakeAt: sdkAt(180)}},
		"nothing new, it looks sooner": {item: started, answer: Progress{Message: "copying", CheckAfter: 30 * time.Second}, now: 100, want: sdkDecision{WakeAt: sdkAt(130)}},
		"nothing new, it looks later":  {item: started, answer: Progress{Message: "copying", CheckAfter: time.Hour}, now: 100, want: sdkDecision{WakeAt: sdkAt(180)}},
		"the heartbeat is due": {
			item: started, answer: Progress{Message: "copying"}, now: 180.5,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(180), Message: "copying"}, WakeAt: sdkAt(360)},
		},
		"a new message within a minute waits": {
			item: started, answer: Progress{Message: "flushing"}, now: 59.99, want: sdkDecision{WakeAt: sdkAt(60)},
		},
		"a new message after a minute goes at once": {
			item: started, answer: Progress{Message: "flushing"}, now: 60,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(60), Message: "flushing"}, WakeAt: sdkAt(240)},
		},
		"a first estimate is news": {
			item: started, answer: Progress{Message: "copying", ExpectedFinishTime: sdkAt(300)}, now: 100,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(100), ExpectedFinishAt: sdkAt(300), Message: "copying"}, WakeAt: sdkAt(280)},
		},
		"an estimate that trembles is none": {
			item: expected, answer: Progress{Message: "copying", ExpectedFinishTime: sdkAt(630)}, now: 100, want: sdkDecision{WakeAt: sdkAt(180)},
		},
		"an estimate that moves is": {
			item: expected, answer: Progress{Message: "copying", ExpectedFinishTime: sdkAt(540)}, now: 100,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(100), ExpectedFinishAt: sdkAt(540), Message: "copying"}, WakeAt: sdkAt(280)},
		},
		"an estimate that was wrong is replaced": {
			item: expected, answer: Progress{Message: "copying", ExpectedFinishTime: sdkAt(630)}, now: 601,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(601), ExpectedFinishAt: sdkAt(630), Message: "copying"}, WakeAt: sdkAt(781)},
		},
		"an estimate that is given up is taken back": {
			item: expected, answer: Progress{Message: "copying"}, now: 100,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(100), Message: "copying"}, WakeAt: sdkAt(280)},
		},
		"an estimate in the past is not reported": {
			answer: Progress{ExpectedFinishTime: sdkAt(0)}, now: 0,
			want: sdkDecision{Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(0)}, WakeAt: sdkAt(180)},
		},
		"a heartbeat by a clock ahead of ours is waited for": {
			item: sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(9)}, answer: Progress{Message: "copying"}, now: 0, want: sdkDecision{WakeAt: sdkAt(69)},
		},
		"done is told at once, and is no heartbeat": {
			item: expected, answer: Progress{Done: true, Message: "copied", ExpectedFinishTime: sdkAt(540)}, now: 10.5,
			want: sdkDecision{Settled: true, Report: &sdkItem{StartedAt: sdkAt(0), HeartbeatAt: sdkAt(0), CompletedAt: sdkAt(10), Message: "copied"}},
		},
		"to decline is a completion without a start": {
			answer: Progress{Done: true, Message: "not mine"}, now: 0,
			want: sdkDecision{Settled: true, Report: &sdkItem{CompletedAt: sdkAt(0), Message: "not mine"}},
		},
		"past the point of no return it goes on in silence": {
			item: started, turn: sdkCalledOff, answer: Progress{Message: "flushing"}, now: 100, want: sdkDecision{WakeAt: sdkAt(280)},
		},
		"past the point of no return it is done in silence": {
			item: started, turn: sdkCalledOff, answer: Progress{Done: true}, now: 100, want: sdkDecision{Settled: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := sdkInput{Turn: sdkActive, Item: tc.item, Interval: interval, Answer: &tc.answer}
			if tc.turn != sdkNoTurn {
				in.Turn = tc.turn
			}
			if diff := cmp.Diff(tc.want, sdkStep(in, sdkAt(tc.now))); diff != "" {
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
		now, item := sdkAt(random.Float64()), sdkItem{}
		for n := range 200 {
			answer := Progress{Message: messages[random.IntN(len(messages))], CheckAfter: time.Duration(random.IntN(200)-20) * time.Second}
			if random.IntN(2) == 0 {
				answer.ExpectedFinishTime = now.Add(time.Duration(random.IntN(4000)-1000) * time.Second / 3)
			}
			d := sdkStep(sdkInput{Turn: sdkActive, Item: item, Interval: interval, Answer: &answer}, now)
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
			if diff := cmp.Diff(tc.want, sdkMessage(tc.message)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
