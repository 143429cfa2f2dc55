package translate

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors select pods by their labels and by those of their namespaces.
type Selectors struct{ Pods, Namespaces labels.Selector }

// CompileSelectors compiles a podSelector and a namespaceSelector. A nil one selects all. The
// error begins with the name of the field that cannot be read.
func CompileSelectors(pods, namespaces *metav1.LabelSelector) (Selectors, error) {
	var s Selectors
	for _, one := range []struct {
		field string
		from  *metav1.LabelSelector
		to    *labels.Selector
	}{
		{"podSelector", pods, &s.Pods},
		{"namespaceSelector", namespaces, &s.Namespaces},
	} {
		*one.to = labels.Everything()
		if one.from == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(one.from)
		if err != nil {
			return Selectors{}, fmt.Errorf("%s cannot be read: %w", one.field, err)
		}
		*one.to = selector
	}
	return s, nil
}

// Match reports whether both select.
func (s Selectors) Match(pod, namespace map[string]string) bool {
	return s.Pods.Matches(labels.Set(pod)) && s.Namespaces.Matches(labels.Set(namespace))
}
