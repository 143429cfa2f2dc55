package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// The conventions of the Kubernetes API that no generator enforces: the doc of a
// field begins with the field's JSON name, every field says whether it is optional
// or required, and every list says what kind of list it is and how long it may get.
func TestFieldsFollowTheAPIConventions(t *testing.T) {
	files, err := filepath.Glob("*_types.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no types")
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok || strings.HasSuffix(spec.Name.Name, "List") {
				return false
			}
			for _, f := range fields.Fields.List {
				checkField(t, spec.Name.Name, f)
			}
			return false
		})
	}
}

func checkField(t *testing.T, owner string, f *ast.Field) {
	t.Helper()
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	name, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	if name == "" && options == "inline" {
		return
	}
	path := owner + "." + name

	doc := f.Doc.Text()
	if !strings.HasPrefix(doc, name+" ") && !strings.HasPrefix(doc, name+".") {
		t.Errorf("%s: the doc does not begin with %q: %q", path, name, doc)
	}
	var markers []string
	for _, c := range f.Doc.List {
		if m, ok := strings.CutPrefix(c.Text, "// +"); ok {
			markers = append(markers, m)
		}
	}
	has := func(prefix string) bool {
		for _, m := range markers {
			if strings.HasPrefix(m, prefix) {
				return true
			}
		}
		return false
	}
	optional, omitempty := has("optional"), strings.Contains(options, "omitempty")
	if optional == has("required") {
		t.Errorf("%s: must be either +optional or +required", path)
	}
	if optional != omitempty {
		t.Errorf("%s: +optional is %t, omitempty is %t", path, optional, omitempty)
	}
	if list, ok := f.Type.(*ast.ArrayType); ok {
		for _, marker := range []string{"listType=", "kubebuilder:validation:MaxItems="} {
			if !has(marker) {
				t.Errorf("%s: a list needs +%s", path, marker)
			}
		}
		if id, ok := list.Elt.(*ast.Ident); ok && id.Name == "string" && !has("kubebuilder:validation:items:MaxLength=") {
			t.Errorf("%s: a list of strings needs +kubebuilder:validation:items:MaxLength=", path)
		}
	}
	if id, ok := f.Type.(*ast.Ident); ok && id.Name == "string" && !has("kubebuilder:validation:MaxLength=") {
		t.Errorf("%s: a string needs +kubebuilder:validation:MaxLength=", path)
	}
}
