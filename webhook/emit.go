package webhook

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// emit records the events of a call, besides its writes, each once per pod: the same
// call comes again every few seconds.
func (h *EvictionHandler) emit(in gathered, decision Decision) {
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

// emission is an event that was emitted about a pod.
type emission struct {
	subject string
	pod     string
}

// firstTime reports whether no event on this subject was emitted for the pod within
// DefaultReplacementWindow, and notes that one is.
func (h *EvictionHandler) firstTime(subject string, in gathered) bool {
	key := emission{subject: subject, pod: string(in.Pod.UID)}
	if _, known := h.emitted.Get(key); known {
		return false
	}
	h.emitted.Add(key, true, DefaultReplacementWindow)
	return true
}

func podReference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}
