//go:build unix

package preemption

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Who goes is exactly whom we name: not the pod that the scheduler has chosen, but two that
// it had not, and that together free as much.
func TestTheSchedulerTakesVictimsThatItHadNotChosen(t *testing.T) {
	s := newScene(t, 1)
	protected := s.running(s.pod("protected", s.class("low", 100, "1000"), labeled("protected"), withCPU("800m")))
	s.budget("protected", "1", 0)
	other := s.class("other", 200, "")
	halves := []*corev1.Pod{
		s.running(s.pod("half-a", other, labeled("other"), withCPU("400m"))),
		s.running(s.pod("half-b", other, labeled("other"), withCPU("400m"))),
	}
	important := s.running(s.pod("important", s.class("important", 300, ""), labeled("other"), withCPU("400m")))
	s.budget("other", "3", 0)
	s.settled(append(halves, important)...)

	preemptor := s.running(s.pod("preemptor", s.class("high", 999, ""), withCPU("800m")))
	if diff := cmp.Diff(s.nodes[0], preemptor.Spec.NodeName); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	for _, half := range halves {
		s.gone(half)
	}
	s.lives(protected, important)
}

// Here the preemptor would not fit next to the protected pod whoever else went, or it is
// not certain that it would.
func TestNobodyElseGoesWhereMoreThanResourcesDecides(t *testing.T) {
	plain := func(*builder.PodWrapper) {}
	tests := map[string]struct{ protected, other, preemptor func(*builder.PodWrapper) }{
		"the protected pod wants nobody like the preemptor on its node": {alone("preemptor"), plain, labeled("preemptor")},
		"the protected pod has the port that the preemptor wants":       {withHostPort, plain, withHostPort},
		"the other pod has a port":                                      {plain, withHostPort, plain},
		"the other pod is smaller":                                      {plain, withCPU("900m"), plain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			protected := s.running(s.pod("protected", s.class("low", 100, "1000"), labeled("protected"), tc.protected))
			s.budget("protected", "1", 0)
			other := s.running(s.pod("other", s.class("other", 200, ""), labeled("other"), tc.other))
			s.budget("other", "1", 0)
			s.settled(other)
			preemptor := s.pod("preemptor", s.class("high", 999, ""), tc.preemptor)
			s.pending(preemptor)
			s.told(preemptor)
			s.lives(protected, other)
		})
	}
}

// settled waits until the pods run for long enough to be chosen.
func (s *scene) settled(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		eventually(s.t, "pod "+pod.Name+" to run for some seconds", func(context.Context) error {
			if pod.Status.StartTime == nil {
				s.t.Fatalf("pod %s has no start time", pod.Name)
			}
			if age := time.Since(pod.Status.StartTime.Time); age < 6*time.Second {
				return fmt.Errorf("it runs for %s", age)
			}
			return nil
		})
	}
}

func withHostPort(w *builder.PodWrapper) {
	w.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
}

func alone(app string) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) {
		w.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: app}},
		}}}}
	}
}
