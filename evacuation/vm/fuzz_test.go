package vm

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/drawbridge-dev/drawbridge/internal/cel"
)

// Expressions of a policy read objects of platforms, which may have any shape.
func FuzzPolicyExpression(f *testing.F) {
	for _, seed := range [][2]string{
		{"owner.status.evacuationNodeName != ''", `{"status":{"evacuationNodeName":"n1"}}`},
		{"has(owner.spec) && owner.spec.strategy == 'LiveMigrate'", `{"spec":{"strategy":1}}`},
		{"owner.a.b.c[3]", `{"a":{"b":{"c":[1]}}}`},
		{"timestamp(owner.at)", `{"at":"2026-03-01T12:00:00Z"}`},
		{"owner.items.map(i, i.name).join(',')", `{"items":[{"name":"a"},{"name":null}]}`},
		{"owner", `null`}, {"1/0", `{}`}, {"", `[]`}, {"owner.all(k, owner[k] == owner)", `{"k":{}}`},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, source string, object []byte) {
		var owner any
		if json.Unmarshal(object, &owner) != nil {
			return
		}
		for _, want := range [][]*cel.Type{nil, {cel.BoolType}, {cel.StringType}} {
			e, err := compile("spec.test", source, scope{"owner"}, want...)
			if err != nil || !e.Given() {
				continue
			}
			vars := map[string]any{"owner": owner}
			// Any result will do, but not a panic.
			_, _ = e.Bool(context.Background(), vars, false)
			_, _ = e.Text(context.Background(), vars)
			_, _ = e.Time(context.Background(), vars)
			if value, err := e.Value(context.Background(), vars); err == nil {
				if _, err := json.Marshal(value); err != nil {
					t.Errorf("%q of %s gives %v, which no object can hold: %v", source, object, value, err)
				}
			}
		}
	})
}
