package evictor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Exhausted are the EvictionBudgets that consent that a pod is deleted although its
// PodDisruptionBudget can never let it go.
type Exhausted interface {
	// Consent is what those of a pod say, whose eviction that PodDisruptionBudget has just
	// refused, and has since that time; zero is now. If it may be deleted, that is on record first,
	// and then remove is called, while nothing else is decided about these budgets.
	Consent(ctx context.Context, er *v1alpha1.EvictionRequest, pod *corev1.Pod, budget string, since time.Time, remove func()) (disruption.Consent, error)
}

// consent asks them, once the API server has refused for that reason, and deletes the pod if they
// let it go. Native Evictions have no record that a budget could refer to.
func (e *Reconciler) consent(ctx context.Context, w *wish, pod *corev1.Pod, last *Attempt, grace *int64) disruption.Consent {
	if e.Exhausted == nil || !w.stored || last.Result != translate.ResultBudgetNever || len(last.Budgets) != 1 {
		return disruption.Consent{}
	}
	c, err := e.Exhausted.Consent(ctx, w.er, pod, last.Budgets[0], reportOf(w.er).StartedAt, func() {
		// The question took its time, and a deletion cannot be undone.
		live, err := e.wishOf(ctx, client.ObjectKeyFromObject(w.er), true)
		if err != nil {
			log.FromContext(ctx).Error(err, "Could not see whether the pod is still to go, will try again", "pod", pod.Name)
		}
		if err != nil || !w.lasts(live) {
			return
		}
		err = e.remove(ctx, target{NamespacedName: client.ObjectKeyFromObject(pod), UID: pod.UID}, deletionGrace(pod, grace))
		last.Answer = e.classified(ctx, pod, err, 1)
	})
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "Could not ask the EvictionBudgets of a pod, will try again", "pod", pod.Name)
		return disruption.Consent{Waits: true}
	case c.Deletes && last.Result != translate.ResultEvicted:
		return disruption.Consent{}
	}
	return c
}

// classified reads the answer to an eviction or a deletion of the pod.
func (e *Reconciler) classified(ctx context.Context, pod *corev1.Pod, err error, budgets int) answer.Answer {
	given := answer.Classify(err, budgets)
	if given.Result != translate.ResultConflict {
		return given
	}
	found, err := getPod(ctx, e.APIReader, client.ObjectKeyFromObject(pod))
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not tell a replaced pod from a conflict, will try again", "pod", pod.Name)
		return given
	}
	given.Result = settleConflict(pod, found)
	return given
}

// deletionGrace is the grace period of a deletion, in seconds, and nil for the pod's own: no
// shorter one, whatever was asked for. With 0 another pod would start before this one has ended.
func deletionGrace(pod *corev1.Pod, asked *int64) *int64 {
	return translate.LongestGrace(translate.OwnGrace(pod), nil, asked)
}

// deleted records that a pod was deleted in spite of its budget.
func (e *Reconciler) deleted(er *v1alpha1.EvictionRequest, pod *corev1.Pod, c disruption.Consent) {
	e.Metrics.Deleted()
	event := events.DeletedDespiteBudget(pod.Name, c.Says)
	events.EmitOnBoth(e.Recorder, er, event)
	for i := range c.Budgets {
		events.Emit(e.Recorder, &c.Budgets[i], events.PodReference(er), event)
	}
}

// newRemove deletes a pod through a client as newCall evicts one: with the UID precondition, once,
// and within the deadline.
func newRemove(calls rest.Interface, deadline time.Duration) callFunc {
	return func(ctx context.Context, target target, gracePeriodSeconds *int64) error {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		return calls.Delete().
			Namespace(target.Namespace).Resource("pods").Name(target.Name).
			Body(&metav1.DeleteOptions{
				GracePeriodSeconds: gracePeriodSeconds,
				Preconditions:      metav1.NewUIDPreconditions(string(target.UID)),
			}).
			MaxRetries(0).
			Do(ctx).
			Error()
	}
}
