package evictor

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// PodState is what the evictor knows about the pod to evict.
type PodState int

const (
	// PodUnseen is the zero value: our cache has no such pod. It is gone or not yet
	// seen; the request controller finds out which.
	PodUnseen PodState = iota
	// PodReplaced says that another pod has the name.
	PodReplaced
	// PodRunning says that the pod is to be evicted.
	PodRunning
	// PodTerminating says that the pod is being deleted (statement 81).
	PodTerminating
	// PodTerminal says that the pod has ended by itself.
	PodTerminal
	// PodUnsupported says that it is a DaemonSet's pod or a mirror pod (ruling R13).
	PodUnsupported
	// PodGuarded says that our guard blocks evictions. It opens soon, which is an event
	// of the pod, or it is held.
	PodGuarded
)

// Report is the evictor's own item of status.interceptors. Times have a precision of
// one second; zero means not set.
type Report struct {
	StartedAt   time.Time
	HeartbeatAt time.Time
	Retries     int32
	Message     string
	// Refusal is why the last attempt failed; nil if it did not.
	Refusal *v1alpha1.EvictionRefusal
	// ExpectedAt is from when on the pod is deleted in spite of its budget.
	ExpectedAt time.Time
}

// Attempt is the last attempt of this process. The zero value means none, so the pod is
// tried immediately.
type Attempt struct {
	At time.Time
	answer.Answer
	// Budgets are the names of the budgets that selected the pod, sorted.
	Budgets []string
	// Retries is the number of failed attempts, including those of earlier processes.
	Retries int32
	// Since is the first failed attempt of this process.
	Since time.Time
	// Consent is what EvictionBudgets say of a budget that can never allow.
	Consent disruption.Consent
}

// Action is what to do with the pod now.
type Action int

const (
	// Nothing is the zero value: do nothing until something changes, or until WakeAt.
	Nothing Action = iota
	// Wait says that an attempt was made and the next one is due at WakeAt.
	Wait
	// Call says to call the eviction subresource.
	Call
)

// Policy is the constants of the evictor.
type Policy struct {
	// BackoffMin is the wait after the first failed attempt. It doubles with each
	// further one. Default 5 s (upstream.md A.11).
	BackoffMin time.Duration
	// BackoffMax is the longest wait. Default 15 min (000:L325).
	BackoffMax time.Duration
	// HeartbeatMin is the minimum interval between two heartbeats that the API accepts.
	// 60 s (statement 43).
	HeartbeatMin time.Duration
	// HeartbeatInterval is the interval between heartbeats while waiting. Default 3 min
	// (statement 111, ruling R13).
	HeartbeatInterval time.Duration
	// EndSlack is how long after its grace period a pod counts as stuck. Default 10 s.
	EndSlack time.Duration
	// SettleTime is how long to wait for the pod's end after an attempt that was not
	// refused, before the next attempt. Default 30 s.
	SettleTime time.Duration
	// TimerPlaces is how many of the pods that wait for the same budget are retried
	// when their backoff is over. Those behind them wait for the budget's event: their
	// attempts would be refused like those of the first, and a thousand pods behind one
	// budget would cost a call each every 15 min. Default 10.
	TimerPlaces int
}

// DefaultPolicy returns the constants of KEP-4563 and the rulings.
func DefaultPolicy() Policy {
	return Policy{
		BackoffMin:        5 * time.Second,
		BackoffMax:        15 * time.Minute,
		HeartbeatMin:      time.Minute,
		HeartbeatInterval: 3 * time.Minute,
		EndSlack:          10 * time.Second,
		SettleTime:        30 * time.Second,
		TimerPlaces:       10,
	}
}

// Input is everything that the evictor's decision depends on. It is only valid during
// the evictor's turn, see IsTurn.
type Input struct {
	Pod  PodState
	Item Report
	Last Attempt
	// ActivatedAt is when the evictor got its turn.
	ActivatedAt time.Time
	// EndsBy is when the grace period of a terminating pod is over.
	EndsBy time.Time
	// Finalizers of a terminating pod.
	Finalizers []string
	// Woken: a change of a budget calls for this attempt now.
	Woken bool
	// Behind is how many older requests wait for the same budget, counted up to
	// TimerPlaces.
	Behind int
}

// Decision is what to do, what to report, and when to decide again.
type Decision struct {
	Action Action
	// Trigger belongs to Call.
	Trigger translate.Trigger
	// Report is the item to write, nil if the stored one is right.
	Report *Report
	// WakeAt is when to decide again even if nothing happens; zero means never.
	// It lies after the time given to Step.
	WakeAt time.Time
}

// Messages of the evictor.
const (
	// FailedMessage is the KEP's literal (000:L326, statement 84).
	FailedMessage = "Could not evict a pod due to failing eviction requests, number of retries: %d."
	// unsupportedMessage is the literal of ruling R13.
	unsupportedMessage = "API-initiated eviction of DaemonSet and mirror pods is not supported"
	TerminatingMessage = "The pod is terminating."
	finalizersMessage  = "The pod is terminating; finalizers hold it: %s."
	guardedMessage     = "The guard of the pod is closed."
)

// consentRetry is when to ask EvictionBudgets again that consent and wait for what passes by
// itself.
const consentRetry = time.Minute

// guardRetry is when to check a guarded pod again: one that is held without a label is
// released without an event. It is a check in memory.
const guardRetry = 10 * time.Second

// Step decides what the imperative evictor does with one pod. It is total and
// deterministic. The report is level-triggered: if it was not stored, because of a
// conflict or a crash, it is requested again without an attempt.
func Step(in Input, now time.Time, p Policy) Decision {
	switch in.Pod {
	case PodRunning:
		return tryStep(in, now, p)
	case PodUnsupported:
		return waitStep(in, unsupportedMessage, time.Time{}, now, p)
	case PodTerminating:
		return endStep(in, now, p)
	case PodGuarded:
		d := waitStep(in, guardedMessage, in.turnBegan(now), now, p)
		d.WakeAt = controllers.Earlier(d.WakeAt, now.Add(guardRetry))
		return d
	default:
		return Decision{}
	}
}

// turnBegan is the baseline of reports on things that usually take no time: most pods
// end, and most guards open, soon, without costing a write.
func (in Input) turnBegan(now time.Time) time.Time {
	if in.ActivatedAt.IsZero() {
		return now
	}
	return in.ActivatedAt
}

// tryStep handles a pod that is to be evicted.
func tryStep(in Input, now time.Time, p Policy) Decision {
	switch {
	case in.Woken:
		return Decision{Action: Call, Trigger: translate.TriggerBudget}
	case in.Last.At.IsZero():
		return Decision{Action: Call, Trigger: translate.TriggerFirst}
	}
	pause := in.Last.pause(p)
	due := in.Last.At.Add(pause)
	switch {
	case now.Before(due):
		// After a clock jump, no wait is longer than intended.
		d := Decision{Action: Wait, WakeAt: controllers.Earlier(due, now.Add(pause))}
		d.Report = in.failureReport(now, p)
		return d
	case in.Last.Result.BlockedByBudget() && in.Behind >= p.TimerPlaces:
		// The longer it has waited, the less often it checks whether it is now one of
		// the first.
		d := Decision{Action: Wait, WakeAt: now.Add(min(max(now.Sub(in.Last.Since), p.BackoffMin), p.BackoffMax))}
		d.Report = in.failureReport(now, p)
		return d
	default:
		return Decision{Action: Call, Trigger: translate.TriggerBackoff}
	}
}

// waitStep handles a pod that must be waited for: it reports when the last report is
// older than the heartbeat interval, counted from since if there was none.
func waitStep(in Input, message string, since, now time.Time, p Policy) Decision {
	last := in.Item.HeartbeatAt
	if last.Before(since) {
		last = since
	}
	due := last.Add(p.HeartbeatInterval)
	if now.Before(due) && (!since.IsZero() || in.Item.Message == message) {
		return Decision{WakeAt: controllers.Earlier(due, now.Add(p.HeartbeatInterval))}
	}
	item := in.Item
	item.Message, item.Refusal, item.ExpectedAt = message, nil, time.Time{}
	item.beat(now, p)
	if item == in.Item {
		return Decision{WakeAt: now.Add(p.HeartbeatInterval)}
	}
	return Decision{Report: &item, WakeAt: controllers.Later(item.HeartbeatAt, now).Add(p.HeartbeatInterval)}
}

// endStep handles a pod that terminates. Most end within their grace period and cost no
// write. One that does not is reported with what holds it, at least a minute after the
// previous report.
func endStep(in Input, now time.Time, p Policy) Decision {
	message := terminatingText(in.Finalizers)
	d := waitStep(in, message, in.turnBegan(now), now, p)
	if d.Report != nil || in.EndsBy.IsZero() || in.Item.Message == message {
		return d
	}
	due := in.EndsBy.Add(p.EndSlack)
	if !in.Item.HeartbeatAt.IsZero() {
		due = controllers.Later(due, in.Item.HeartbeatAt.Add(p.HeartbeatMin))
	}
	if now.Before(due) {
		d.WakeAt = controllers.Earlier(d.WakeAt, due)
		return d
	}
	item := in.Item
	item.Message, item.Refusal, item.ExpectedAt = message, nil, time.Time{}
	item.beat(now, p)
	return Decision{Report: &item, WakeAt: controllers.Later(item.HeartbeatAt, now).Add(p.HeartbeatInterval)}
}

// terminatingText names the finalizers that a terminating pod has.
func terminatingText(finalizers []string) string {
	if len(finalizers) == 0 {
		return TerminatingMessage
	}
	return text.Cut(fmt.Sprintf(finalizersMessage, strings.Join(finalizers, ", ")), v1alpha1.MaxMessageLength)
}

// failureReport is the item that reports the last attempt, nil if it is already stored
// or not worth a report.
func (in Input) failureReport(now time.Time, p Policy) *Report {
	item := in.Item
	switch {
	case in.Last.Consent.Deletes && in.Last.Result == translate.ResultEvicted:
		item.Message, item.Refusal, item.ExpectedAt = in.Last.Consent.Says, nil, time.Time{}
	case !in.Last.Result.Failed() || in.Last.Retries < in.Item.Retries:
		return nil
	default:
		item.Retries, item.Message, item.Refusal = in.Last.Retries, fmt.Sprintf(FailedMessage, in.Last.Retries), in.Last.Refusal()
		item.ExpectedAt = in.Last.expectedAt(now)
	}
	if item.Retries == in.Item.Retries && item.Message == in.Item.Message && item.ExpectedAt.Equal(in.Item.ExpectedAt) &&
		equality.Semantic.DeepEqual(item.Refusal, in.Item.Refusal) {
		return nil
	}
	item.beat(now, p)
	return &item
}

// Refusal is why the attempt failed, for the status.
func (l *Attempt) Refusal() *v1alpha1.EvictionRefusal {
	refusal := &v1alpha1.EvictionRefusal{Reason: reasons[l.Result], Message: l.Explain(l.Budgets)}
	if l.Result.BlockedByBudget() {
		refusal.Budgets = slices.Clone(l.Budgets[:min(len(l.Budgets), answer.MaxBudgets)])
		switch {
		case l.Result == translate.ResultBudgetNever:
			known := *l
			known.Detail = "" // It tells how many pods are missing, as if that could help.
			refusal.Message = known.Explain(l.Budgets)
			if l.Consent.Says != "" {
				refusal.Message += " " + l.Consent.Says
			}
			if l.waits() { // Nobody has to do anything.
				refusal.Reason = reasons[translate.ResultBudget]
			}
		case l.Detail != "" && l.Result != translate.ResultSeveralBudgets:
			refusal.Message = strings.TrimRight(l.Detail, ".") + "." // It says how many pods are missing, and the rest stands beside it.
		}
	}
	refusal.Message = text.Cut(refusal.Message, v1alpha1.MaxMessageLength)
	return refusal
}

// waits reports whether the pod will be deleted in spite of its budget.
func (l *Attempt) waits() bool { return l.Result == translate.ResultBudgetNever && l.Consent.Waits }

// expectedAt is from when on the pod is deleted, zero if nobody knows. The API takes no time
// that is over.
func (l *Attempt) expectedAt(now time.Time) time.Time {
	if !l.waits() || !l.Consent.At.After(now) {
		return time.Time{}
	}
	return l.Consent.At.Truncate(time.Second) // As it is stored.
}

// pause is how long to wait after an attempt, never zero. A request that has waited
// long in a budget's queue, with few attempts, does not start over with short pauses;
// for all others the exponent is ahead of the time waited.
func (l *Attempt) pause(p Policy) time.Duration {
	wait := max(backoff(l.Retries, p), min(l.At.Sub(l.Since), p.BackoffMax))
	switch {
	case !l.Result.Failed():
		wait = p.SettleTime
	case l.Result == translate.ResultOwnWebhook:
		wait = p.BackoffMin // A replica's cache is behind by a moment, however often it happens.
	case l.Result == translate.ResultOverloaded:
		wait = max(wait, min(l.RetryAfter, p.BackoffMax))
	case l.waits() && l.Consent.At.IsZero():
		wait = min(wait, consentRetry)
	case l.waits():
		wait = min(wait, l.Consent.At.Sub(l.At))
	}
	return max(wait, time.Millisecond)
}

// backoff is the wait after the n-th failed attempt: BackoffMin, doubled each
// time, at most BackoffMax (statement 85).
func backoff(n int32, p Policy) time.Duration {
	wait := p.BackoffMin
	for ; n > 1 && wait > 0 && wait < p.BackoffMax; n-- {
		wait *= 2
	}
	return min(wait, p.BackoffMax)
}

// Fail counts a failed attempt. The count continues from the larger of the stored one,
// which may be behind, and ours, which is empty after a restart.
func (l *Attempt) Fail(stored int32) {
	l.Retries = max(stored, l.Retries)
	if l.Retries < math.MaxInt32 {
		l.Retries++
	}
	if l.Since.IsZero() {
		l.Since = l.At
	}
}

// beat sets the times of a report: start and heartbeat together the first time
// (ruling R2), later a heartbeat only if the API accepts one (statement 43).
func (i *Report) beat(now time.Time, p Policy) {
	now = now.Truncate(time.Second)
	switch {
	case i.StartedAt.IsZero():
		i.StartedAt, i.HeartbeatAt = now, now
	case now.Sub(i.HeartbeatAt) >= p.HeartbeatMin:
		i.HeartbeatAt = now
	}
}
