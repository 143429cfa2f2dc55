package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// patch is a JSON patch whose values are expressions.
type patch struct {
	subresource string
	operations  []operation
}

type operation struct {
	op, path    string
	value, when expression
}

func (p *patch) expressions() []expression {
	if p == nil {
		return nil
	}
	var all []expression
	for _, o := range p.operations {
		all = append(all, o.value, o.when)
	}
	return all
}

// render evaluates the patch for the workload with that UID, which is tested
// first. It is nil if no operation is left that changes anything.
func (p *patch) render(ctx context.Context, uid types.UID, vars map[string]any) ([]byte, error) {
	operations := []jsonpatch.Op{}
	add := func(op, path string, value any) error {
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode the value of %s: %w", path, err)
		}
		operations = append(operations, jsonpatch.Op{Op: op, Path: path, Value: json.RawMessage(data)}) // Raw, as null must be sent, too.
		return nil
	}
	if err := add("test", "/metadata/uid", uid); err != nil {
		return nil, err
	}
	changes := false
	for _, o := range p.operations {
		wanted, err := o.when.boolean(ctx, vars, true)
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
		value, err := o.value.value(ctx, vars)
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

// template is an object in which some strings stand for expressions. A node is a
// literal, an expression, a list or a map.
type template struct {
	literal    any
	expression expression
	list       []*template
	object     map[string]*template
}

// template compiles the strings of the form "${EXPRESSION}".
func (c *compiling) template(field string, from any) *template {
	switch from := from.(type) {
	case string:
		source, isExpression := strings.CutPrefix(from, templateMark)
		source, closed := strings.CutSuffix(source, "}")
		closed = closed && !strings.Contains(source, templateMark) // Two of them make no expression.
		switch {
		case isExpression && closed:
			return &template{expression: c.expression(field, source, writeScope)}
		case isExpression && !strings.Contains(from[len(templateMark):], "}"):
			c.add(fmt.Errorf("%s: %q is not closed: an expression ends with }, as in ${EXPRESSION}", field, from))
		case strings.Contains(from, templateMark):
			c.add(fmt.Errorf("%s: %q looks like an expression; one must be the whole string: ${'text ' + EXPRESSION}", field, from))
		}
	case []any:
		t := &template{list: []*template{}}
		for i, item := range from {
			t.list = append(t.list, c.template(fmt.Sprintf("%s[%d]", field, i), item))
		}
		return t
	case map[string]any:
		t := &template{object: map[string]*template{}}
		for _, name := range slices.Sorted(maps.Keys(from)) {
			c.add(noTemplate(field, name, "a name of a field is fixed, so make the map itself an expression"))
			t.object[name] = c.template(field+"."+name, from[name])
		}
		return t
	}
	return &template{literal: from}
}

func (t *template) expressions() []expression {
	if t == nil {
		return nil
	}
	all := []expression{t.expression}
	for _, item := range t.list {
		all = append(all, item.expressions()...)
	}
	for _, name := range slices.Sorted(maps.Keys(t.object)) {
		all = append(all, t.object[name].expressions()...)
	}
	return all
}

// render makes the object.
func (t *template) render(ctx context.Context, vars map[string]any) (any, error) {
	switch {
	case t.expression.given():
		return t.expression.value(ctx, vars)
	case t.list != nil:
		list := make([]any, 0, len(t.list))
		for _, item := range t.list {
			value, err := item.render(ctx, vars)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case t.object != nil:
		object := make(map[string]any, len(t.object))
		for name, item := range t.object {
			value, err := item.render(ctx, vars)
			if err != nil {
				return nil, err
			}
			object[name] = value
		}
		return object, nil
	default:
		return t.literal, nil
	}
}
