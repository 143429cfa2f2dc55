package vm

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A migration is taken as it was asked for only if all that was asked for is there.
func TestWhichFieldOfAMigrationIsNotAsAsked(t *testing.T) {
	object := func(annotations map[string]any, spec any) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec}
	}
	asked := object(map[string]any{"kubevirt.io/evacuationMigration": "n1"}, map[string]any{"vmiName": "vm"})
	for title, tc := range map[string]struct {
		answer map[string]any
		want   string
	}{
		"all of it": {asked, ""},
		"more than that": {
			object(map[string]any{"kubevirt.io/evacuationMigration": "n1", "other": "x"}, map[string]any{"vmiName": "vm", "priority": "high"}), "",
		},
		"an annotation is missing": {object(map[string]any{}, map[string]any{"vmiName": "vm"}), "/metadata/annotations/kubevirt.io~1evacuationMigration"},
		"a field is another": {
			object(map[string]any{"kubevirt.io/evacuationMigration": "n1"}, map[string]any{"vmiName": "other"}), "/spec/vmiName",
		},
		"all annotations are gone": {object(nil, map[string]any{"vmiName": "vm"}), "/metadata/annotations"},
		"the spec is gone":         {object(map[string]any{"kubevirt.io/evacuationMigration": "n1"}, nil), "/spec"},
	} {
		t.Run(title, func(t *testing.T) {
			err := sameAsAsked(&unstructured.Unstructured{Object: asked}, &unstructured.Unstructured{Object: tc.answer})
			var discarded *discardedError
			got := ""
			if errors.As(err, &discarded) {
				got = discarded.path
			} else if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
		})
	}
}
