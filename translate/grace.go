package translate

import corev1 "k8s.io/api/core/v1"

// OwnGrace is the pod's own termination grace period, in seconds.
func OwnGrace(pod *corev1.Pod) int64 {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		return *own
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// LongestGrace combines several requested termination grace periods: the largest wins,
// in seconds, and nil means the pod's own. The result is nil if that is the pod's own.
func LongestGrace(own int64, wishes ...*int64) *int64 {
	var longest *int64
	unset := len(wishes) == 0
	for _, wish := range wishes {
		switch {
		case wish == nil:
			unset = true
		case longest == nil || *wish > *longest:
			longest = wish
		}
	}
	if unset && (longest == nil || *longest <= own) {
		return nil
	}
	return longest
}

// CoversGrace reports whether a grace period that is given is as long as the one wanted;
// nil stands for the pod's own.
func CoversGrace(own int64, given, wanted *int64) bool {
	seconds := func(wish *int64) int64 {
		if wish == nil {
			return own
		}
		return *wish
	}
	return seconds(given) >= seconds(wanted)
}
