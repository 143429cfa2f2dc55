package builder

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Scheme has pods and the kinds of our group.
func Scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatalf("add to scheme: %v", err)
		}
	}
	return scheme
}

// FromAnnotation resolves by the pod's annotation, without any rule: it is for tests of
// components that use a resolver.
type FromAnnotation struct{}

// Resolve never fails.
func (FromAnnotation) Resolve(pod *corev1.Pod) ([]string, error) {
	if value := pod.Annotations[v1alpha1.InterceptorsAnnotation]; value != "" {
		return strings.Split(value, ","), nil
	}
	return nil, nil
}

// NoteLog is a recorder that keeps events as "Kind Reason: note".
type NoteLog struct{ Events []string }

// Eventf keeps an event.
func (l *NoteLog) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	kind := "EvictionRequest"
	if ref, ok := regarding.(*corev1.ObjectReference); ok {
		kind = ref.Kind
	}
	l.Events = append(l.Events, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}
