package hook

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// rules are what a generation of a hook says about its attempts.
type rules struct {
	Generation int64
	// Deadline of one attempt, and Retries how many more there are after one that failed.
	Deadline time.Duration
	Retries  int32
	// Continue goes on after the last attempt has failed; else the pod is held.
	Continue bool
}

// state is how far the action of an attempt is.
type state int

const (
	// stateUnknown: nobody has looked.
	stateUnknown state = iota
	stateRunning
	stateDone
	stateFailed
	// stateRefused: it cannot be begun, because the cluster refuses it.
	stateRefused
	// stateLost: nobody knows how it ended, because the process that ran it is gone.
	stateLost
)

// work is what is known of the action of an attempt.
type work struct {
	State state
	// Message is a part of a sentence, for people.
	Message string
	// ETA is when the action expects to be done, zero if unknown.
	ETA time.Time
	// Final: another attempt of this generation would fail the same way.
	Final bool
	// RetryAt is when what is refused may be tried again.
	RetryAt time.Time
	// CheckAfter is after how long to look again; zero leaves it to events.
	CheckAfter time.Duration
}

// input is all that a step depends on.
type input struct {
	Rules rules
	// Run is the record, nil if nothing was begun.
	Run *v1alpha1.HookRun
	// Work of the running attempt.
	Work work
	// Acquired: another attempt may begin now.
	Acquired bool
	// NodeLost: the pod's node is lost, and the hook can do nothing then. So there is no use
	// in another attempt, nor in holding the pod.
	NodeLost bool
	Now      time.Time
}

// what is to be done.
type what int

const (
	// doWait waits for WakeAt, or for the limiter.
	doWait what = iota
	// doRecord writes Run, and then steps again.
	doRecord
	// doWork begins the attempt's action or follows it.
	doWork
	// doHold keeps the pod.
	doHold
	// doPass hands over to the next interceptor.
	doPass
)

// decision is the result of a step.
type decision struct {
	Do  what
	Run v1alpha1.HookRun
	// Stop the action of the attempt before Run is recorded.
	Stop bool
	// Result of the attempt that has ended, for the metrics; empty if none has.
	Result string
	// Message for people, without a period.
	Message string
	WakeAt  time.Time
}

// Results of attempts, which are values of a metric.
const (
	resultSucceeded  = "succeeded"
	resultFailed     = "failed"
	resultDeadline   = "deadline"
	resultLost       = "lost"
	resultUndone     = "undone"
	resultUndoFailed = "undo_failed"
)

// Pauses between attempts: the first one, and the longest.
const (
	firstPause = 10 * time.Second
	lastPause  = 5 * time.Minute
)

// maxFailure is how much of a failure a run keeps.
const maxFailure = 900

// step decides what is next for one pod.
func step(in input) decision {
	if in.Run == nil {
		return in.next(v1alpha1.HookRun{FirstAttempt: 1, Generation: in.Rules.Generation})
	}
	run := *in.Run
	if in.NodeLost && (run.Phase == v1alpha1.HookRetrying || run.Phase == v1alpha1.HookHeld) {
		return decision{Do: doPass, Message: "it failed and the node is lost, so the eviction continues: " + run.Message}
	}
	switch run.Phase {
	case v1alpha1.HookRunning:
		return in.running(run)
	case v1alpha1.HookRetrying:
		if at := run.StartTime.Time; in.Now.Before(at) {
			return decision{Do: doWait, WakeAt: at, Message: fmt.Sprintf("attempt %s failed, the next one follows: %s", in.Rules.ordinal(run), run.Message)}
		}
		return in.next(run)
	case v1alpha1.HookRefused:
		if at := run.StartTime.Time; in.Now.Before(at) {
			return decision{Do: doWait, WakeAt: at, Message: run.Message}
		}
		run.Attempt-- // It was not begun, so it is the same one.
		return in.next(run)
	case v1alpha1.HookHeld:
		if run.Generation == in.Rules.Generation {
			return decision{Do: doHold, Message: run.Message}
		}
		run.FirstAttempt, run.Generation = run.Attempt+1, in.Rules.Generation
		return in.next(run)
	case v1alpha1.HookContinued:
		return decision{Do: doPass, Message: "it failed and the eviction continues: " + run.Message}
	case v1alpha1.HookSucceeded:
		return decision{Do: doPass, Message: strings.TrimSuffix("it is done: "+run.Message, ": ")}
	default: // The undo has begun: this turn is over.
		return decision{Do: doWait, Message: "it is undone"}
	}
}

// next begins the next attempt, if the limiter allows it.
func (in input) next(run v1alpha1.HookRun) decision {
	if !in.Acquired {
		return decision{Do: doWait, Message: "it waits until others have ended"}
	}
	run.Phase, run.Attempt, run.StartTime = v1alpha1.HookRunning, run.Attempt+1, stamp(in.Now)
	return decision{Do: doRecord, Run: run}
}

func (in input) running(run v1alpha1.HookRun) decision {
	w := in.Work
	late := !in.Now.Before(in.Rules.deadline(run))
	switch {
	case w.State == stateDone:
		run.Phase, run.Message = v1alpha1.HookSucceeded, text.Cut(w.Message, maxFailure)
		return decision{Do: doRecord, Run: run, Result: resultSucceeded}
	case w.State == stateFailed:
		return in.failed(run, w.Message, resultFailed, w.Final)
	case w.State == stateRefused:
		run.Phase, run.Message, run.StartTime = v1alpha1.HookRefused, text.OneLine(w.Message, maxFailure), stamp(w.RetryAt.Add(time.Second-1))
		return decision{Do: doRecord, Run: run}
	case w.State == stateLost:
		// Nobody knows how it ended, which is no fault of the hook: it does not count.
		run.FirstAttempt++
		return in.failed(run, "the manager restarted or the hook was changed while it ran", resultLost, false)
	case late:
		message := fmt.Sprintf("it took longer than %s", in.Rules.Deadline)
		if w.Message != "" {
			message += ": " + w.Message
		}
		d := in.failed(run, message, resultDeadline, false)
		d.Stop = true
		return d
	default:
		return decision{Do: doWork, WakeAt: in.Rules.deadline(run), Message: w.Message}
	}
}

// failed records an attempt that has failed.
func (in input) failed(run v1alpha1.HookRun, message, result string, final bool) decision {
	run.Message = text.OneLine(message, maxFailure)
	tries := run.Attempt - run.FirstAttempt + 1
	changed := run.Generation != in.Rules.Generation
	switch {
	case changed:
		// All begins anew, and nothing of what was begun before is left.
		run.FirstAttempt, run.Generation = run.Attempt+1, in.Rules.Generation
		fallthrough
	case tries <= in.Rules.Retries && !final:
		run.Phase, run.StartTime = v1alpha1.HookRetrying, stamp(in.Now.Add(pause(tries)))
	case in.Rules.Continue:
		run.Phase = v1alpha1.HookContinued
	default:
		run.Phase = v1alpha1.HookHeld
	}
	return decision{Do: doRecord, Run: run, Result: result, Stop: changed}
}

// pause is the time between an attempt that failed and the next one.
func pause(tries int32) time.Duration {
	p := firstPause
	for range max(tries, 1) - 1 {
		p = min(2*p, lastPause)
	}
	return p
}

// deadline of a run's attempt.
func (r rules) deadline(run v1alpha1.HookRun) time.Time { return run.StartTime.Add(r.Deadline) }

// ordinal is the attempt of a run among those of its generation: "2 of 3".
func (r rules) ordinal(run v1alpha1.HookRun) string {
	return fmt.Sprintf("%d of %d", max(run.Attempt-run.FirstAttempt+1, 1), r.Retries+1)
}

// stamp is a time as the API stores it.
func stamp(at time.Time) metav1.Time { return metav1.NewTime(at.Truncate(time.Second)) }
