package taints

import (
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// deletion is when the taint eviction controller deletes a pod. The zero value is never.
type deletion struct {
	// At is in whole seconds, as the API keeps it.
	At time.Time
	// AtOnce: there is nothing to wait for.
	AtOnce bool
	// Taint is the key of the taint because of which.
	Taint string
}

// deletionOf mirrors kube-controller-manager (kubernetes: pkg/controller/tainteviction,
// processPodOnNode and getMinTolerationTime, and GetMatchingTolerations of
// pkg/apis/core/v1/helper, v1.37.2): each taint uses the first toleration that matches it. A
// taint without one, and a toleration of no seconds, delete the pod at once. If none of them
// has seconds, it stays.
//
// The controller counts from when it first sees a taint that is tolerated for a time only,
// and keeps that schedule when others come. So the taint counts that began first; of those
// that began together, the one with the fewest seconds. A taint begins at its timeAdded, or
// when the pod came to the node (placed), whatever is later. If timeAdded is missing, it
// begins now. Also if that time is over although the pod lives: then the controller has begun
// later, because it was restarted, or because a toleration was changed.
func deletionOf(taints []corev1.Taint, tolerations []corev1.Toleration, placed, now time.Time) deletion {
	first := deletion{}
	var began time.Time
	var shortest time.Duration
	for i := range taints {
		taint := &taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		used := usedFor(taint, tolerations)
		switch {
		case used == nil:
			return deletion{AtOnce: true, Taint: taint.Key}
		case used.TolerationSeconds == nil:
			continue
		case *used.TolerationSeconds <= 0:
			// The controller looks for a taint that nothing tolerates first; the result is the same.
			return deletion{AtOnce: true, Taint: taint.Key}
		}
		start := beginOf(taint, placed, now)
		seconds := time.Duration(min(*used.TolerationSeconds, maxSeconds)) * time.Second
		if first.Taint == "" || start.Before(began) || start.Equal(began) && seconds < shortest {
			first, began, shortest = deletion{Taint: taint.Key}, start, seconds
		}
	}
	if first.Taint == "" {
		return first
	}
	first.At = began.Add(shortest).Truncate(time.Second)
	if !first.At.After(now) {
		first.At = now.Add(shortest).Truncate(time.Second)
	}
	return first
}

// maxSeconds bounds tolerationSeconds: some use the largest number there is, which overflows
// a duration. It is a century.
const maxSeconds = int64(100 * 365 * 24 * 3600)

// beginOf is when the controller can have seen the taint for the pod. A time that is still to
// come is one of a clock that is wrong.
func beginOf(taint *corev1.Taint, placed, now time.Time) time.Time {
	if taint.TimeAdded == nil || taint.TimeAdded.After(now) {
		return now
	}
	if placed.After(taint.TimeAdded.Time) && !placed.After(now) {
		return placed
	}
	return taint.TimeAdded.Time
}

// usedFor is the toleration that the taint uses, nil if there is none. Operators that
// compare numbers are alpha: where they are off, no pod can have them.
func usedFor(taint *corev1.Taint, tolerations []corev1.Toleration) *corev1.Toleration {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(logr.Discard(), taint, true) {
			return &tolerations[i]
		}
	}
	return nil
}

// wish is what to do about the request of a pod.
type wish int

const (
	// wishNothing leaves it as it is.
	wishNothing wish = iota
	// wishJoin requests the eviction until d.At.
	wishJoin
	// wishWithdraw takes that back.
	wishWithdraw
)

// step decides about a request. joined: we are in its list, asked is the deadline of our
// entry.
//
// A deadline that was asked for stays, as the controller's schedule does: without timeAdded
// it would begin again and again. A pod that is deleted at once has no time for interceptors.
func step(d deletion, joined bool, asked time.Time) wish {
	switch {
	case d == (deletion{}) && joined:
		return wishWithdraw
	case !d.At.IsZero() && (!joined || asked.IsZero()):
		return wishJoin
	default:
		return wishNothing
	}
}

// executing are the taints of a node that delete pods, nil if there are none.
func executing(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for i := range node.Spec.Taints {
		if node.Spec.Taints[i].Effect == corev1.TaintEffectNoExecute {
			taints = append(taints, node.Spec.Taints[i])
		}
	}
	return taints
}

// placedAt is when the pod came to its node: when it was scheduled, or made for the node.
func placedAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}
