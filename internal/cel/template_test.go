package cel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parse reads JSON as those do who make templates.
func parse(t *testing.T, data string) any {
	t.Helper()
	var made any
	if err := json.Unmarshal([]byte(data), &made); err != nil {
		t.Fatal(err)
	}
	return made
}

func TestTemplatesAreRendered(t *testing.T) {
	const source = `{"spec": {"name": "${any.name + '-x'}", "count": "${any.count}", "literal": "$5", "fixed": 3, "nothing": null,
		"list": ["${thing.name}", true, []], "map": "${{'a': any.name}}", "empty": {}}}`
	made, err := newEnv(t).Template("spec.template", parse(t, source))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{"any": map[string]any{"name": "vm", "count": int64(2)}, "thing": map[string]any{"name": "t"}}
	for range 2 { // What was rendered is nobody else's.
		got, err := made.Render(t.Context(), vars)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"spec":{"count":2,"empty":{},"fixed":3,"list":["t",true,[]],"literal":"$5","map":{"a":"vm"},"name":"vm-x","nothing":null}}`
		if diff := cmp.Diff(want, string(data)); diff != "" {
			t.Errorf("object (-want +got):\n%s", diff)
		}
		got.(map[string]any)["spec"] = "changed"
	}
	if _, err := made.Render(t.Context(), map[string]any{"any": map[string]any{"name": "vm"}, "thing": map[string]any{"name": "t"}}); err == nil ||
		err.Error() != "spec.template.spec.count: no such key: count" {
		t.Errorf("without a count: got %v, want the field and its problem", err)
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	cases := map[string]struct{ template, want string }{
		"not closed":       {`{"a": ["x", "${any.name"]}`, `t.a[1]: "${any.name" is not closed: an expression ends with }, as in ${EXPRESSION}`},
		"beside text":      {`{"a": "vm-${any.name}"}`, `t.a: "vm-${any.name}" looks like an expression; one must be the whole string: ${'text ' + EXPRESSION}`},
		"two of them":      {`{"a": "${any.a}${any.b}"}`, `t.a: "${any.a}${any.b}" looks like an expression; one must be the whole string: ${'text ' + EXPRESSION}`},
		"a field's name":   {`{"a": {"${any.a}": 1}}`, `t.a: "${any.a}" has a ${, which means something only in templates and bodies: a name of a field is fixed, so make the map itself an expression`},
		"no CEL":           {`{"a": "${thing.size}"}`, "t.a does not compile: line 1, column 6: undefined field 'size'"},
		"all that's wrong": {`{"b": "${thing.b}", "a": "${thing.a}"}`, "t.a does not compile: line 1, column 6: undefined field 'a'\nt.b does not compile: line 1, column 6: undefined field 'b'"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := newEnv(t).Template("t", parse(t, tc.template))
			if err == nil {
				t.Fatal("it compiles")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatTemplatesAndExpressionsRead(t *testing.T) {
	made, err := newEnv(t).Template("t", parse(t, `{"a": "${any.a.b[0].c}", "b": ["${any.?d['e/f'].orValue('')}", "x"], "c": "${has(any.g) ? thing.name : ''}"}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range made.Expressions() {
		paths, whole := e.Reads("any")
		if whole {
			t.Errorf("%s reads all of any", e.Field)
		}
		for _, path := range paths {
			got = append(got, e.Field+": "+strings.Join(path, "|"))
		}
	}
	if diff := cmp.Diff([]string{"t.a: a|b", "t.b[0]: d|e/f", "t.c: g"}, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	var none *Template
	if all := none.Expressions(); all != nil {
		t.Errorf("no template has the expressions %v", all)
	}
	for _, source := range []string{"any", "any == thing", "size(any) > 0", "any.exists(a, a == 1)"} {
		e, err := newEnv(t).Expression("t", source)
		if err != nil {
			t.Fatal(err)
		}
		if _, whole := e.Reads("any"); !whole {
			t.Errorf("%s reads a part of any", source)
		}
	}
}

func TestConstants(t *testing.T) {
	cases := map[string]struct {
		source, want string
		ok           bool
	}{
		"a string":           {"'External'", "External", true},
		"the empty string":   {"''", "", true},
		"a number":           {"1", "", false},
		"more than a string": {"'a' + 'b'", "", false},
		"not given":          {"", "", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, err := newEnv(t).Expression("t", tc.source)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := e.Constant(); got != tc.want || ok != tc.ok {
				t.Errorf("got %q, %t, want %q, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}
