package maintenance

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// nameField is the only field of nodes that a selector may use.
const nameField = "metadata.name"

// selector is a compiled node selector.
type selector struct {
	// names are from the terms that consist of one name: most selectors have only such
	// terms, up to 1000.
	names map[string]struct{}
	// rest are the other terms; nil if there are none.
	rest *nodeaffinity.NodeSelector
	// err is why it cannot be read. Then it selects nothing.
	err error
}

func compile(from v1alpha1.NodeSelector) *selector {
	s := &selector{names: map[string]struct{}{}}
	rest := &corev1.NodeSelector{}
	for i, term := range from.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			// NotIn over a field that no node has would select every node.
			if field.Key != nameField {
				return &selector{err: fmt.Errorf("spec.nodeSelector.nodeSelectorTerms[%d].matchFields: key %q is not known, the only one is %s", i, field.Key, nameField)}
			}
		}
		if name, ok := onlyName(term); ok {
			s.names[name] = struct{}{}
		} else {
			rest.NodeSelectorTerms = append(rest.NodeSelectorTerms, term)
		}
	}
	if len(rest.NodeSelectorTerms) == 0 {
		return s
	}
	var err error
	if s.rest, err = nodeaffinity.NewNodeSelector(rest); err != nil {
		return &selector{err: fmt.Errorf("spec.nodeSelector: %w", err)}
	}
	return s
}

// onlyName is the name in a term that requires nothing else.
func onlyName(term corev1.NodeSelectorTerm) (string, bool) {
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 {
		return "", false
	}
	field := term.MatchFields[0]
	if field.Operator != corev1.NodeSelectorOpIn || len(field.Values) != 1 {
		return "", false
	}
	return field.Values[0], true
}

func (s *selector) selects(node *corev1.Node) bool {
	if _, ok := s.names[node.Name]; ok {
		return true
	}
	return s.rest != nil && s.rest.Match(node)
}

// selectors keeps the compiled selectors and waves of the maintenances there are. It is safe
// for concurrent use.
type selectors struct {
	mu    sync.Mutex
	known map[types.UID]compiled
}

type compiled struct {
	generation int64
	selector   *selector
	waves      translate.Waves
}

func newSelectors() *selectors { return &selectors{known: map[types.UID]compiled{}} }

// of compiles the selector of a maintenance, once for each generation.
func (s *selectors) of(m *v1alpha1.NodeMaintenance) *selector { return s.compiled(m).selector }

// wavesOf compiles the waves of a maintenance, once for each generation.
func (s *selectors) wavesOf(m *v1alpha1.NodeMaintenance) translate.Waves { return s.compiled(m).waves }

func (s *selectors) compiled(m *v1alpha1.NodeMaintenance) compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.known[m.UID]
	if !ok || c.generation != m.Generation {
		c = compiled{generation: m.Generation, selector: compile(m.Spec.NodeSelector)}
		var err error
		if c.waves, err = translate.CompileWaves(m.Spec.Waves); err != nil && c.selector.err == nil {
			// A drain without its order could do harm, so there is none. The API server cannot check
			// the selectors of a list: the rules for them would cost too much.
			c.selector = &selector{err: err}
		}
		s.known[m.UID] = c
	}
	return c
}

// forget forgets a maintenance that is gone.
func (s *selectors) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, uid)
}
