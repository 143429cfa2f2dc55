//go:build unix

package preemption

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// candidates sets of how many nodes the scheduler is content with.
func candidates(percentage, absolute int) string {
	return fmt.Sprintf(`
profiles:
  - pluginConfig:
      - name: DefaultPreemption
        args:
          minCandidateNodesPercentage: %d
          minCandidateNodesAbsolute: %d
`, percentage, absolute)
}

// The scheduler stops to look for candidates when it has enough of them, but not before
// it has one on which no budget is violated. Of those on which one is it hands over only
// so many (kubernetes: pkg/scheduler/framework/preemption/types.go, candidateList), so it
// has to be told to hand over all.
func TestANodeThatMayBeUsedIsFound(t *testing.T) {
	const nodes = 6
	few, all := candidates(0, 1), candidates(100, 1)
	tests := map[string]struct {
		config  string
		guard   string // The value of those on the last node.
		allowed int32  // By their budget.
	}{
		"on which no budget is violated, however few are asked for": {few, "1000", 2},
		"on which any pod may violate the budget":                   {all, "", 0},
		"on which this pod may violate the budget":                  {all, "500", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			configured(t, tc.config)
			s := scenery(t, nodes)
			low, other := s.class("low", 100, "1000"), s.class("other", 200, tc.guard)
			var guarded []*corev1.Pod
			for i, node := range s.nodes[:nodes-1] {
				for _, half := range []string{"a", "b"} {
					guarded = append(guarded, s.running(s.pod(fmt.Sprintf("guarded-%d%s", i, half), low, labeled("guarded"), on(node))))
				}
			}
			s.budget("guarded", fmt.Sprint(len(guarded)), 0)
			for _, half := range []string{"a", "b"} {
				s.running(s.pod("other-"+half, other, labeled("other"), on(s.nodes[nodes-1])))
			}
			s.budget("other", fmt.Sprint(2-tc.allowed), tc.allowed)

			preemptor := s.running(s.pod("preemptor", s.class("high", 999, "")))
			if diff := cmp.Diff(s.nodes[nodes-1], preemptor.Spec.NodeName); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
			s.lives(guarded...)
		})
	}
}

// Of the victims of a node the scheduler spares those first whose budget would be
// violated. So a protected pod is chosen only if it finds no way around it, or if the other
// one's budget would be violated as well and that one is the more important: then we choose
// the other.
func TestWithinANodeTheOtherOneGoes(t *testing.T) {
	tests := map[string]struct {
		otherPriority int32
		otherAllowed  int32
	}{
		"whose budget is not violated":            {200, 1},
		"whose budget is, the less important one": {50, 0},
		"whose budget is, the more important one": {200, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			protected := s.running(s.pod("protected", s.class("low", 100, "1000"), labeled("protected")))
			s.budget("protected", "1", 0)
			other := s.running(s.pod("other", s.class("other", tc.otherPriority, ""), labeled("other")))
			s.budget("other", fmt.Sprint(1-tc.otherAllowed), tc.otherAllowed)
			s.settled(other)
			s.running(s.pod("preemptor", s.class("high", 999, "")))
			s.gone(other)
			s.lives(protected)
		})
	}
}

// configured adds to the scheduler's configuration until the end of the test, which must
// not be parallel.
func configured(t *testing.T, more string) {
	t.Helper()
	config, err := schedulerConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.ConfigureScheduler(t.Context(), config+more); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := kube.ConfigureScheduler(context.Background(), config); err != nil {
			t.Error(err)
		}
	})
}
