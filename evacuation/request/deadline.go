package request

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// deadline is what status.deadline says: when the interceptors have to be done, for whom.
type deadline struct {
	// at is zero if there is no deadline.
	at     time.Time
	source string
	// over is how long it was over before the interceptors could learn of it, 0 if it was
	// not.
	over time.Duration
}

// Deadlines are those that stand elsewhere in the API, and the losses of nodes, which end
// turns as well.
type Deadlines interface {
	// Of are the deadlines of a pod that its request does not have itself.
	Of(ctx context.Context, er *v1alpha1.EvictionRequest, pod *corev1.Pod) ([]translate.Learnt, error)
	// NodeLoss is the loss of the node of that name. Empty is none.
	NodeLoss(ctx context.Context, node string) (translate.NodeLoss, error)
	// Start is a source.Func: it wakes the controller when one changes.
	Start(ctx context.Context, queue controllers.Queue) error
}

// deadlineOf is the earliest deadline, less what the pod then takes to terminate: callers
// that delete at their time leave it that (Karpenter: the NodeClaim's time less the pod's
// grace period), so the eviction has to come before. What is stored stays if the pod is not
// known, and once its last interceptor has the turn: from then on it tells why.
//
// A requester of type Hard, and a deadline that is over when it is first seen, leave
// HardNotice from then on. So a requester whose clock is wrong cannot take all time away.
func deadlineOf(er *v1alpha1.EvictionRequest, pod *corev1.Pod, learnt []translate.Learnt, now time.Time, p process.Policy) deadline {
	stored := deadline{at: timeOf(er.Status.Deadline), source: er.Status.DeadlineSource}
	if pod == nil || pods.HasEnded(pod) || len(er.Status.ActiveInterceptors) > 0 && er.Status.ActiveInterceptors[0] == v1alpha1.ImperativeEvictionInterceptor {
		return stored
	}
	first := deadline{}
	notice := whole(now.Add(p.HardNotice))
	earliest := func(at time.Time, source string) {
		d := deadline{at: at, source: source}
		known := stored.source == source
		if at.Before(now) && (!known || !stored.at.Equal(at)) {
			d.at, d.over = notice, now.Sub(at)
			if known && stored.at.Before(notice) {
				d.at = stored.at
			}
		}
		if first.at.IsZero() || d.at.Before(first.at) {
			first = d
		}
	}
	// since is a time after a source is first seen. From then on it is stored.
	since := func(source string, after time.Duration) time.Time {
		if stored.source == source {
			return stored.at
		}
		return whole(now.Add(after))
	}
	before := p.DeadlineMargin + graceOf(er, pod)
	for _, requester := range er.Spec.Requesters {
		source := "requester " + requester.Name
		if requester.Type == v1alpha1.RequesterHard {
			source += ", type Hard"
			earliest(since(source, p.HardNotice), source)
		}
		if requester.Deadline != nil {
			earliest(whole(requester.Deadline.Add(-before)), source)
		}
	}
	for _, d := range learnt {
		at := whole(d.At.Add(-before))
		if d.At.IsZero() {
			at = since(d.Source, d.After-before)
		}
		earliest(at, d.Source)
	}
	return first
}

// whole is a time as the API keeps it: in whole seconds, and of this epoch.
func whole(at time.Time) time.Time {
	if earliest := time.Unix(1, 0); at.Before(earliest) {
		return earliest
	}
	return at.Truncate(time.Second)
}

// graceOf is how long the pod may take to terminate: the longest that is asked for.
func graceOf(er *v1alpha1.EvictionRequest, pod *corev1.Pod) time.Duration {
	var wishes []*int64
	for _, requester := range er.Spec.Requesters {
		wishes = append(wishes, requester.GracePeriodSeconds)
	}
	grace := translate.OwnGrace(pod)
	if longest := translate.LongestGrace(grace, wishes...); longest != nil {
		grace = *longest
	}
	return time.Duration(max(0, min(grace, maxGrace))) * time.Second
}

// maxGrace bounds a grace period, in seconds (some use the largest number there is): with
// a century, a deadline is over.
const maxGrace = int64(100 * 365 * 24 * 3600)

// write stores it in the status.
func (d deadline) write(status *v1alpha1.EvictionRequestStatus) {
	if d.at.Equal(timeOf(status.Deadline)) && d.source == status.DeadlineSource {
		return
	}
	status.Deadline, status.DeadlineSource = nil, d.source
	if !d.at.IsZero() {
		status.Deadline = new(metav1.NewTime(d.at))
	}
}

// noteCutOff records in the request itself that the deadline has ended the interceptors'
// time.
func noteCutOff(er *v1alpha1.EvictionRequest, d process.Decision, over time.Duration, now time.Time) {
	if !d.CutOff {
		return
	}
	// Before that, a budget may have had the turn.
	noteMore(er, v1alpha1.ConditionCutOff, v1alpha1.ReasonDeadlineReached, cutOffMessage(er, d, over), d.ObservedGeneration, now)
}

// noteMore sets a condition, or adds to its message.
func noteMore(er *v1alpha1.EvictionRequest, condition, reason, message string, generation int64, now time.Time) {
	if before := messageOf(er, condition); before != "" {
		message = before + " " + message
	}
	er.Status.Conditions = withRoom(er.Status.Conditions)
	meta.SetStatusCondition(&er.Status.Conditions, metav1.Condition{
		Type: condition, Status: metav1.ConditionTrue, Reason: reason,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Message: text.Cut(message, v1alpha1.MaxMessageLength), // Fifteen names may be longer than the API takes.
	})
}

// cutOffMessage says whose deadline has come, and what that has cost whom. A deadline that
// was over when it was first seen is one that the requester's clock may be wrong about.
func cutOffMessage(er *v1alpha1.EvictionRequest, d process.Decision, over time.Duration) string {
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
		er.Status.DeadlineSource, stamp(er.Status.Deadline), strings.Join(lost, ", and "))
	if over > 0 {
		message += fmt.Sprintf(" The time asked for was over %s ago, so the interceptors were given a moment: the clock of the requester may be wrong, or the pod's grace period is longer than it waits.", over.Round(time.Second))
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
