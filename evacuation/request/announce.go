package request

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// announcements returns the events of a decision, in order. They are emitted after the write,
// so only facts are announced. The request is the written one.
func announcements(er *v1alpha1.EvictionRequest, before process.Outcome, d process.Decision, p process.Policy) []events.Event {
	var told []events.Event
	for _, transition := range d.Transitions {
		i := slices.IndexFunc(d.Participants, func(p process.Participant) bool { return p.Name == transition.Name })
		participant := d.Participants[i]
		switch transition.To {
		case process.Active:
			// The evictor's own events announce our own turn immediately. Announcing it here,
			// too, would add two of five events for every pod of a drain.
			if participant.Name != v1alpha1.ImperativeEvictionInterceptor {
				told = append(told, events.InterceptorActivated(participant.Name, i+1, len(d.Participants)))
			}
		case process.Completed:
			if report := v1alpha1.ReportOf(er, participant.Name); report.SkippedBy != "" {
				told = append(told, events.InterceptorSkipped(report.Name, report.SkippedBy, report.Message))
				continue
			}
			told = append(told, events.InterceptorCompleted(participant.Name))
		case process.Interrupted:
			// At the end of the target the active one is cut short, which is not its fault, and a
			// deadline, who is skipped because of it, and a lost node have events of their own.
			if d.Outcome == process.OutcomeRunning && !d.CutOff && transition.From == process.Active && !passedOver(d, transition.Name) {
				told = append(told, events.InterceptorTimedOut(participant.Name, p.DeadlineOf(participant), participant.HeartbeatAt))
			}
		case process.Canceled, process.Inactive:
			// The cancellation itself is announced below.
		}
	}
	told = append(told, cutOffAnnouncements(er, d)...)
	told = append(told, shortAnnouncements(er, d)...)
	if d.Outcome == before {
		return told
	}
	switch d.Cause {
	case process.TargetDeleted, process.TargetTerminal:
		told = append(told, events.Evicted(messageOf(er, v1alpha1.ConditionEvicted)))
	case process.NoIntent:
		told = append(told, events.Canceled(messageOf(er, v1alpha1.ConditionCanceled)))
	case process.TargetNotFound, process.TargetMismatch, process.TargetGrouped:
		told = append(told, events.Refused(messageOf(er, v1alpha1.ConditionCanceled)))
	case process.NoCause:
	}
	return told
}

func messageOf(er *v1alpha1.EvictionRequest, condition string) string {
	if c := meta.FindStatusCondition(er.Status.Conditions, condition); c != nil {
		return c.Message
	}
	return ""
}
