package translate

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A class without a rule would count as unknown without a word.
func TestEveryCallerClassHasARule(t *testing.T) {
	if diff := cmp.Diff(slices.Sorted(maps.Keys(classRules)), slices.Sorted(slices.Values(CallerClasses()))); diff != "" {
		t.Errorf("classes (-rules +set):\n%s", diff)
	}
}
