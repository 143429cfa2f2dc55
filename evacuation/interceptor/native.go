package interceptor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// nativeTurn reads a responder's turn from an Eviction of Kubernetes. Only the status
// counts: the label with the role is for those who search, and may come later.
func nativeTurn(ev *lifecyclev1alpha1.Eviction, key string) turn {
	state, report := stateOf(ev, key), nativeReport(ev, key)
	switch {
	case ev.Spec.Target.Pod == nil, state == "", state == lifecyclev1alpha1.ResponderStateInactive,
		state == lifecyclev1alpha1.ResponderStateCompleted, report.CompletionTime != nil:
		return noTurn
	case hasEnded(ev, lifecyclev1alpha1.EvictionConditionTargetEvicted):
		if state == lifecyclev1alpha1.ResponderStateActive || !startedAfter(ev, report.StartTime) {
			return podGone
		}
		return noTurn // It was passed over, and others had the turn.
	case ev.DeletionTimestamp != nil, state == lifecyclev1alpha1.ResponderStateCanceled,
		hasEnded(ev, lifecyclev1alpha1.EvictionConditionFailed):
		return calledOff
	case state == lifecyclev1alpha1.ResponderStateActive:
		return active
	default:
		return passedOver
	}
}

// hasEnded reports whether a final condition is there.
func hasEnded(ev *lifecyclev1alpha1.Eviction, condition lifecyclev1alpha1.EvictionConditionType) bool {
	return meta.IsStatusConditionTrue(ev.Status.Conditions, string(condition))
}

// startedAfter reports whether a responder has had its turn after that time. Turns that are
// passed over are 20 minutes apart, so whole seconds will do.
func startedAfter(ev *lifecyclev1alpha1.Eviction, at *metav1.Time) bool {
	return slices.ContainsFunc(ev.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool {
		return at != nil && r.StartTime != nil && r.StartTime.After(at.Time)
	})
}

// stateOf is empty if it is no responder of this Eviction.
func stateOf(ev *lifecyclev1alpha1.Eviction, key string) lifecyclev1alpha1.ResponderStateType {
	for i := range ev.Status.TargetResponders {
		if r := &ev.Status.TargetResponders[i]; r.Name == key {
			return r.State
		}
	}
	return ""
}

// nativeReport is a responder's report, empty if there is none.
func nativeReport(ev *lifecyclev1alpha1.Eviction, key string) lifecyclev1alpha1.ResponderStatus {
	for _, r := range ev.Status.Responders {
		if r.Name == key {
			return r
		}
	}
	return lifecyclev1alpha1.ResponderStatus{}
}

// decodeNative reads what an Eviction says about a responder. The startTime is the
// controller's, so before the first heartbeat it is no start of ours.
func decodeNative(ev *lifecyclev1alpha1.Eviction, key string) *request {
	q := &request{
		Version:   ev.ResourceVersion,
		Turn:      nativeTurn(ev, key),
		Target:    Target{Native: true, Request: client.ObjectKeyFromObject(ev), RequestUID: ev.UID},
		Evicted:   hasEnded(ev, lifecyclev1alpha1.EvictionConditionTargetEvicted),
		Revocable: true,
		OfPod:     true,
	}
	if pod := ev.Spec.Target.Pod; pod != nil {
		q.Key = types.NamespacedName{Namespace: ev.Namespace, Name: string(pod.UID)}
		q.Target.Pod, q.Target.PodUID = types.NamespacedName{Namespace: ev.Namespace, Name: pod.Name}, pod.UID
	}
	report := nativeReport(ev, key)
	q.Start = timeOf(report.StartTime)
	q.Item = item{HeartbeatAt: timeOf(report.HeartbeatTime), ExpectedFinishAt: timeOf(report.ExpectedCompletionTime), CompletedAt: timeOf(report.CompletionTime)}
	if !q.Item.HeartbeatAt.IsZero() {
		q.Item.StartedAt = q.Start
	}
	if report.Message != nil {
		q.Item.Message = *report.Message
	}
	if q.Turn == active {
		q.Target.ActivatedAt = q.Start
	}
	for _, r := range ev.Status.Requesters {
		if r.Intent == lifecyclev1alpha1.RequesterIntentEviction {
			q.Target.Requesters = append(q.Target.Requesters, r.Name)
		}
	}
	return q
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// choose chooses which of a pod's Evictions counts: one after the other is made for a pod,
// and each may have one turn. Active is the oldest one, otherwise the latest turn counts. It
// returns nil if no turn has begun.
func choose(of []*request) *request {
	begun := slices.DeleteFunc(of, func(q *request) bool { return q.Start.IsZero() })
	if len(begun) == 0 {
		return nil
	}
	return slices.MinFunc(begun, func(a, b *request) int {
		first, second := a.Turn == active, b.Turn == active
		switch {
		case first && second:
			return cmp.Or(a.Start.Compare(b.Start), byName(a, b))
		case first:
			return -1
		case second:
			return 1
		default:
			return cmp.Or(b.Start.Compare(a.Start), byName(b, a))
		}
	})
}

// byName compares the names of two Evictions, which usually have a number: pod-2-web.
func byName(a, b *request) int {
	x, y := a.Target.Request.Name, b.Target.Request.Name
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
}

// nativeKeyProblems says what the API server would refuse of a responder's key
// (kubernetes: pkg/apis/core/validation, evictionResponders).
func nativeKeyProblems(key string) []string {
	prefix, _, found := strings.Cut(key, "/")
	if !found {
		return []string{"must have a domain as prefix, such as db.example.com/checkpoint"}
	}
	problems := slices.Concat(validation.IsQualifiedName(key), validation.IsDNS1123Subdomain(prefix))
	if key == v1alpha1.NativeResponder {
		problems = append(problems, "belongs to Drawbridge")
	}
	for _, reserved := range []string{"k8s.io", "kubernetes.io"} {
		if prefix == reserved || strings.HasSuffix(prefix, "."+reserved) {
			problems = append(problems, reserved+" and its subdomains are reserved for Kubernetes")
		}
	}
	return slices.Compact(problems)
}
