package events

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestRequestEvents(t *testing.T) {
	beat := time.Date(2026, 5, 4, 12, 0, 0, 0, time.FixedZone("CEST", 7200))
	tests := map[string]struct {
		got, want Event
	}{
		"activated": {
			InterceptorActivated("a.example.com", 1, 3),
			Event{"Normal", "InterceptorActivated", "ActivateInterceptor", "Interceptor a.example.com is active (1 of 3)."},
		},
		"completed": {
			InterceptorCompleted("a.example.com"),
			Event{"Normal", "InterceptorCompleted", "PassOverInterceptor", "Interceptor a.example.com has completed."},
		},
		"skipped by a person": {
			InterceptorSkipped("a.example.com", "alice", "it hangs"),
			Event{"Warning", "InterceptorSkipped", "PassOverInterceptor", "alice skipped interceptor a.example.com, which had not completed: it hangs"},
		},
		"timed out after a heartbeat": {
			InterceptorTimedOut("a.example.com", 20*time.Minute, beat),
			Event{"Warning", "InterceptorTimedOut", "PassOverInterceptor", "Interceptor a.example.com was silent for more than 20m0s and is passed over: its last heartbeat was at 2026-05-04T10:00:00Z."},
		},
		"timed out without one": {
			InterceptorTimedOut("a.example.com", 20*time.Minute, time.Time{}),
			Event{"Warning", "InterceptorTimedOut", "PassOverInterceptor", "Interceptor a.example.com was silent for more than 20m0s and is passed over: it never sent a heartbeat."},
		},
		"evicted":  {Evicted("gone"), Event{"Normal", "Evicted", "FinishEviction", "gone"}},
		"canceled": {Canceled("nobody"), Event{"Normal", "Canceled", "CancelEviction", "nobody"}},
		"refused":  {Refused("no pod"), Event{"Warning", "Canceled", "RefuseEviction", "no pod"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

type call struct {
	Regarding, Related string
	Note               string
}

// recorder keeps what it is told.
type recorder struct{ calls []call }

func (r *recorder) Eventf(regarding, related runtime.Object, _, _, _, note string, args ...any) {
	name := func(o runtime.Object) string {
		switch o := o.(type) {
		case *corev1.ObjectReference:
			return o.Kind + " " + o.Name + " " + string(o.UID)
		case *v1alpha1.EvictionRequest:
			return "EvictionRequest " + o.Name
		}
		return ""
	}
	if note != "%s" || len(args) != 1 {
		panic("the note is used as a format")
	}
	text, _ := args[0].(string)
	r.calls = append(r.calls, call{name(regarding), name(related), text})
}

func TestEmitOnBoth(t *testing.T) {
	er := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-1"}}
	tests := map[string]struct {
		target *v1alpha1.LocalPodReference
		event  Event
		want   []call
	}{
		"request and pod, each related to the other": {
			&v1alpha1.LocalPodReference{Name: "web-1", UID: "uid-1"}, Evicted("100% gone"),
			[]call{{"EvictionRequest uid-1", "Pod web-1 uid-1", "100% gone"}, {"Pod web-1 uid-1", "EvictionRequest uid-1", "100% gone"}},
		},
		"the request alone if it has no pod": {nil, Evicted("gone"), []call{{"EvictionRequest uid-1", "", "gone"}}},
		"nothing to say":                     {&v1alpha1.LocalPodReference{Name: "web-1"}, Event{}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			er.Spec.Target.Pod = tc.target
			var r recorder
			EmitOnBoth(&r, er, tc.event)
			if diff := cmp.Diff(tc.want, r.calls); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongNotesAreCutBetweenCharacters(t *testing.T) {
	var r recorder
	Emit(&r, &v1alpha1.EvictionRequest{}, nil, Evicted("x"+strings.Repeat("ä", 1000)))
	note := r.calls[0].Note
	if len(note) != 1023 || !utf8.ValidString(note) {
		t.Errorf("got %d bytes, valid %t; want 1023 valid bytes", len(note), utf8.ValidString(note))
	}
}

// What happens again must look the same to client-go, whatever version the request
// has by then.
func TestEmitSeriesOnBoth(t *testing.T) {
	er := &v1alpha1.EvictionRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-1", UID: "er-1", ResourceVersion: "7"},
		Spec: v1alpha1.EvictionRequestSpec{
			Target: v1alpha1.EvictionTarget{Pod: &v1alpha1.LocalPodReference{Name: "web-1", UID: "uid-1"}},
		},
	}
	request := corev1.ObjectReference{APIVersion: "drawbridge.dev/v1alpha1", Kind: "EvictionRequest", Namespace: "shop", Name: "uid-1", UID: "er-1"}
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "uid-1"}
	var got referenceRecorder
	EmitSeriesOnBoth(&got, er, Event{Reason: "Blocked"})
	if diff := cmp.Diff(referenceRecorder{{request, pod}, {pod, request}}, got); diff != "" {
		t.Errorf("regarding and related (-want +got):\n%s", diff)
	}

	er.Spec.Target.Pod = nil
	got = nil
	EmitSeriesOnBoth(&got, er, Event{Reason: "Blocked"})
	if diff := cmp.Diff(referenceRecorder{{request, corev1.ObjectReference{}}}, got); diff != "" {
		t.Errorf("without a pod (-want +got):\n%s", diff)
	}
}

// referenceRecorder keeps what events are about, as client-go would compare it.
type referenceRecorder [][2]corev1.ObjectReference

func (r *referenceRecorder) Eventf(regarding, related runtime.Object, _, _, _, _ string, _ ...any) {
	var pair [2]corev1.ObjectReference
	for i, object := range []runtime.Object{regarding, related} {
		if ref, ok := object.(*corev1.ObjectReference); ok && ref != nil {
			pair[i] = *ref
		}
	}
	*r = append(*r, pair)
}
