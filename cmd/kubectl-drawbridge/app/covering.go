package app

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// covering returns the maintenances of a node: those that list it in their status,
// those that its annotation names, and those that select it by name.
func covering(node *corev1.Node, maintenances []v1alpha1.NodeMaintenance) []v1alpha1.NodeMaintenance {
	var noted []string
	for item := range strings.SplitSeq(node.Annotations[v1alpha1.MaintenancesAnnotation], ",") {
		name, _, _ := strings.Cut(item, "=")
		noted = append(noted, name)
	}
	var found []v1alpha1.NodeMaintenance
	for _, m := range maintenances {
		if slices.Contains(noted, m.Name) || slices.Contains(namedNodes(&m), node.Name) ||
			slices.ContainsFunc(m.Status.Nodes, func(n v1alpha1.MaintenanceNodeStatus) bool { return n.Name == node.Name }) {
			found = append(found, m)
		}
	}
	return found
}

// namedNodes returns the nodes that the maintenance selects by name.
func namedNodes(m *v1alpha1.NodeMaintenance) []string {
	var names []string
	for _, term := range m.Spec.NodeSelector.NodeSelectorTerms {
		if name := namedBy(term); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// namedBy returns the node that a term selects by name only.
func namedBy(term corev1.NodeSelectorTerm) string {
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return ""
	}
	field := term.MatchFields[0]
	if field.Key != metav1.ObjectNameField || field.Operator != corev1.NodeSelectorOpIn || len(field.Values) != 1 {
		return ""
	}
	return field.Values[0]
}

// onlyNode reports whether a maintenance is for this node alone.
func onlyNode(m *v1alpha1.NodeMaintenance, node string) bool {
	names := namedNodes(m)
	return len(names) == 1 && len(m.Spec.NodeSelector.NodeSelectorTerms) == 1 && names[0] == node
}

// withoutNode returns the selector without the node. It is possible only if the node
// and others are selected by name.
func withoutNode(m *v1alpha1.NodeMaintenance, node string) (v1alpha1.NodeSelector, bool) {
	terms := slices.DeleteFunc(slices.Clone(m.Spec.NodeSelector.NodeSelectorTerms), func(t corev1.NodeSelectorTerm) bool { return namedBy(t) == node })
	byLabels := slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return namedBy(t) == "" })
	return v1alpha1.NodeSelector{NodeSelectorTerms: terms}, !byLabels && len(terms) > 0 && len(terms) < len(m.Spec.NodeSelector.NodeSelectorTerms)
}
