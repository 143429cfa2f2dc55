package cel

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// thing is a typed variable: a name and a few tags.
func thing() *apiservercel.DeclType {
	name := *apiservercel.StringType
	name.MaxElements = 63
	fields := map[string]*apiservercel.DeclField{}
	for field, of := range map[string]*apiservercel.DeclType{"name": &name, "tags": apiservercel.NewListType(&name, 64)} {
		fields[field] = apiservercel.NewDeclField(field, of, false, nil, nil)
	}
	return apiservercel.NewObjectType("drawbridge.Thing", fields)
}

// newEnv has a typed variable thing and an untyped one, any.
func newEnv(t *testing.T, options ...Option) *Env {
	t.Helper()
	e, err := NewEnv([]Variable{{Name: "thing", Type: thing()}, {Name: "any"}}, options...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestCompile(t *testing.T) {
	static := []Option{Static(10_000)}
	cases := map[string]struct {
		source  string
		options []Option
		want    []*Type
		// wantError is all of it, or its beginning if it ends with "…"; empty is none.
		wantError string
	}{
		"any type will do":                     {source: "thing.name"},
		"one of the types":                     {source: "thing.name", want: []*Type{BoolType, StringType}},
		"a type that is not known":             {source: "any.a", want: []*Type{BoolType}},
		"a branch that is not known":           {source: "any.a ? any.b : true", want: []*Type{BoolType}},
		"none of the types":                    {source: "1", want: []*Type{BoolType, StringType}, wantError: "it must be of type bool or string, but is int"},
		"a branch of none of the types":        {source: "any.a ? any.b : dyn('')", want: []*Type{BoolType}, wantError: "it must be of type bool, but can be string"},
		"no CEL":                               {source: "thing.", wantError: "line 1, column 7: Syntax error: …"},
		"an undeclared field":                  {source: "true &&\n thing.size == 1", wantError: "line 2, column 7: undefined field 'size'"},
		"two problems, in one line":            {source: "thing.a == any.b\n|| thing.c", wantError: "line 1, column 6: undefined field 'a'; line 2, column 9: undefined field 'c'"},
		"no such variable":                     {source: "pod", wantError: "line 1, column 1: undeclared reference to 'pod' (in container '')"},
		"a conversion that cannot be":          {source: "int('x') == 1", wantError: "make the program: …"},
		"a library of Kubernetes 1.30":         {source: "isIP(thing.name)"},
		"a library of Kubernetes 1.31":         {source: "format.dns1123Label().validate(thing.name).hasValue()", wantError: "line 1, column 1: undeclared reference to 'format' …"},
		"static: a cheap one":                  {source: "thing.tags.all(t, t != '')", options: static, want: []*Type{BoolType}},
		"static: a type that is not known":     {source: "dyn(true)", options: static, want: []*Type{BoolType}, wantError: "it must be of type bool, but is dyn"},
		"static: a dear one":                   {source: "thing.tags.all(t, thing.tags.all(u, t + u != ''))", options: static, want: []*Type{BoolType}, wantError: "it may cost …"},
		"static: one that may cost any amount": {source: "any.all(a, a == 1)", options: static, want: []*Type{BoolType}, wantError: "it may cost any amount, more than the 10000 allowed: compare less or nest fewer loops"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			program, err := newEnv(t, tc.options...).Compile(tc.source, tc.want...)
			if tc.wantError == "" {
				if err != nil || program == nil {
					t.Errorf("got %v, %v, want a program", program, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("it compiles, want the error %q", tc.wantError)
			}
			got := err.Error()
			if start, isStart := strings.CutSuffix(tc.wantError, "…"); isStart && strings.HasPrefix(got, start) && !strings.Contains(got, "\n") {
				return
			}
			if diff := cmp.Diff(tc.wantError, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProgramSaysWhatItCosts(t *testing.T) {
	program, err := newEnv(t).Compile("any.all(a, a == 1)", BoolType)
	if err != nil {
		t.Fatal(err)
	}
	match, one, err := program.Bool(t.Context(), map[string]any{"any": []any{1}})
	if err != nil || !match {
		t.Fatalf("got %t, %v, want a match", match, err)
	}
	match, three, err := program.Bool(t.Context(), map[string]any{"any": []any{1, 1, 2}})
	if err != nil || match || three <= one || one <= 0 {
		t.Errorf("got %t, %v at a cost of %d, want no match at more than %d", match, err, three, one)
	}
	if _, _, err := program.Bool(t.Context(), map[string]any{"any": "x"}); err == nil {
		t.Error("a text has no items, and the program does not fail")
	}
	if program, err = newEnv(t).Compile("any"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := program.Bool(t.Context(), map[string]any{"any": "x"}); err == nil || err.Error() != "the result is of type string" {
		t.Errorf("got error %v, want that of the type", err)
	}
}

func TestWhatProgramsUse(t *testing.T) {
	program, err := newEnv(t).Compile("[1].exists(any, any == 1) && thing.name == ''")
	if err != nil {
		t.Fatal(err)
	}
	if !program.Uses("thing") || program.Uses("nothing") {
		t.Errorf("uses thing: %t, and nothing: %t", program.Uses("thing"), program.Uses("nothing"))
	}
}

// loop costs too much for the limit of one evaluation: it goes through a list for
// every item of it.
const loop = "any.all(a, any.all(b, a == b))"

func many() map[string]any {
	items := make([]any, 2000)
	for i := range items {
		items[i] = "x"
	}
	return map[string]any{"any": items}
}

func TestEvaluationIsLimited(t *testing.T) {
	canceled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the manager stops")
	cancel(cause)
	cases := map[string]struct {
		canceled bool
		want     string
	}{
		"by its cost":    {false, "spec.test: operation cancelled: actual cost limit exceeded"},
		"by its context": {true, "spec.test: operation interrupted: the manager stops"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, err := newEnv(t).Expression("spec.test", loop, BoolType)
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if tc.canceled {
				ctx = canceled
			}
			_, err = e.Bool(ctx, many(), false)
			if err == nil {
				t.Fatal("the loop ends")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpressionsNameTheirField(t *testing.T) {
	cases := map[string]struct {
		source  string
		options []Option
		want    string
	}{
		"no CEL":                      {source: "thing.size", want: "spec.test does not compile: line 1, column 6: undefined field 'size'"},
		"another type":                {source: "thing.name", want: "spec.test must be of type bool, but is string: compare it with something, as with == 'x'"},
		"a branch of another type":    {source: "dyn(1)", want: "spec.test must be of type bool, but can be int: compare it with something, as with == 'x'"},
		"what may be missing":         {source: "any.?a", want: "spec.test must be of type bool, but is optional_type(dyn): say what counts when it is missing, as with .orValue(false)"},
		"a conversion that cannot be": {source: "int('x') == 1", want: "spec.test: make the program: type conversion error from 'string' to 'int'"},
		"a template":                  {source: "${thing.name}", want: `spec.test: "${thing.name}" has a ${, which means something only in templates and bodies: write the expression alone`},
		"too dear":                    {source: "any.all(a, a)", options: []Option{Static(1)}, want: "spec.test: it may cost any amount, more than the 1 allowed: compare less or nest fewer loops"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, err := newEnv(t, tc.options...).Expression("spec.test", tc.source, BoolType)
			if err == nil || e.Given() {
				t.Fatal("it compiles")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpressionsHaveTypedResults(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	boolean := func(ctx context.Context, e Expression, vars map[string]any) (any, error) {
		return e.Bool(ctx, vars, true)
	}
	orNull := func(ctx context.Context, e Expression, vars map[string]any) (any, error) {
		value, err := e.BoolOrNull(ctx, vars)
		if value == nil {
			return nil, err
		}
		return *value, err
	}
	number := func(ctx context.Context, e Expression, vars map[string]any) (any, error) {
		return e.Int(ctx, vars, 7)
	}
	words := func(ctx context.Context, e Expression, vars map[string]any) (any, error) {
		return e.Text(ctx, vars)
	}
	moment := func(ctx context.Context, e Expression, vars map[string]any) (any, error) {
		return e.Time(ctx, vars)
	}
	value := func(ctx context.Context, e Expression, vars map[string]any) (any, error) {
		return e.Value(ctx, vars)
	}
	cases := map[string]struct {
		source    string
		as        func(context.Context, Expression, map[string]any) (any, error)
		want      any
		wantError string
	}{
		"a bool":                       {source: "any.yes", as: boolean, want: true},
		"no bool":                      {source: "any.name", as: boolean, want: false, wantError: "spec.test: the result must be of type bool, but is string"},
		"a bool that is not given":     {as: boolean, want: true},
		"a bool that may be null":      {source: "any.yes", as: orNull, want: true},
		"null":                         {source: "null", as: orNull},
		"neither bool nor null":        {source: "any.three", as: orNull, wantError: "spec.test: the result must be of type bool or null, but is int"},
		"an int":                       {source: "any.three + 1", as: number, want: int64(4)},
		"no int":                       {source: "1.5", as: number, want: int64(0), wantError: "spec.test: the result must be of type int, but is double"},
		"an int that is not given":     {as: number, want: int64(7)},
		"a string":                     {source: "any.name + '!'", as: words, want: "vm!"},
		"no string":                    {source: "any.three", as: words, want: "", wantError: "spec.test: the result must be of type string, but is int"},
		"a string that is not given":   {as: words, want: ""},
		"a missing field":              {source: "any.nothing", as: words, want: "", wantError: "spec.test: no such key: nothing"},
		"a time":                       {source: "timestamp(any.at)", as: moment, want: at},
		"a time as a string":           {source: "any.at", as: moment, want: at},
		"no time, as null":             {source: "null", as: moment, want: time.Time{}},
		"no time, as the empty string": {source: "''", as: moment, want: time.Time{}},
		"a string that is no time":     {source: "'noon'", as: moment, want: time.Time{}, wantError: `spec.test: parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006"`},
		"what is no time":              {source: "1", as: moment, want: time.Time{}, wantError: "spec.test: the result must be of type timestamp, but is int"},
		"a value: a map":               {source: "{'a': [any.name]}", as: value, want: map[string]any{"a": []any{"vm"}}},
		"a value: an int":              {source: "any.three", as: value, want: int64(3)},
		"a value: a time":              {source: "timestamp(any.at)", as: value, want: "2026-03-01T12:00:00Z"},
		"a value: a duration":          {source: "duration('90s')", as: value, want: "1m30s"},
		"a value: null":                {source: "null", as: value},
		"a value: a number too large":  {source: "18446744073709551615u", as: value, wantError: "spec.test: the number is too large"},
	}
	vars := map[string]any{"any": map[string]any{"yes": true, "three": int64(3), "name": "vm", "at": at.Format(time.RFC3339)}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, err := newEnv(t).Expression("spec.test", tc.source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tc.as(t.Context(), e, vars)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			var failure *EvaluationError
			switch {
			case tc.wantError == "" && err != nil:
				t.Error(err)
			case tc.wantError != "" && (!errors.As(err, &failure) || err.Error() != tc.wantError):
				t.Errorf("got error %v, want %q", err, tc.wantError)
			}
		})
	}
}
