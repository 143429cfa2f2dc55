package webhook

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// A caller that evicts by name and gets 429 retries, and does not notice that its pod
// has left and another one has the name (callers.md, section 9). A 404 ends such a loop,
// once: it is recorded in the request of the pod that has left, so that every replica
// knows it, and later calls count as new requests.

// podIsReplacement ends the loop of a caller that asked for the pod that had this
// name before.
func podIsReplacement(in *Input) (Decision, bool) {
	if in.Request != nil && slices.ContainsFunc(in.Request.Spec.Requesters, in.isEntry) {
		return nothing() // It has asked for this pod, too.
	}
	ended := in.untold()
	if ended == nil || !in.asksOn(ended) {
		return nothing()
	}
	if in.Replacement == ReplacementNotFound && in.PodSource != Live {
		// A 404 is final: the caller counts the pod as gone. The replacement may have
		// been bound to the next node of its drain a moment ago.
		return need(NeedLivePod)
	}
	to := in.Pod.Spec.NodeName
	if to != "" && to != ended.Status.NodeName {
		if !in.Node.Known {
			return need(NeedLiveNode)
		}
		if in.drainsItsNode(ended) {
			return nothing()
		}
	}
	left := ended.Status.NodeName
	if in.Replacement == ReplacementTooManyRequests {
		return Decision{Verdict: translate.ReplacementDenied(in.subject()), LeftNode: left}, true
	}
	if !in.LivePredecessor {
		return need(NeedPredecessor)
	}
	return Decision{Action: ActNotifyEnd, Ended: ended, Verdict: translate.ReplacementNotFound(in.subject(), left, to), LeftNode: left}, true
}

// podHasLeft answers a call for a missing pod. The registry would give the same answer,
// but callers that requested the pod get it from us: the successor may exist by the time
// the registry looks the name up, and the answer must be recorded.
func podHasLeft(in *Input) (Decision, bool) {
	ended := in.untold()
	switch {
	case ended == nil, in.Replacement != ReplacementNotFound, !mayKeepName(ended):
		return in.allow(translate.ReasonPodNotFound)
	case !in.LivePredecessor:
		return need(NeedPredecessor)
	default:
		return Decision{Action: ActNotifyEnd, Ended: ended, Verdict: translate.Left(in.subject(), ended.Status.NodeName)}, true
	}
}

// allowLast allows a call that ends the caller's loop, whatever the budgets say: the pod
// is ending. That is recorded if the same caller may meet a successor.
func (in *Input) allowLast(reason translate.Reason) (Decision, bool) {
	decision, ok := in.allowSeen(reason)
	er := in.Request
	if decision.Need == NeedNothing && er != nil && in.Replacement == ReplacementNotFound && in.Call.byName() && keepsName(in.Pod) &&
		slices.ContainsFunc(er.Spec.Requesters, in.isEntry) && !wasNotified(er, in.Call.Caller.Requester) &&
		!meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled) {
		decision.Action, decision.Ended = ActNotifyEnd, er
	}
	return decision, ok
}

// untold is the latest request of a pod of that name that has ended and whose end the
// caller asked for and was not notified of; nil if there is none.
func (in *Input) untold() *v1alpha1.EvictionRequest {
	ended := in.predecessor()
	if in.Own || !in.Call.byName() || in.Replacement == ReplacementEvict || ended == nil || wasNotified(ended, in.Call.Caller.Requester) {
		return nil
	}
	return ended
}

// predecessor is the latest request wanted by the caller for another pod of that name,
// nil if there is none.
func (in *Input) predecessor() (latest *v1alpha1.EvictionRequest) {
	for i := range in.Predecessors {
		er := &in.Predecessors[i]
		if er.Spec.Target.Pod == nil || (in.Pod != nil && er.Spec.Target.Pod.UID == in.Pod.UID) || er.Status.NodeName == "" ||
			!slices.ContainsFunc(er.Spec.Requesters, in.isEntry) ||
			meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled) {
			continue
		}
		if latest == nil || !in.endOf(er).Before(in.endOf(latest)) {
			latest = er
		}
	}
	return latest
}

// entryIn is the caller's entry in a request that has one.
func (in *Input) entryIn(er *v1alpha1.EvictionRequest) v1alpha1.Requester {
	return er.Spec.Requesters[slices.IndexFunc(er.Spec.Requesters, in.isEntry)]
}

// endOf is when the request's pod ended: now, if the controller has not noticed it yet.
func (in *Input) endOf(er *v1alpha1.EvictionRequest) time.Time {
	if c := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionEvicted); c != nil && c.Status == "True" {
		return c.LastTransitionTime.Time
	}
	return in.Now
}

// asksOn reports whether, by its time, the call may come from the loop that requested
// the pod that has left: the lease of that drain is valid. A caller that never loops
// starts again with each call.
//
// On another node the window applies, too. On the same node the drain continues while
// its lease is valid, and a controller may come back to it after any time.
func (in *Input) asksOn(ended *v1alpha1.EvictionRequest) bool {
	if in.Call.Caller.Class.LoopGap() == 0 || (in.entryIn(ended).LeaseName != "" && !in.LeftLease.Stands) {
		return false
	}
	if in.Pod.Spec.NodeName == ended.Status.NodeName && in.Replacement == ReplacementNotFound {
		// Calls for other pods pass eventually, which ends their loops.
		return keepsName(in.Pod)
	}
	return in.Pod.Spec.NodeName != ended.Status.NodeName && in.Now.Sub(in.endOf(ended)) <= in.ReplacementWindow
}

// drainsItsNode reports whether the call belongs to a new drain: of the node that the
// successor runs on, which is another one than that of the predecessor. Without a
// marker nobody drains it. If the successor does not tolerate the markers it was there
// before them, so the drain is younger. If it does, the loop has to be in its rhythm: it
// was heard, and the pod ended, no longer ago than a loop pauses.
func (in *Input) drainsItsNode(ended *v1alpha1.EvictionRequest) bool {
	if in.Node.Gone || len(in.Node.Markers) == 0 {
		return false
	}
	if !translate.ToleratesMarkers(in.Pod.Spec.Tolerations, in.Node.Markers) {
		return true
	}
	gap := in.Call.Caller.Class.LoopGap()
	return in.Now.Sub(in.endOf(ended)) > gap ||
		(!in.LeftLease.HeardAt.IsZero() && in.Now.Sub(in.LeftLease.HeardAt) > in.LeftLease.RenewEvery+gap)
}

// mayKeepName reports whether a successor of the request's pod may have its name. The
// request has the pod's labels.
func mayKeepName(er *v1alpha1.EvictionRequest) bool {
	for _, label := range newNameLabels {
		if _, ok := er.Labels[label]; ok {
			return false
		}
	}
	return true
}

// newNameLabels are on pods of controllers whose pods never get the name of one before.
var newNameLabels = []string{"pod-template-hash", "batch.kubernetes.io/job-name"}

// wasNotified reports whether the requester was notified that the request's pod has ended.
func wasNotified(er *v1alpha1.EvictionRequest, requester string) bool {
	return slices.Contains(notified(er), requester)
}

// notified are the names in v1alpha1.NotifiedAnnotation.
func notified(er *v1alpha1.EvictionRequest) []string {
	value := er.Annotations[v1alpha1.NotifiedAnnotation]
	if value == "" {
		return nil
	}
	return strings.Split(value, ",")
}
