package webhook

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// maxStale and staleFor bound the memory of calls whose preconditions do not hold. A
	// caller that loops costs one live read in that time.
	maxStale = 4096
	staleFor = 15 * time.Minute
)

// staleCall is a call by name and preconditions.
type staleCall struct {
	namespace, pod  string
	uid             types.UID
	resourceVersion string
}

// staleCalls remembers calls that a live read has shown to be too late.
type staleCalls struct{ seen *cache.LRUExpireCache }

func (s staleCalls) note(c Call) { s.seen.Add(c.stale(), true, staleFor) }

func (s staleCalls) has(c Call) bool {
	if c.byName() {
		return false
	}
	_, ok := s.seen.Get(c.stale())
	return ok
}

func (c Call) stale() staleCall {
	return staleCall{namespace: c.Namespace, pod: c.Pod, uid: c.UID, resourceVersion: c.ResourceVersion}
}

// meets reports whether the preconditions of the call hold for a pod.
func (c Call) meets(pod *corev1.Pod) bool {
	return (c.UID == "" || c.UID == pod.UID) && (c.ResourceVersion == "" || c.ResourceVersion == pod.ResourceVersion)
}
