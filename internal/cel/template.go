package cel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// templateMark begins an expression in a template. It has no meaning anywhere else.
const templateMark = "${"

// NoTemplate refuses what is written as if it stood in a template: an expression in
// ${}, or one within a string literal, whose value would be written as it is. instead
// says what to do.
func NoTemplate(field, text, instead string) error {
	if !strings.Contains(text, templateMark) {
		return nil
	}
	return fmt.Errorf("%s: %q has a %s, which means something only in templates and bodies: %s", field, text, templateMark, instead)
}

// Template is an object in which some strings stand for expressions. A node is a
// literal, an expression, a list or a map. It is safe for concurrent use.
type Template struct {
	literal    any
	expression Expression
	list       []*Template
	object     map[string]*Template
}

// Template compiles the strings of the form "${EXPRESSION}" in an object of
// encoding/json. An expression is the whole string, and the value has its type. All
// that is wrong is told at once, each with the field below the one given.
func (e *Env) Template(field string, from any) (*Template, error) {
	c := templates{env: e}
	made := c.compile(field, from)
	return made, errors.Join(c.errs...)
}

// templates collects what is wrong.
type templates struct {
	env  *Env
	errs []error
}

func (c *templates) add(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *templates) compile(field string, from any) *Template {
	switch from := from.(type) {
	case string:
		return c.compileString(field, from)
	case []any:
		t := &Template{list: []*Template{}}
		for i, item := range from {
			t.list = append(t.list, c.compile(fmt.Sprintf("%s[%d]", field, i), item))
		}
		return t
	case map[string]any:
		t := &Template{object: map[string]*Template{}}
		for _, name := range slices.Sorted(maps.Keys(from)) {
			c.add(NoTemplate(field, name, "a name of a field is fixed, so make the map itself an expression"))
			t.object[name] = c.compile(field+"."+name, from[name])
		}
		return t
	default:
		return &Template{literal: from}
	}
}

func (c *templates) compileString(field, from string) *Template {
	source, isExpression := strings.CutPrefix(from, templateMark)
	source, closed := strings.CutSuffix(source, "}")
	closed = closed && !strings.Contains(source, templateMark) // Two of them make no expression.
	switch {
	case isExpression && closed:
		compiled, err := c.env.Expression(field, source)
		c.add(err)
		return &Template{expression: compiled}
	case isExpression && !strings.Contains(from[len(templateMark):], "}"):
		c.add(fmt.Errorf("%s: %q is not closed: an expression ends with }, as in ${EXPRESSION}", field, from))
	case strings.Contains(from, templateMark):
		c.add(fmt.Errorf("%s: %q looks like an expression; one must be the whole string: ${'text ' + EXPRESSION}", field, from))
	}
	return &Template{literal: from}
}

// Expressions are those of the template, in the order of the names.
func (t *Template) Expressions() []Expression {
	if t == nil {
		return nil
	}
	all := []Expression{t.expression}
	for _, item := range t.list {
		all = append(all, item.Expressions()...)
	}
	for _, name := range slices.Sorted(maps.Keys(t.object)) {
		all = append(all, t.object[name].Expressions()...)
	}
	return all
}

// Render makes the object. Literals are shared with what the template was made of.
func (t *Template) Render(ctx context.Context, vars map[string]any) (any, error) {
	switch {
	case t.expression.Given():
		return t.expression.Value(ctx, vars)
	case t.list != nil:
		list := make([]any, 0, len(t.list))
		for _, item := range t.list {
			value, err := item.Render(ctx, vars)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case t.object != nil:
		object := make(map[string]any, len(t.object))
		for name, item := range t.object {
			value, err := item.Render(ctx, vars)
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
