package builder

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Scheme has the kinds of Kubernetes and of our group.
func Scheme(tb testing.TB) *runtime.Scheme {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatalf("add to scheme: %v", err)
		}
	}
	return scheme
}

// Series are the series of a counter or a gauge that are not 0, by the values of their
// labels in the order of the labels' names.
func Series(tb testing.TB, registry prometheus.Gatherer, name string) map[string]float64 {
	tb.Helper()
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	series := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			if value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue(); value != 0 {
				series[strings.Join(labels, " ")] = value
			}
		}
	}
	return series
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
