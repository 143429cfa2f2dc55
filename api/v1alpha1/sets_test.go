package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The schema of a closed set of words is a comment, which the compiler does not read:
// it has the constants of its type, in their order.
func TestEnumsOfTheSchemaAreTheConstants(t *testing.T) {
	enums, constants := declaredSets(t)
	if len(enums) < 5 {
		t.Fatalf("only %d enums were found", len(enums))
	}
	for name, enum := range enums {
		if diff := cmp.Diff(constants[name], enum); diff != "" {
			t.Errorf("%s (-constants +enum):\n%s", name, diff)
		}
	}
}

func TestMaintenanceStagesAreAllStages(t *testing.T) {
	_, constants := declaredSets(t)
	var got []string
	for _, stage := range v1alpha1.MaintenanceStages() {
		got = append(got, string(stage))
	}
	if diff := cmp.Diff(constants["MaintenanceStage"], got); diff != "" {
		t.Errorf("stages (-constants +set):\n%s", diff)
	}
}

// declaredSets are the enums of the types that have one, and the constants of all
// types, as they are written.
func declaredSets(t *testing.T) (enums, constants map[string][]string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	enums, constants = map[string][]string{}, map[string][]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			block, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range block.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if enum := enumOf(block.Doc); enum != nil {
						enums[spec.Name.Name] = enum
					}
				case *ast.ValueSpec:
					of, isNamed := spec.Type.(*ast.Ident)
					if block.Tok != token.CONST || !isNamed || len(spec.Values) != 1 {
						continue
					}
					if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
						value, err := strconv.Unquote(literal.Value)
						if err != nil {
							t.Fatal(err)
						}
						constants[of.Name] = append(constants[of.Name], value)
					}
				}
			}
		}
	}
	return enums, constants
}

func enumOf(doc *ast.CommentGroup) []string {
	if doc == nil {
		return nil
	}
	i := slices.IndexFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, enumMarker) })
	if i < 0 {
		return nil
	}
	return strings.Split(strings.TrimPrefix(doc.List[i].Text, enumMarker), ";")
}

const enumMarker = "// +kubebuilder:validation:Enum="
