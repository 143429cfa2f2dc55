package request

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// lostAt is from when on the node counts as lost. One that was lost stays so until it is Ready
// again: if its condition goes from False to Unknown, no other minute begins.
func lostAt(er *v1alpha1.EvictionRequest, loss translate.NodeLoss, now time.Time) time.Time {
	if loss.At.After(now) && meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionNodeLost) {
		return now
	}
	return loss.At
}

// noteLost records in the request itself that the node of its pod is lost, whom that has cost
// a turn, and that the node is back. What it says of a pod that has ended stays.
func noteLost(er *v1alpha1.EvictionRequest, d process.Decision, f facts) {
	stored := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionNodeLost)
	known := stored != nil && stored.Status == metav1.ConditionTrue
	condition := metav1.Condition{
		Type: v1alpha1.ConditionNodeLost, ObservedGeneration: d.ObservedGeneration, LastTransitionTime: metav1.NewTime(f.now.Truncate(time.Second)),
	}
	switch {
	case !f.nodeSeen || d.Outcome != process.OutcomeRunning, known && d.Lost && len(d.PassedOver) == 0, !known && !d.Lost:
		return
	case !d.Lost:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonNodeBack
		condition.Message = fmt.Sprintf("Node %s is back. From now on nobody is passed over because of it; who was stays so.", er.Status.NodeName)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonNodeUnreachable
		condition.Message = fmt.Sprintf("Node %s is lost: %s.", er.Status.NodeName, f.loss.Why)
		if known {
			condition.Message = stored.Message
		}
		condition.Message = text.Cut(condition.Message+passedOverMessage(d), v1alpha1.MaxMessageLength)
	}
	er.Status.Conditions = withRoom(er.Status.Conditions)
	meta.SetStatusCondition(&er.Status.Conditions, condition)
}

// passedOverMessage says in a sentence who has lost a turn because of the node, and who
// gets none.
func passedOverMessage(d process.Decision) string {
	if len(d.PassedOver) == 0 {
		return ""
	}
	return " Passed over because of that: " + strings.Join(d.PassedOver, ", ") + "."
}

// lostAnnouncements are the events about it.
func lostAnnouncements(before, after *v1alpha1.EvictionRequest) []events.Event {
	now := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionNodeLost)
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionNodeLost)
	switch {
	case now == nil, was != nil && was.Status == now.Status && was.Message == now.Message:
		return nil
	case now.Status == metav1.ConditionTrue:
		return []events.Event{events.NodeLost(now.Message)}
	default:
		return []events.Event{events.NodeBack(now.Message)}
	}
}

// passedOver reports whether an interceptor has lost its turn, or gets none, because the node
// is lost.
func passedOver(d process.Decision, interceptor string) bool {
	return slices.Contains(d.PassedOver, interceptor)
}
