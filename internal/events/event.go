// Package events has Drawbridge's events.k8s.io Events: one constructor per event, each
// returning a value, so that the texts are in one place and tests compare values.
package events

import (
	"fmt"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// maxNoteLength is the largest note in bytes that the API server accepts
// (kubernetes: pkg/apis/core/validation/events.go, NoteLengthLimit).
const maxNoteLength = 1024

// Event is the content of an event. The zero value is no event.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Type string
	// Reason is one word in CamelCase, from a closed set.
	Reason string
	// Action is what was done, one word in CamelCase, from a closed set.
	Action string
	// Note is the sentence for people. It is cut at 1024 bytes.
	Note string
}

// normal is an event of what goes as it should, warning one of what does not.
func normal(reason, action, format string, args ...any) Event {
	return Event{Type: corev1.EventTypeNormal, Reason: reason, Action: action, Note: fmt.Sprintf(format, args...)}
}

func warning(reason, action, format string, args ...any) Event {
	return Event{Type: corev1.EventTypeWarning, Reason: reason, Action: action, Note: fmt.Sprintf(format, args...)}
}

// Emit records the event on regarding; related, which may be nil, is the other
// object it is about. The zero Event is not recorded.
func Emit(recorder events.EventRecorder, regarding, related runtime.Object, e Event) {
	if e == (Event{}) {
		return
	}
	recorder.Eventf(regarding, related, e.Type, e.Reason, e.Action, "%s", truncate(e.Note))
}

// EmitOnBoth records the event twice, on the request and on the pod it targets: people
// may check either. The pod is referenced with its UID, so the event is right even if
// the pod is gone.
func EmitOnBoth(recorder events.EventRecorder, request *v1alpha1.EvictionRequest, e Event) {
	pod := PodReference(request)
	if pod == nil {
		Emit(recorder, request, nil, e)
		return
	}
	Emit(recorder, request, pod, e)
	Emit(recorder, pod, request, e)
}

// EmitSeriesOnBoth is EmitOnBoth for events that may repeat for one request. The API
// shows all of it as one Event per object, with the first note and a count (statement
// 112). EmitOnBoth would begin another Event whenever the request has changed, because
// client-go compares resource versions, too.
func EmitSeriesOnBoth(recorder events.EventRecorder, request *v1alpha1.EvictionRequest, e Event) {
	regarding := &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       "EvictionRequest",
		Namespace:  request.Namespace,
		Name:       request.Name,
		UID:        request.UID,
	}
	pod := PodReference(request)
	if pod == nil {
		Emit(recorder, regarding, nil, e)
		return
	}
	Emit(recorder, regarding, pod, e)
	Emit(recorder, pod, regarding, e)
}

// PodReference returns a reference to the pod that the request targets, or nil if
// it targets none.
func PodReference(request *v1alpha1.EvictionRequest) *corev1.ObjectReference {
	if request.Spec.Target.Pod == nil {
		return nil
	}
	return &corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(),
		Kind:       "Pod",
		Namespace:  request.Namespace,
		Name:       request.Spec.Target.Pod.Name,
		UID:        request.Spec.Target.Pod.UID,
	}
}

// truncate cuts a note at the limit without splitting a character.
func truncate(note string) string {
	if len(note) <= maxNoteLength {
		return note
	}
	end := maxNoteLength
	for end > 0 && !utf8.RuneStart(note[end]) {
		end--
	}
	return note[:end]
}
