package request

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// noteForbidden records in the request itself that it goes on although nobody wants it.
func noteForbidden(er *v1alpha1.EvictionRequest, d process.Decision, now time.Time) {
	if d.Forbidding == "" || messageOf(er, v1alpha1.ConditionCancellationForbidden) != "" {
		return
	}
	er.Status.Conditions = withRoom(er.Status.Conditions)
	meta.SetStatusCondition(&er.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionCancellationForbidden, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPointOfNoReturn,
		ObservedGeneration: d.ObservedGeneration, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Message: fmt.Sprintf("The eviction has no requester left, but it continues: %s is past the point of no return.", d.Forbidding),
	})
}

// forbiddenAnnouncements are the events about it.
func forbiddenAnnouncements(before, after *v1alpha1.EvictionRequest) []events.Event {
	message := messageOf(after, v1alpha1.ConditionCancellationForbidden)
	if message == "" || messageOf(before, v1alpha1.ConditionCancellationForbidden) != "" {
		return nil
	}
	return []events.Event{events.CancellationForbidden(message)}
}
