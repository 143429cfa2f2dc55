package forecast

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// lostSince makes the first node one that cannot be reached since then.
func lostSince(in Input, since time.Duration) Input {
	in.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
	return in
}

// Nothing on a lost node ends, and the drain does not wait for that.
func TestLostNodes(t *testing.T) {
	held := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(now.Add(-time.Minute))), []string{"example.com/f"}
	}
	stateful := func(p *corev1.Pod) {
		p.OwnerReferences = builder.Pod("", "").OwnedBy("StatefulSet", "web").Obj().OwnerReferences
	}
	cases := map[string]struct {
		in   func() Input
		want Verdict
		// seconds that it takes, at most, and what is left out.
		most    float64
		leftOut string
	}{
		"pods have only to be deleted": {func() Input { return lostSince(input(pod("x", "a")), time.Hour) }, Done, 1, "the end of the pods of node a, which nobody confirms: it is lost (its condition Ready is Unknown since 2026-11-22T11:00:00Z)"},
		"also one that is held":        {func() Input { return lostSince(input(pod("x", "a", held)), time.Hour) }, Done, 0, "which nobody confirms"},
		"a pod of a StatefulSet does not come back, so the next one has no budget": {func() Input {
			in := lostSince(input(pod("x", "a", stateful), pod("y", "a", stateful)), time.Hour)
			in.PDBs = []*policyv1.PodDisruptionBudget{disruptions("web", 1, 3)}
			return in
		}, Blocked, 1, "which nobody confirms"},
		"not lost yet": {func() Input { return lostSince(input(pod("x", "a")), 30*time.Second) }, Done, 3, "node a may not come back: its condition Ready is Unknown since 2026-11-22T11:59:30Z, and it is lost from 2026-11-22T12:00:30Z on"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Of(tc.in())
			if got.Verdict != tc.want || got.P50Seconds > tc.most {
				t.Errorf("%s after %gs, want %s after at most %gs: %s", got.Verdict, got.P50Seconds, tc.want, tc.most, got.Headline)
			}
			if said := strings.Join(got.LeftOut, "\n"); !strings.Contains(said, tc.leftOut) {
				t.Errorf("left out %q, want %q in it", said, tc.leftOut)
			}
		})
	}
}
