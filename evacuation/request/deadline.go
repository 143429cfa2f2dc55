package request

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// deadline is what status.deadline says: when the interceptors have to be done, for whom.
type deadline struct {
	// at is zero if no requester has a deadline.
	at        time.Time
	requester string
}

// deadlineOf is the earliest deadline of the requesters, less what the pod then takes to
// terminate: callers that delete at their time leave it that (Karpenter: the NodeClaim's
// time less the pod's grace period), so the eviction has to come before. What is stored
// stays if the pod is not known, and once its last interceptor has the turn: from then on
// it tells why.
func deadlineOf(er *v1alpha1.EvictionRequest, pod *corev1.Pod, margin time.Duration) deadline {
	stored := deadline{at: timeOf(er.Status.Deadline), requester: er.Status.DeadlineRequester}
	if pod == nil || pods.HasEnded(pod) || len(er.Status.ActiveInterceptors) > 0 && er.Status.ActiveInterceptors[0] == v1alpha1.ImperativeEvictionInterceptor {
		return stored
	}
	first := deadline{}
	var wishes []*int64
	for _, requester := range er.Spec.Requesters {
		wishes = append(wishes, requester.GracePeriodSeconds)
		if at := requester.Deadline; at != nil && (first.at.IsZero() || at.Time.Before(first.at)) {
			first = deadline{at: at.Time, requester: requester.Name}
		}
	}
	if first.at.IsZero() {
		return first
	}
	grace := translate.OwnGrace(pod)
	if longest := translate.LongestGrace(grace, wishes...); longest != nil {
		grace = *longest
	}
	// The API keeps whole seconds, and a deadline must be of this epoch.
	first.at = first.at.Add(-time.Duration(max(0, min(grace, maxGrace))) * time.Second).Add(-margin).Truncate(time.Second)
	if earliest := time.Unix(1, 0); first.at.Before(earliest) {
		first.at = earliest
	}
	return first
}

// maxGrace bounds a grace period, in seconds (some use the largest number there is): with
// a century, a deadline is over.
const maxGrace = int64(100 * 365 * 24 * 3600)

// write stores it in the status.
func (d deadline) write(status *v1alpha1.EvictionRequestStatus) {
	if d.at.Equal(timeOf(status.Deadline)) && d.requester == status.DeadlineRequester {
		return
	}
	status.Deadline, status.DeadlineRequester = nil, d.requester
	if !d.at.IsZero() {
		status.Deadline = new(metav1.NewTime(d.at))
	}
}

// noteCutOff records in the request itself that the deadline has ended the interceptors'
// time.
func noteCutOff(er *v1alpha1.EvictionRequest, d process.Decision, now time.Time) {
	if !d.CutOff {
		return
	}
	message := cutOffMessage(er, d)
	if before := messageOf(er, v1alpha1.ConditionCutOff); before != "" {
		message = before + " " + message // Until now, a budget had the turn.
	}
	er.Status.Conditions = withRoom(er.Status.Conditions)
	meta.SetStatusCondition(&er.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionCutOff, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeadlineReached,
		ObservedGeneration: d.ObservedGeneration, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Message: text.Cut(message, v1alpha1.MaxMessageLength), // Fifteen names may be longer than the API takes.
	})
}

// cutOffMessage says whose deadline has come, and what that has cost whom. A deadline that
// was over before anybody began is one that the requester's clock may be wrong about.
func cutOffMessage(er *v1alpha1.EvictionRequest, d process.Decision) string {
	var lost []string
	var late []string
	for _, t := range d.Transitions {
		switch {
		case t.To != process.Interrupted:
		case t.From == process.Active:
			lost = append(lost, t.Name+" was not done")
		default:
			late = append(late, t.Name)
		}
	}
	if len(late) > 0 {
		lost = append(lost, strings.Join(late, ", ")+" got no turn")
	}
	message := fmt.Sprintf("The deadline of %s leaves the interceptors until %s: %s.",
		er.Status.DeadlineRequester, stamp(er.Status.Deadline), strings.Join(lost, ", and "))
	if over := er.CreationTimestamp.Sub(er.Status.Deadline.Time); over > 0 {
		message += fmt.Sprintf(" That was over %s before it was asked for: the clock of the requester may be wrong, or the pod's grace period is longer than it waits.", over)
	}
	return message
}

// cutOffAnnouncements are the events about it.
func cutOffAnnouncements(after *v1alpha1.EvictionRequest, d process.Decision) []events.Event {
	if !d.CutOff {
		return nil
	}
	return []events.Event{events.DeadlineReached(messageOf(after, v1alpha1.ConditionCutOff))}
}
