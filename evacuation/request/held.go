package request

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
)

// A deleted request is gone immediately, unless a finalizer holds it. Then it is
// withdrawn: all work stops (statement 95), and as its name is the pod's UID, no other
// one can replace it until it is gone. A condition of the request says so.

// maxHolders is how many finalizers are named.
const maxHolders = 3

// heldCondition says what holds a request that is being deleted; nil if nothing does,
// or if the request has its outcome and is no longer needed.
func heldCondition(er *v1alpha1.EvictionRequest, d process.Decision, f facts) *metav1.Condition {
	if er.DeletionTimestamp == nil || len(er.Finalizers) == 0 || d.Outcome != process.OutcomeRunning {
		return nil
	}
	return &metav1.Condition{
		Type: v1alpha1.ConditionDeleting, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeldByFinalizers,
		ObservedGeneration: d.ObservedGeneration,
		LastTransitionTime: metav1.NewTime(f.now.Truncate(time.Second)),
		Message: "The request is being deleted, and finalizers hold it: " + holders(er) +
			". Nobody acts on it any more, and no other request for the pod can begin until it is gone.",
	}
}

// holders are the names of the finalizers.
func holders(er *v1alpha1.EvictionRequest) string {
	names := er.Finalizers
	if len(names) > maxHolders {
		return strings.Join(names[:maxHolders], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// heldAnnouncements are the events about a request that has just become held.
func heldAnnouncements(before, after *v1alpha1.EvictionRequest) []events.Event {
	held := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionDeleting)
	if held == nil || meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionDeleting) != nil {
		return nil
	}
	return []events.Event{events.RequestHeld(held.Message)}
}
