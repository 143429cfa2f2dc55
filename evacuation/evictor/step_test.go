package evictor

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/translate"
)

var stepTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a time of the tests, in seconds after their start.
func at(seconds int) time.Time { return stepTime.Add(time.Duration(seconds) * time.Second) }

// failed is an attempt that was refused by the budget "web".
func failed(when time.Time, retries int32) Attempt {
	return Attempt{At: when, Since: when, Retries: retries, Budgets: []string{"web"}, Answer: answer.Answer{Result: translate.ResultBudget}}
}

// blocked is why it was refused.
func blocked() *v1alpha1.EvictionRefusal {
	return &v1alpha1.EvictionRefusal{Reason: "EvictionBlocked", Budgets: []string{"web"}, Message: "PodDisruptionBudget web allows no disruption now."}
}

func retriesText(n string) string {
	return "Could not evict a pod due to failing eviction requests, number of retries: " + n + "."
}

func TestEvictStep(t *testing.T) {
	t.Parallel()
	answered := func(r translate.Result, retries int32) Attempt {
		return Attempt{At: at(0), Since: at(0), Retries: retries, Answer: answer.Answer{Result: r}}
	}
	cases := map[string]struct {
		in   Input
		now  time.Time
		want Decision
	}{
		"a running pod is tried at once": {
			in: Input{Pod: PodRunning}, now: at(0),
			want: Decision{Action: Call, Trigger: translate.TriggerFirst},
		},
		"after a restart a blocked pod is tried at once": {
			in:   Input{Pod: PodRunning, Item: Report{StartedAt: at(-900), HeartbeatAt: at(-10), Retries: 7, Message: retriesText("7"), Refusal: blocked()}},
			now:  at(0),
			want: Decision{Action: Call, Trigger: translate.TriggerFirst},
		},
		"the first failure sets start and heartbeat together": {
			in: Input{Pod: PodRunning, Last: failed(at(0), 1)}, now: at(0),
			want: Decision{
				Action: Wait, WakeAt: at(5),
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 1, Message: retriesText("1"), Refusal: blocked()},
			},
		},
		"reported times have a grain of one second": {
			in: Input{Pod: PodRunning, Last: failed(at(0).Add(700*time.Millisecond), 1)}, now: at(0).Add(700 * time.Millisecond),
			want: Decision{
				Action: Wait, WakeAt: at(5).Add(700 * time.Millisecond),
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 1, Message: retriesText("1"), Refusal: blocked()},
			},
		},
		"a failure within 60 s of the heartbeat reports without one": {
			in:  Input{Pod: PodRunning, Last: failed(at(59), 2), Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 1}},
			now: at(59),
			want: Decision{
				Action: Wait, WakeAt: at(69),
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 2, Message: retriesText("2"), Refusal: blocked()},
			},
		},
		"a failure 60 s after the heartbeat comes with the next one": {
			in:  Input{Pod: PodRunning, Last: failed(at(60), 2), Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 1}},
			now: at(60),
			want: Decision{
				Action: Wait, WakeAt: at(70),
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(60), Retries: 2, Message: retriesText("2"), Refusal: blocked()},
			},
		},
		"a heartbeat of the future is not set back when the clock was": {
			in:  Input{Pod: PodRunning, Last: failed(at(0), 2), Item: Report{StartedAt: at(900), HeartbeatAt: at(900), Retries: 1}},
			now: at(0),
			want: Decision{
				Action: Wait, WakeAt: at(10),
				Report: &Report{StartedAt: at(900), HeartbeatAt: at(900), Retries: 2, Message: retriesText("2"), Refusal: blocked()},
			},
		},
		"what is stored already is not reported again": {
			in: Input{
				Pod: PodRunning, Last: failed(at(0), 1),
				Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 1, Message: retriesText("1"), Refusal: blocked()},
			},
			now:  at(1),
			want: Decision{Action: Wait, WakeAt: at(5)},
		},
		"a report that a conflict stopped is made without an attempt": {
			in:  Input{Pod: PodRunning, Last: failed(at(0), 1)},
			now: at(3),
			want: Decision{
				Action: Wait, WakeAt: at(5),
				Report: &Report{StartedAt: at(3), HeartbeatAt: at(3), Retries: 1, Message: retriesText("1"), Refusal: blocked()},
			},
		},
		"a larger count stored by somebody else is left alone": {
			in:   Input{Pod: PodRunning, Last: failed(at(0), 1), Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 3, Message: "x"}},
			now:  at(1),
			want: Decision{Action: Wait, WakeAt: at(5)},
		},
		"the backoff is over": {
			in: Input{Pod: PodRunning, Last: failed(at(0), 3)}, now: at(20),
			want: Decision{Action: Call, Trigger: translate.TriggerBackoff},
		},
		"the backoff is not over": {
			in: Input{Pod: PodRunning, Last: failed(at(0), 3), Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Retries: 3, Message: retriesText("3"), Refusal: blocked()}}, now: at(19),
			want: Decision{Action: Wait, WakeAt: at(20)},
		},
		"a budget's event ignores the rest of the backoff": {
			in: Input{Pod: PodRunning, Last: failed(at(0), 9), Woken: true, Behind: 10}, now: at(1),
			want: Decision{Action: Call, Trigger: translate.TriggerBudget},
		},
		"ten older ones make the timer wait": {
			in:  Input{Pod: PodRunning, Last: failed(at(0), 1), Behind: 10, Item: Report{Retries: 1, Message: retriesText("1"), Refusal: blocked()}},
			now: at(40), want: Decision{Action: Wait, WakeAt: at(80)},
		},
		"the timer of those behind looks again within the longest backoff": {
			in:  Input{Pod: PodRunning, Last: failed(at(0), 1), Behind: 10, Item: Report{Retries: 1, Message: retriesText("1"), Refusal: blocked()}},
			now: at(90000), want: Decision{Action: Wait, WakeAt: at(90900)},
		},
		"nine older ones do not": {
			in: Input{Pod: PodRunning, Last: failed(at(0), 1), Behind: 9}, now: at(40),
			want: Decision{Action: Call, Trigger: translate.TriggerBackoff},
		},
		"who waited in line for long pauses as long": {
			in: Input{Pod: PodRunning, Last: Attempt{
				At: at(400), Since: at(0), Retries: 2, Budgets: []string{"web"}, Answer: answer.Answer{Result: translate.ResultBudget},
			}, Item: Report{Retries: 2, Message: retriesText("2"), Refusal: blocked()}},
			now: at(401), want: Decision{Action: Wait, WakeAt: at(800)},
		},
		"older ones do not matter to a failure that is not the budget's": {
			in: Input{Pod: PodRunning, Last: answered(translate.ResultForbidden, 1), Behind: 10}, now: at(40),
			want: Decision{Action: Call, Trigger: translate.TriggerBackoff},
		},
		"a clock set back does not prolong the wait": {
			in:  Input{Pod: PodRunning, Last: failed(at(100000), 1), Item: Report{Retries: 1, Message: retriesText("1"), Refusal: blocked()}},
			now: at(0), want: Decision{Action: Wait, WakeAt: at(5)},
		},
		"success writes nothing and awaits the end of the pod": {
			in: Input{Pod: PodRunning, Last: answered(translate.ResultEvicted, 0)}, now: at(0),
			want: Decision{Action: Wait, WakeAt: at(30)},
		},
		"a pod that survives its eviction is tried again": {
			in: Input{Pod: PodRunning, Last: answered(translate.ResultEvicted, 0)}, now: at(30),
			want: Decision{Action: Call, Trigger: translate.TriggerBackoff},
		},
		"404 is not a failure": {
			in: Input{Pod: PodRunning, Last: answered(translate.ResultGone, 0)}, now: at(0),
			want: Decision{Action: Wait, WakeAt: at(30)},
		},
		"409 for another UID is not a failure": {
			in: Input{Pod: PodRunning, Last: answered(translate.ResultReplaced, 0)}, now: at(0),
			want: Decision{Action: Wait, WakeAt: at(30)},
		},
		"a stale replica of our webhook is asked again soon": {
			in: Input{Pod: PodRunning, Last: answered(translate.ResultOwnWebhook, 9)}, now: at(5),
			want: Decision{Action: Call, Trigger: translate.TriggerBackoff},
		},
		"an unseen pod is the request controller's": {
			in: Input{Last: failed(at(0), 1)}, now: at(60), want: Decision{},
		},
		"a replaced pod is never evicted": {
			in: Input{Pod: PodReplaced, Woken: true}, now: at(0), want: Decision{},
		},
		"a terminal pod needs nothing": {
			in: Input{Pod: PodTerminal}, now: at(0), want: Decision{},
		},
		"a terminating pod is not evicted and at first costs no write": {
			in: Input{Pod: PodTerminating, ActivatedAt: at(0), Woken: true}, now: at(10),
			want: Decision{WakeAt: at(180)},
		},
		"a pod that terminates for long is reported": {
			in: Input{Pod: PodTerminating, ActivatedAt: at(0)}, now: at(180),
			want: Decision{Report: &Report{StartedAt: at(180), HeartbeatAt: at(180), Message: "The pod is terminating."}, WakeAt: at(360)},
		},
		"a pod within its grace period and a bit more costs no write": {
			in:  Input{Pod: PodTerminating, ActivatedAt: at(0), EndsBy: at(30), Finalizers: []string{"a.example.com/x"}},
			now: at(39), want: Decision{WakeAt: at(40)},
		},
		"a pod that hangs 10 s after its grace period is reported with what holds it": {
			in:  Input{Pod: PodTerminating, ActivatedAt: at(0), EndsBy: at(30), Finalizers: []string{"a.example.com/x", "b.example.com/y"}},
			now: at(40),
			want: Decision{
				Report: &Report{StartedAt: at(40), HeartbeatAt: at(40), Message: "The pod is terminating; finalizers hold it: a.example.com/x, b.example.com/y."},
				WakeAt: at(220),
			},
		},
		"a pod that hangs without finalizers is reported as soon": {
			in:   Input{Pod: PodTerminating, ActivatedAt: at(0), EndsBy: at(30)},
			now:  at(40),
			want: Decision{Report: &Report{StartedAt: at(40), HeartbeatAt: at(40), Message: "The pod is terminating."}, WakeAt: at(220)},
		},
		"the report of the end takes the refusal away": {
			in: Input{
				Pod: PodTerminating, ActivatedAt: at(0), EndsBy: at(300),
				Item: Report{StartedAt: at(0), HeartbeatAt: at(200), Retries: 3, Message: retriesText("3"), Refusal: blocked()},
			},
			now: at(310),
			want: Decision{
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(310), Retries: 3, Message: "The pod is terminating."},
				WakeAt: at(490),
			},
		},
		"other finalizers are told of a minute after the report before": {
			in: Input{
				Pod: PodTerminating, ActivatedAt: at(0), EndsBy: at(30), Finalizers: []string{"b.example.com/y"},
				Item: Report{StartedAt: at(40), HeartbeatAt: at(40), Message: "The pod is terminating; finalizers hold it: a.example.com/x."},
			},
			now: at(50), want: Decision{WakeAt: at(100)},
		},
		"finalizers that are told of already cost a heartbeat every 3 min and no more": {
			in: Input{
				Pod: PodTerminating, ActivatedAt: at(0), EndsBy: at(30), Finalizers: []string{"a.example.com/x"},
				Item: Report{StartedAt: at(40), HeartbeatAt: at(40), Message: "The pod is terminating; finalizers hold it: a.example.com/x."},
			},
			now: at(219), want: Decision{WakeAt: at(220)},
		},
		"the wait for a terminating pod starts with the last heartbeat": {
			in:   Input{Pod: PodTerminating, ActivatedAt: at(0), Item: Report{StartedAt: at(0), HeartbeatAt: at(100), Retries: 3, Message: "x"}},
			now:  at(200),
			want: Decision{WakeAt: at(280)},
		},
		"a DaemonSet's pod is reported at once and never evicted": {
			in: Input{Pod: PodUnsupported, ActivatedAt: at(0), Woken: true}, now: at(0),
			want: Decision{
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(0), Message: "API-initiated eviction of DaemonSet and mirror pods is not supported"},
				WakeAt: at(180),
			},
		},
		"a DaemonSet's pod needs no write before the next heartbeat": {
			in:   Input{Pod: PodUnsupported, Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Message: unsupportedMessage}},
			now:  at(179),
			want: Decision{WakeAt: at(180)},
		},
		"a DaemonSet's pod gets a heartbeat every 3 min": {
			in:  Input{Pod: PodUnsupported, Item: Report{StartedAt: at(0), HeartbeatAt: at(0), Message: unsupportedMessage}},
			now: at(180),
			want: Decision{
				Report: &Report{StartedAt: at(0), HeartbeatAt: at(180), Message: unsupportedMessage},
				WakeAt: at(360),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Step(tc.in, tc.now, DefaultPolicy())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Step (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictStepBlockedForADay plays a budget that never allows anything, with
// every report stored, and checks the gaps (statement 85), the count (84) and
// that the API accepts every write (87).
func TestEvictStepBlockedForADay(t *testing.T) {
	t.Parallel()
	policy := DefaultPolicy()
	in := Input{Pod: PodRunning}
	var attempts []time.Time
	var stored Report
	for now := at(0); now.Before(at(24 * 3600)); {
		d := Step(in, now, policy)
		if d.Action == Call {
			attempts = append(attempts, now)
			before := in.Last
			in.Last = failed(now, before.Retries)
			in.Last.Since = before.Since
			in.Last.Fail(in.Item.Retries)
			d = Step(in, now, policy)
		}
		if r := d.Report; r != nil {
			if r.Retries != stored.Retries+1 {
				t.Fatalf("at %s the count went from %d to %d", now, stored.Retries, r.Retries)
			}
			if gap := r.HeartbeatAt.Sub(stored.HeartbeatAt); !stored.HeartbeatAt.IsZero() && gap != 0 && gap < time.Minute {
				t.Fatalf("at %s the heartbeat moved by %s, which the API rejects", now, gap)
			}
			if !stored.StartedAt.IsZero() && !r.StartedAt.Equal(stored.StartedAt) {
				t.Fatalf("at %s the start moved", now)
			}
			if silence := now.Sub(r.HeartbeatAt); silence >= 20*time.Minute {
				t.Fatalf("at %s it was silent for %s", now, silence)
			}
			stored, in.Item = *r, *r
		}
		if !d.WakeAt.After(now) {
			t.Fatalf("at %s it wants to wake at %s", now, d.WakeAt)
		}
		now = d.WakeAt
	}
	var gaps []time.Duration
	for i := 1; i < len(attempts); i++ {
		gaps = append(gaps, attempts[i].Sub(attempts[i-1]))
	}
	var want []time.Duration
	for _, seconds := range []int{5, 10, 20, 40, 80, 160, 320, 640, 900, 900} {
		want = append(want, time.Duration(seconds)*time.Second)
	}
	if diff := cmp.Diff(want, gaps[:len(want)]); diff != "" {
		t.Errorf("gaps between attempts (-want +got):\n%s", diff)
	}
	if last := gaps[len(gaps)-1]; last != 15*time.Minute {
		t.Errorf("the last gap is %s, want 15m", last)
	}
	if int(stored.Retries) != len(attempts) {
		t.Errorf("%d attempts failed, %d are stored", len(attempts), stored.Retries)
	}
}

// TestEvictStepAfterRestart checks that the exponent resumes from the stored count.
func TestEvictStepAfterRestart(t *testing.T) {
	t.Parallel()
	stored := Report{StartedAt: at(-100), HeartbeatAt: at(-100), Retries: 5, Message: "old"}
	last := failed(at(0), 0)
	last.Fail(stored.Retries)
	got := Step(Input{Pod: PodRunning, Item: stored, Last: last}, at(0), DefaultPolicy())
	want := Decision{
		Action: Wait, WakeAt: at(160),
		Report: &Report{StartedAt: at(-100), HeartbeatAt: at(0), Retries: 6, Message: retriesText("6"), Refusal: blocked()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Step (-want +got):\n%s", diff)
	}
}

func TestEvictBackoffBounds(t *testing.T) {
	t.Parallel()
	policy := Policy{BackoffMin: 7 * time.Second, BackoffMax: 20 * time.Second}
	got := map[int32]time.Duration{}
	for _, n := range []int32{-1, 0, 1, 2, 3, 4, 1 << 30} {
		got[n] = backoff(n, policy)
	}
	want := map[int32]time.Duration{
		-1: 7 * time.Second, 0: 7 * time.Second, 1: 7 * time.Second, 2: 14 * time.Second,
		3: 20 * time.Second, 4: 20 * time.Second, 1 << 30: 20 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("evictBackoff (-want +got):\n%s", diff)
	}
	if got := backoff(1<<30, Policy{}); got != 0 {
		t.Errorf("evictBackoff without a policy is %s, want 0", got)
	}
}

func TestEvictRefusalIsCut(t *testing.T) {
	t.Parallel()
	last := Attempt{Retries: 1, Budgets: []string{"a", "b", "c", "d", "e", "f"}, Answer: answer.Answer{Result: translate.ResultBudget, Detail: strings.Repeat("ä", 9000)}}
	refusal := last.Refusal()
	if n := utf8.RuneCountInString(refusal.Message); n > v1alpha1.MaxMessageLength || !utf8.ValidString(refusal.Message) {
		t.Errorf("the message has %d characters (valid: %t), want at most %d", n, utf8.ValidString(refusal.Message), v1alpha1.MaxMessageLength)
	}
	if diff := cmp.Diff("...", refusal.Message[len(refusal.Message)-3:]); diff != "" {
		t.Errorf("end of the message (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e"}, refusal.Budgets); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
}

func TestAnOverloadedServerIsAskedWhenItWantsToBe(t *testing.T) {
	t.Parallel()
	last := Attempt{At: at(0), Since: at(0), Retries: 1, Answer: answer.Answer{Result: translate.ResultOverloaded, RetryAfter: 7 * time.Second}}
	if pause := last.pause(DefaultPolicy()); pause != 7*time.Second {
		t.Errorf("it is asked again after %s, want 7s", pause)
	}
}
