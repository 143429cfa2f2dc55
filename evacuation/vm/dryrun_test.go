package vm

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A migration that somebody changes on its way is not the one that was asked for. What is
// added to it does not matter.
func TestAMigrationIsComparedWithWhatWasAsked(t *testing.T) {
	migration := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Migration", "spec": spec}}
	}
	asked := migration(map[string]any{"vmiName": "vm", "priority": "high"})
	for title, tc := range map[string]struct {
		answer *unstructured.Unstructured
		path   string
	}{
		"as asked":           {migration(map[string]any{"vmiName": "vm", "priority": "high"}), ""},
		"a default is added": {migration(map[string]any{"vmiName": "vm", "priority": "high", "mode": "live"}), ""},
		"a field is changed": {migration(map[string]any{"vmiName": "vm", "priority": "low"}), "/spec/priority"},
		"a field is dropped": {migration(map[string]any{"vmiName": "vm"}), "/spec/priority"},
		"nothing is left":    {&unstructured.Unstructured{Object: map[string]any{"kind": "Migration"}}, "/spec"},
	} {
		t.Run(title, func(t *testing.T) {
			err := sameAsAsked(asked, tc.answer)
			var discarded *discardedError
			if errors.As(err, &discarded) != (tc.path != "") || discarded != nil && discarded.path != tc.path || err != nil && discarded == nil {
				t.Errorf("want the difference %q, got %v", tc.path, err)
			}
		})
	}
}
