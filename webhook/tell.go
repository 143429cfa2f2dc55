package webhook

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// tell records the events that a call gives rise to besides what it writes, each
// once per pod: the same call comes again every few seconds.
func (h *EvictionHandler) tell(in gathered, decision Decision) {
	if in.Pod == nil {
		return
	}
	if annotation := in.Pod.Annotations[v1alpha1.InterceptorsAnnotation]; annotation != "" && h.firstTime("annotation", in) {
		if _, problems := translate.ParseInterceptors(annotation, h.AllowedReserved...); len(problems) > 0 {
			events.Emit(h.Recorder, podReference(in.Pod), nil, events.InvalidInterceptors(v1alpha1.InterceptorsAnnotation, problems))
		}
	}
	if decision.LeftNode != "" && h.firstTime("replacement", in) {
		events.Emit(h.Recorder, podReference(in.Pod), nil, events.ReplacementSpared(in.Call.Caller.Display, decision.LeftNode))
	}
}

// told is what was told about which pod.
type told struct {
	subject string
	pod     string
}

// firstTime reports, once per pod and a quarter of an hour, that nothing has been
// told on this subject yet.
func (h *EvictionHandler) firstTime(subject string, in gathered) bool {
	key := told{subject: subject, pod: string(in.Pod.UID)}
	if _, known := h.told.Get(key); known {
		return false
	}
	h.told.Add(key, true, DefaultGuardWindow)
	return true
}

func podReference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
