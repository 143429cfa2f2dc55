package drain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// nodeSelector selects nodes by their names, or by labels. One of the two is empty.
func nodeSelector(names []string, byLabels string) (*v1alpha1.NodeSelector, error) {
	var terms []corev1.NodeSelectorTerm
	for _, name := range sorted(names) {
		terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}})
	}
	if len(terms) > 0 {
		return &v1alpha1.NodeSelector{NodeSelectorTerms: terms}, nil
	}
	requirements, err := labels.ParseToRequirements(byLabels)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	if len(requirements) == 0 {
		return nil, fmt.Errorf("--selector %q selects by nothing: give at least one requirement", byLabels)
	}
	var term corev1.NodeSelectorTerm
	for _, r := range requirements {
		operator, ok := nodeOperators[r.Operator()]
		if !ok {
			return nil, fmt.Errorf("--selector: nodes cannot be selected by the operator %q", r.Operator())
		}
		// Requirements keep their values as a set.
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: r.Key(), Operator: operator, Values: sorted(r.ValuesUnsorted())})
	}
	return &v1alpha1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}, nil
}

// nodeOperators are the operators of a node selector.
var nodeOperators = map[selection.Operator]corev1.NodeSelectorOperator{
	selection.In: corev1.NodeSelectorOpIn, selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn,
	selection.NotIn: corev1.NodeSelectorOpNotIn, selection.NotEquals: corev1.NodeSelectorOpNotIn,
	selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
	selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
}

// maintenanceName is the name of the maintenance for these nodes: it starts readable,
// does not depend on their order, and has at most 63 characters.
func maintenanceName(names []string, byLabels string) string {
	const readable, digits = 40, 8
	names = sorted(names)
	key := "nodes\n" + strings.Join(names, "\n")
	var front string
	switch {
	case byLabels != "":
		key = "labels\n" + canonical(byLabels)
		front = canonical(byLabels)
	case len(names) == 1:
		front = names[0]
	default:
		front = fmt.Sprintf("%s-and-%d-more", names[0], len(names)-1)
	}
	sum := sha256.Sum256([]byte(key))
	return "drain-" + strings.Trim(lettersAndDigits(front, readable), "-") + "-" + hex.EncodeToString(sum[:])[:digits]
}

// canonical is a selector as the library formats it.
func canonical(byLabels string) string {
	if parsed, err := labels.Parse(byLabels); err == nil {
		return parsed.String()
	}
	return byLabels
}

// lettersAndDigits makes a text part of a name, at most n characters of it.
func lettersAndDigits(text string, n int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case b.Len() == n:
			return b.String()
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return b.String()
}
