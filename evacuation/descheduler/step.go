package descheduler

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// The annotations that tell the descheduler about evictions that take time. It checks
// only their presence (kubernetes-sigs/descheduler:
// pkg/descheduler/evictions/evictions.go v0.36.0, gate EvictionsInBackground).
const (
	// evictionInProgress is set by the component that does the work. While it is set, the
	// pod counts as being evicted and is not evicted again.
	evictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	// requestEvictOnly must be on the pod before the call: only then does a 429 with
	// our text mean "it has begun", and not "failed, try the next pod".
	requestEvictOnly = "descheduler.alpha.kubernetes.io/request-evict-only"
	// ours is the value of the annotations we set. Others, such as KubeVirt, set them
	// too; annotations with other values are theirs.
	ours = v1alpha1.GroupName
)

// input is the input of step.
type input struct {
	// MarkInProgress and MarkEvictOnly say which annotations to set. A disabled one is
	// only removed.
	MarkInProgress, MarkEvictOnly bool
	// Annotations of the pod.
	Annotations map[string]string
	// Deleting and Terminal are the state of the pod.
	Deleting, Terminal bool
	// Running: an EvictionRequest for the pod runs. Lasting: it will not be over in a
	// moment.
	Running, Lasting bool
	// Marked: we have marked this eviction. If the mark is gone, someone removed it:
	// KubeVirt does so for machines without its own mark, every time.
	Marked bool
	// Intercepted: an eviction of the pod would be delayed.
	Intercepted bool
}

// hint is a change of one annotation: it gets our value or is removed.
type hint struct {
	Annotation string
	Set        bool
}

// step decides which annotations to set and remove. It depends on the state of the
// eviction, never on an attempt (kubevirt/kubevirt#15423).
func step(in input) []hint {
	if in.Deleting {
		// The pod's end frees the descheduler's slot, and writing to a terminating pod is
		// wasted.
		return nil
	}
	var hints []hint
	for _, h := range []struct {
		annotation string
		set, keep  bool
	}{
		{evictionInProgress, in.MarkInProgress && in.Running && in.Lasting && !in.Marked, in.MarkInProgress && in.Running},
		// The descheduler forgets a running eviction when this annotation is removed.
		{requestEvictOnly, in.MarkEvictOnly && in.Intercepted, in.MarkEvictOnly && (in.Intercepted || in.Running)},
	} {
		value, present := in.Annotations[h.annotation]
		switch {
		case !present && h.set && !in.Terminal:
			hints = append(hints, hint{h.annotation, true})
		case present && !h.keep && value == ours:
			hints = append(hints, hint{h.annotation, false})
		}
	}
	return hints
}

// patchOf applies the hints to this pod if its annotations have not changed. Values of
// others stay unchanged.
func patchOf(pod *corev1.Pod, hints []hint) ([]byte, error) {
	ops := []jsonpatch.Op{jsonpatch.TestUID(pod.UID)}
	if len(pod.Annotations) == 0 {
		ops = append(ops,
			jsonpatch.Test("/metadata/annotations", jsonpatch.Null),
			jsonpatch.Add("/metadata/annotations", struct{}{}))
	}
	for _, h := range hints {
		path := jsonpatch.Annotation(h.Annotation)
		if h.Set {
			ops = append(ops, jsonpatch.Test(path, jsonpatch.Null), jsonpatch.Add(path, ours))
		} else {
			ops = append(ops, jsonpatch.Test(path, ours), jsonpatch.Remove(path))
		}
	}
	return jsonpatch.Encode(ops)
}
