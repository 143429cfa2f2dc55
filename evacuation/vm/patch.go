package vm

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/cel"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// patch is a JSON patch whose values are expressions.
type patch struct {
	subresource string
	operations  []operation
}

type operation struct {
	op, path    string
	value, when cel.Expression
}

func (p *patch) expressions() []cel.Expression {
	if p == nil {
		return nil
	}
	var all []cel.Expression
	for _, o := range p.operations {
		all = append(all, o.value, o.when)
	}
	return all
}

// render evaluates the patch for the workload with that UID, which is tested first. It
// is nil if no operation would change anything.
func (p *patch) render(ctx context.Context, uid types.UID, vars map[string]any) ([]byte, error) {
	operations := []jsonpatch.Op{}
	add := func(op, path string, value any) error {
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode the value of %s: %w", path, err)
		}
		operations = append(operations, jsonpatch.Op{Op: op, Path: path, Value: json.RawMessage(data)}) // Raw, because null must be sent, too.
		return nil
	}
	if err := add("test", "/metadata/uid", uid); err != nil {
		return nil, err
	}
	changes := false
	for _, o := range p.operations {
		wanted, err := o.when.Bool(ctx, vars, true)
		if err != nil {
			return nil, err
		}
		if !wanted {
			continue
		}
		changes = changes || o.op != "test"
		if o.op == "remove" {
			operations = append(operations, jsonpatch.Remove(o.path))
			continue
		}
		value, err := o.value.Value(ctx, vars)
		if err != nil {
			return nil, err
		}
		if err := add(o.op, o.path, value); err != nil {
			return nil, err
		}
	}
	if !changes {
		return nil, nil
	}
	return json.Marshal(operations)
}
