//go:build unix

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesAreDroppedAtEveryDepth(t *testing.T) {
	rules := []any{map[string]any{"rule": "self == oldSelf"}}
	schema := map[string]any{
		"type": "object", "x-kubernetes-validations": rules,
		"properties": map[string]any{"list": map[string]any{
			"type": "array", "maxItems": int64(2), "x-kubernetes-validations": rules,
			"items": map[string]any{"type": "string", "x-kubernetes-validations": rules},
		}},
		"allOf": []any{map[string]any{"x-kubernetes-validations": rules}},
	}
	dropRules(schema)
	want := map[string]any{
		"type": "object",
		"properties": map[string]any{"list": map[string]any{
			"type": "array", "maxItems": int64(2), "items": map[string]any{"type": "string"},
		}},
		"allOf": []any{map[string]any{}},
	}
	if diff := cmp.Diff(want, schema); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
