package chaos

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// strayed reports whether a call by name that was let through for the pod before, which
// was ending, has ended this one: no other call can have been let through since.
func (c *checker) strayed(pod *corev1.Pod) bool {
	var born, ending time.Time // When this pod was first seen, and the one before it first seen ending.
	for _, seen := range c.Pods {
		switch {
		case seen.Pod.Name != pod.Name:
		case seen.Pod.UID == pod.UID:
			if born.IsZero() {
				born = seen.At
			}
		case born.IsZero() && seen.Pod.DeletionTimestamp != nil && ending.IsZero():
			ending = seen.At
		case born.IsZero() && seen.Pod.DeletionTimestamp == nil:
			ending = time.Time{} // Another one came between.
		}
	}
	return !ending.IsZero() && c.onlyCalled(pod, born, func(call Call) bool { return call.UID == "" && !call.At.Before(ending.Add(-watchLag)) })
}

// onlyCalled reports whether a call before that time, one for which early is true, was
// let through, and no other one since then that can have ended the pod.
func (c *checker) onlyCalled(pod *corev1.Pod, before time.Time, early func(Call) bool) bool {
	found := false
	for _, call := range c.Calls {
		if call.Name != pod.Name || (call.UID != "" && call.UID != pod.UID) || call.Code/100 == 4 {
			continue
		}
		switch {
		case call.At.Before(before):
			found = found || (call.Code/100 == 2 && early(call))
		case call.At.Before(c.lastSeen(pod.UID)):
			return false
		}
	}
	return found
}

// starting reports whether a call ended the pod that came when it was there and did not
// run yet: no other call can have been let through since then. Others may have asked for
// a request meanwhile.
func (c *checker) starting(pod *corev1.Pod) bool {
	var born, ran time.Time // When it was first seen, not running yet, and when first running.
	for _, seen := range c.Pods {
		switch {
		case seen.Pod.UID != pod.UID || !ran.IsZero():
		case seen.Pod.Status.Phase != corev1.PodPending:
			ran = seen.At
		case born.IsZero():
			born = seen.At
		}
	}
	return !born.IsZero() && c.onlyCalled(pod, ran, func(call Call) bool { return !call.At.Before(born.Add(-watchLag)) })
}

// lastSeen is when the last state of a pod was seen.
func (c *checker) lastSeen(pod types.UID) (at time.Time) {
	for _, seen := range c.Pods {
		if seen.Pod.UID == pod {
			at = seen.At
		}
	}
	return at
}

// watchLag is how much later than the webhooks the observer may see something.
const watchLag = 50 * time.Millisecond
