//go:build unix

package preemption

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// full fills one node with two pods of an application whose budget allows none to go.
func (s *scene) full(guard string) (victims []*corev1.Pod) {
	s.t.Helper()
	low := s.class("low", 100, guard)
	for _, name := range []string{"web-1", "web-2"} {
		victims = append(victims, s.running(s.pod(name, low, labeled("web"))))
	}
	s.budget("web", "2", 0)
	return victims
}

func TestAPreemptorBelowTheValueWaits(t *testing.T) {
	s := newScene(t, 1)
	victims := s.full("1000")
	preemptor := s.pod("preemptor", s.class("high", 999, ""))
	s.pending(preemptor)
	note := s.told(preemptor)
	want := fmt.Sprintf("Node %s is not used: to preempt %s/%s, 1 pod of the budget on it, would violate its PodDisruptionBudget %s/web, which allows 0 now; "+
		"only pods of priority 1000 or more may do that, this pod has 999.", s.nodes[0], s.namespace, "VICTIM", s.namespace)
	for _, victim := range victims {
		if diff := cmp.Diff(want, replace(note, s.namespace+"/"+victim.Name+",", s.namespace+"/VICTIM,")); diff == "" {
			s.lives(victims...)
			return
		}
	}
	t.Errorf("note: %s\nwant like: %s", note, want)
}

func TestAPreemptorAtTheValuePreempts(t *testing.T) {
	s := newScene(t, 1)
	s.full("1000")
	s.running(s.pod("preemptor", s.class("high", 1000, "")))
}

func TestWithoutTheAnnotationAnyBudgetIsBroken(t *testing.T) {
	s := newScene(t, 1)
	s.full("")
	s.running(s.pod("preemptor", s.class("high", 101, "")))
}

func TestThePodKeepsItsBudgetWhateverThePreemptorsPreemptionPolicySays(t *testing.T) {
	s := newScene(t, 1)
	victims := s.full("1000")
	lower := corev1.PreemptLowerPriority
	high := s.class("high", 999, "")
	preemptor := s.pod("preemptor", high, withPolicy(lower))
	s.pending(preemptor)
	s.told(preemptor)
	s.lives(victims...)
}

func TestOfTwoNodesTheOneWithoutAViolationIsChosen(t *testing.T) {
	s := newScene(t, 2)
	low := s.class("low", 100, "1000")
	guarded := []*corev1.Pod{
		s.running(s.pod("guarded-1", low, labeled("guarded"), on(s.nodes[0]))),
		s.running(s.pod("guarded-2", low, labeled("guarded"), on(s.nodes[0]))),
	}
	s.budget("guarded", "2", 0)
	// More important to the scheduler than the others, which have the lower priority.
	middle := s.class("middle", 200, "1000")
	for _, name := range []string{"spare-1", "spare-2"} {
		s.running(s.pod(name, middle, labeled("spare"), on(s.nodes[1])))
	}
	s.budget("spare", "1", 1)
	preemptor := s.running(s.pod("preemptor", s.class("high", 999, "")))
	if diff := cmp.Diff(s.nodes[1], preemptor.Spec.NodeName); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	s.lives(guarded...)
}

func TestWithBothNodesInViolationTheUnguardedIsChosen(t *testing.T) {
	s := newScene(t, 2)
	low, plain := s.class("low", 100, "1000"), s.class("plain", 200, "")
	var guarded []*corev1.Pod
	for _, name := range []string{"1", "2"} {
		guarded = append(guarded, s.running(s.pod("guarded-"+name, low, labeled("guarded"), on(s.nodes[0]))))
		s.running(s.pod("plain-"+name, plain, labeled("plain"), on(s.nodes[1])))
	}
	s.budget("guarded", "2", 0)
	s.budget("plain", "2", 0)
	preemptor := s.running(s.pod("preemptor", s.class("high", 999, "")))
	if diff := cmp.Diff(s.nodes[1], preemptor.Spec.NodeName); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	s.lives(guarded...)
}

func TestWhenTheBudgetIsRelaxedThePreemptorIsScheduled(t *testing.T) {
	s := newScene(t, 1)
	low := s.class("low", 100, "1000")
	for _, name := range []string{"web-1", "web-2"} {
		s.running(s.pod(name, low, labeled("web")))
	}
	pdb := s.budget("web", "2", 0)
	preemptor := s.pod("preemptor", s.class("high", 999, ""))
	s.pending(preemptor)
	s.told(preemptor)
	s.relax(pdb, "1", 1)
	s.running(preemptor)
}

// Each of the two alone could go; the preemptor needs both.
func TestSeveralVictimsOfOneBudgetAreCountedTogether(t *testing.T) {
	s := newScene(t, 1)
	low := s.class("low", 100, "1000")
	victims := []*corev1.Pod{s.running(s.pod("web-1", low, labeled("web"))), s.running(s.pod("web-2", low, labeled("web")))}
	pdb := s.budget("web", "1", 1)
	preemptor := s.pod("preemptor", s.class("high", 999, ""), withCPU("2"))
	s.pending(preemptor)
	if note, want := s.told(preemptor), "2 pods of the budget on it, would violate its PodDisruptionBudget "+s.namespace+"/web, which allows 1 now"; !contains(note, want) {
		t.Errorf("note: %s\nwant in it: %s", note, want)
	}
	s.lives(victims...)
	s.relax(pdb, "0", 2)
	s.running(preemptor)
}

// What counts is the class as it was when the pod was created.
func TestAnEditOfTheClassDoesNotConcernPodsThatRun(t *testing.T) {
	s := newScene(t, 2)
	low := s.class("low", 100, "1000")
	before := []*corev1.Pod{
		s.running(s.pod("before-1", low, labeled("before"), on(s.nodes[0]))),
		s.running(s.pod("before-2", low, labeled("before"), on(s.nodes[0]))),
	}
	s.budget("before", "2", 0)
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AllowDisruptionAnnotation))
	if err := admin.Patch(t.Context(), low, patch); err != nil {
		t.Fatal(err)
	}
	s.running(s.pod("after-1", low, labeled("after"), on(s.nodes[1])))
	s.running(s.pod("after-2", low, labeled("after"), on(s.nodes[1])))
	s.budget("after", "2", 0)

	preemptor := s.running(s.pod("preemptor", s.class("high", 999, "")))
	if diff := cmp.Diff(s.nodes[1], preemptor.Spec.NodeName); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	s.lives(before...)
}

// Our own guard budgets are no promise of the application.
func TestGuardBudgetsDoNotCount(t *testing.T) {
	s := newScene(t, 1)
	low := s.class("low", 100, "1000")
	for _, name := range []string{"web-1", "web-2"} {
		s.running(s.pod(name, low, labeled("web"), guardClosed))
	}
	s.create(guardBudget(s.namespace))
	s.running(s.pod("preemptor", s.class("high", 999, "")))
}
