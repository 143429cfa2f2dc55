package maintenance

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func byName(names ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: nameField, Operator: corev1.NodeSelectorOpIn, Values: names}}}
}

func byZone(zone string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}
}

func TestWhichNodesASelectorSelects(t *testing.T) {
	both := byName("a")
	both.MatchExpressions = byZone("west").MatchExpressions
	unknown := byName("a")
	unknown.MatchFields[0].Key = "spec.unschedulable"
	cases := map[string]struct {
		terms []corev1.NodeSelectorTerm
		// want is for the node a in the zone east.
		want, wantErr bool
	}{
		"its name":                           {[]corev1.NodeSelectorTerm{byName("a")}, true, false},
		"another name":                       {[]corev1.NodeSelectorTerm{byName("b")}, false, false},
		"several names in a term":            {[]corev1.NodeSelectorTerm{byName("b", "a")}, false, true}, // Kubernetes takes one.
		"its name in a second term":          {[]corev1.NodeSelectorTerm{byName("b"), byName("a")}, true, false},
		"its label":                          {[]corev1.NodeSelectorTerm{byZone("east")}, true, false},
		"its label beside another name":      {[]corev1.NodeSelectorTerm{byName("b"), byZone("east")}, true, false},
		"its name and another label":         {[]corev1.NodeSelectorTerm{both}, false, false},
		"no terms":                           {nil, false, false},
		"its name and a field that is wrong": {[]corev1.NodeSelectorTerm{byName("a"), unknown}, false, true},
	}
	node := &corev1.Node{}
	node.Name, node.Labels = "a", map[string]string{"zone": "east"}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := compile(v1alpha1.NodeSelector{NodeSelectorTerms: tc.terms})
			if got := s.selects(node); got != tc.want || (s.err != nil) != tc.wantErr {
				t.Errorf("selects %t, error %v, want %t and an error: %t", got, s.err, tc.want, tc.wantErr)
			}
		})
	}
}

// Without the order that was wanted, nothing is drained.
func TestAMaintenanceWhoseWavesCannotBeReadSelectsNothing(t *testing.T) {
	s, m := newSelectors(), &v1alpha1.NodeMaintenance{}
	m.Spec.NodeSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{byName("a")}
	m.Spec.Waves = []v1alpha1.MaintenanceWave{{Name: "storage", PodSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Resembles"}},
	}}}
	node := &corev1.Node{}
	node.Name = "a"
	if got := s.of(m); got.selects(node) || got.err == nil || !strings.HasPrefix(got.err.Error(), "spec.waves[0].podSelector cannot be read: ") {
		t.Errorf("selects %t, error %v", got.selects(node), got.err)
	}
	if got := s.wavesOf(m); got != nil {
		t.Errorf("waves %v", got)
	}
}

func TestASelectorIsCompiledOnceForEachGeneration(t *testing.T) {
	s, m := newSelectors(), &v1alpha1.NodeMaintenance{}
	m.UID, m.Generation = "m", 1
	m.Spec.NodeSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{byName("a")}
	first := s.of(m)
	if s.of(m) != first {
		t.Error("the same generation is compiled twice")
	}
	m.Generation = 2
	m.Spec.NodeSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{byName("b")}
	node := &corev1.Node{}
	node.Name = "b"
	if !s.of(m).selects(node) {
		t.Error("the next generation selects what the one before did")
	}
	s.forget("m")
	if len(s.known) != 0 {
		t.Errorf("still known: %v", s.known)
	}
}
