package descheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// The annotations by which the descheduler learns of evictions that take their
// time. It looks only at their presence (kubernetes-sigs/descheduler:
// pkg/descheduler/evictions/evictions.go v0.36.0, gate EvictionsInBackground).
const (
	// evictionInProgress is set by whoever does the work. While it is there the pod
	// counts as being evicted and is not asked for again.
	evictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	// requestEvictOnly must be on the pod before the call: only then does a 429 with
	// our text mean "it has begun", and not "failed, try the next pod".
	requestEvictOnly = "descheduler.alpha.kubernetes.io/request-evict-only"
	// ours is the value of the annotations we set. Others set them too, KubeVirt
	// for one, and what has another value is theirs.
	ours = v1alpha1.GroupName
)

// input is what step may look at.
type input struct {
	// MarkInProgress and MarkEvictOnly say which of the annotations we are to set. One
	// that is switched off is only removed.
	MarkInProgress, MarkEvictOnly bool
	// Annotations of the pod.
	Annotations map[string]string
	// Deleting and Terminal say how the pod is.
	Deleting, Terminal bool
	// Running: an EvictionRequest for the pod runs. Lasting: it is not one that is over
	// in a moment.
	Running, Lasting bool
	// Told: we have marked this eviction. If the mark is gone, somebody has taken it
	// away: KubeVirt does for machines without its own mark, as often as we set it.
	Told bool
	// Intercepted: an eviction of the pod would be held up.
	Intercepted bool
}

// hint is a change of one annotation: it gets our value, or loses it.
type hint struct {
	Annotation string
	Set        bool
}

// step decides which annotations a pod gets and loses. It depends on the
// state of the eviction, never on an attempt (kubevirt/kubevirt#15423).
func step(in input) []hint {
	if in.Deleting {
		// Its end frees the descheduler's slot, and a write to a pod that goes is wasted.
		return nil
	}
	var hints []hint
	for _, h := range []struct {
		annotation string
		set, keep  bool
	}{
		{evictionInProgress, in.MarkInProgress && in.Running && in.Lasting && !in.Told, in.MarkInProgress && in.Running},
		// The descheduler forgets a running eviction when this one goes.
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

// runsFor reports whether the request runs for this very pod.
func runsFor(er *v1alpha1.EvictionRequest, pod *corev1.Pod) bool {
	return er != nil && er.DeletionTimestamp == nil && !v1alpha1.IsFinished(er) &&
		er.Spec.Target.Pod != nil && er.Spec.Target.Pod.UID == pod.UID
}

// lasting reports whether the eviction takes its time: somebody intercepts it, or
// it was tried and refused. All others are over before the descheduler could see a
// mark, and must not cost a write.
func lasting(er *v1alpha1.EvictionRequest) bool {
	return slices.ContainsFunc(er.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool { return i.Name != v1alpha1.ImperativeEvictionInterceptor }) ||
		v1alpha1.ReportOf(er, v1alpha1.ImperativeEvictionInterceptor).Retries > 0
}

// patchOf applies the hints to the very pod, if its annotations are still as they
// were seen. Values of others stay as they are.
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
