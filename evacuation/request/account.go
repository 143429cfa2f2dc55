package request

import (
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// turnsEnded returns how the turns that a decision ends have ended, and those that a lost
// node has cost before they began, in order. unchecked
// is the interceptor whose completion is not confirmed, "" if there is none. The request
// says which of them a person has skipped.
func turnsEnded(er *v1alpha1.EvictionRequest, d process.Decision, unchecked string) []string {
	var ended []string
	for _, transition := range d.Transitions {
		if passedOver(d, transition.Name) {
			ended = append(ended, metrics.TurnNodeLost)
			continue
		}
		if transition.From != process.Active {
			continue
		}
		switch transition.To {
		case process.Completed:
			result := metrics.TurnCompleted
			if transition.Name == unchecked {
				result = metrics.TurnUnchecked
			}
			if v1alpha1.ReportOf(er, transition.Name).SkippedBy != "" {
				result = metrics.TurnSkipped // The interceptor may be stuck, so this does not count as its success.
			}
			ended = append(ended, result)
		case process.Interrupted:
			result := metrics.TurnTimedOut
			switch {
			case d.CutOff:
				result = metrics.TurnCutOff
			case d.Outcome != process.OutcomeRunning:
				result = metrics.TurnCutShort // At the end of the target, which is not its fault.
			}
			ended = append(ended, result)
		case process.Canceled:
			ended = append(ended, metrics.TurnCanceled)
		case process.Active, process.Inactive:
			// Not an end.
		}
	}
	return ended
}

// outcomeOf names the outcome of a decision; empty if there is none.
func outcomeOf(before process.Outcome, d process.Decision) string {
	if d.Outcome == before {
		return ""
	}
	switch d.Cause {
	case process.TargetDeleted, process.TargetTerminal:
		return metrics.OutcomeEvicted
	case process.NoIntent:
		return metrics.OutcomeCanceled
	case process.TargetNotFound, process.TargetMismatch, process.TargetGrouped:
		return metrics.OutcomeRefused
	case process.NoCause:
	}
	return ""
}

// deadlineEnded says what became of the deadline of a pod that is evicted; empty if it had
// none.
func deadlineEnded(er *v1alpha1.EvictionRequest) string {
	switch {
	case er.Status.Deadline == nil:
		return ""
	case messageOf(er, v1alpha1.ConditionShortNotice) != "":
		return metrics.DeadlineTooShort
	case messageOf(er, v1alpha1.ConditionCutOff) != "":
		return metrics.DeadlineCutOff
	default:
		return metrics.DeadlineKept
	}
}

// account counts the results of a decision, after it is written. The request is the
// written one.
func account(m Metrics, er *v1alpha1.EvictionRequest, s process.Snapshot, d process.Decision, unchecked string, now time.Time) {
	for _, result := range turnsEnded(er, d, unchecked) {
		m.TurnEnded(result)
	}
	if outcome := outcomeOf(s.Outcome, d); outcome != "" {
		m.Finished(outcome, now.Sub(s.CreatedAt))
		if result := deadlineEnded(er); outcome == metrics.OutcomeEvicted && result != "" {
			m.DeadlineEnded(result)
		}
	}
}
