// Package internal checks conventions that hold in all product code.
package internal

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/drawbridge-dev/drawbridge/"

// product are the folders whose code runs in clusters, or shows how to write such code.
var product = []string{"api", "cmd", "evacuation", "examples", "internal", "pdb", "translate", "webhook"}

// public are the interfaces that the SDK looks for in what authors give it: that an
// interceptor may leave them out is its contract.
var public = map[string]bool{"evacuation/interceptor.Canceler": true, "evacuation/interceptor.Goner": true, "evacuation/interceptor.PodEvictions": true}

// source is one file of a folder, which is relative to the module.
type source struct {
	folder, name string
	tree         *ast.File
}

// An interface that is looked for at run time is lost without a word when a method is
// renamed, and what rests on it with it. It is to be a required field of that type, or
// asserted by `var _ X = &y{}`.
func TestNoInterfaceIsLookedForAtRunTime(t *testing.T) {
	files := token.NewFileSet()
	var sources []source
	for _, folder := range product {
		err := filepath.WalkDir(filepath.Join("..", folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			tree, err := parser.ParseFile(files, name, nil, 0)
			inModule := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(name), ".."+string(filepath.Separator)))
			sources = append(sources, source{inModule, name, tree})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(sources) < 100 {
		t.Fatalf("only %d files are looked at", len(sources))
	}
	for _, found := range lookedFor(files, sources) {
		t.Error(found)
	}
}

func TestWhatIsLookedFor(t *testing.T) {
	const other = `package preflight
type Interceptor interface{ Preflight() }
type Outcome int`
	cases := map[string]struct {
		body string
		want []string
	}{
		"an anonymous interface":                {`_, _ = x.(interface{ Err() error })`, []string{"f.go:6: an anonymous interface"}},
		"in a type switch":                      {`switch x.(type) { case error, interface{ Err() error }: }`, []string{"f.go:6: an anonymous interface"}},
		"an interface of the package":           {`_ = x.(closer)`, []string{"f.go:6: webhook.closer"}},
		"an interface of another package":       {`_ = x.(preflight.Interceptor)`, []string{"f.go:6: evacuation/preflight.Interceptor"}},
		"under another name":                    {`_ = x.(renamed.Interceptor)`, []string{"f.go:6: evacuation/preflight.Interceptor"}},
		"twice":                                 {`_, _ = x.(closer), x.((closer))`, []string{"f.go:6: webhook.closer", "f.go:6: webhook.closer"}},
		"a type of the package":                 {`_ = x.(*thing)`, nil},
		"a type of another package":             {`_ = x.(preflight.Outcome)`, nil},
		"an interface of somebody else":         {`_ = x.(client.Object)`, nil},
		"a type switch over types":              {`switch x.(type) { case *thing, nil: }`, nil},
		"the optional interfaces of the SDK":    {`_, _ = x.(interceptor.Canceler), x.(interceptor.Goner)`, nil},
		"a variable that asserts at build time": {`var _ closer = &thing{}`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files := token.NewFileSet()
			parse := func(folder, name, text string) source {
				tree, err := parser.ParseFile(files, name, text, 0)
				if err != nil {
					t.Fatal(err)
				}
				return source{folder, name, tree}
			}
			got := lookedFor(files, []source{
				parse("evacuation/preflight", "other.go", other),
				parse("evacuation/interceptor", "sdk.go", "package interceptor\ntype Canceler interface{ Cancel() }\ntype Goner interface{ Gone() }"),
				parse("webhook", "f.go", fmt.Sprintf(`package webhook
import ("sigs.k8s.io/controller-runtime/pkg/client"; "%[1]sevacuation/interceptor"; "%[1]sevacuation/preflight"; renamed "%[1]sevacuation/preflight")
type closer interface{ Close() }
type thing struct{}
func f(x any) {
%s
}`, module, tc.body)),
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
}

// lookedFor finds type assertions and cases of type switches whose type is an interface
// without a name, or one that the sources declare and that is not public.
func lookedFor(files *token.FileSet, sources []source) (found []string) {
	ours := interfacesOf(sources)
	for _, s := range sources {
		check := func(asserted ast.Expr) {
			what := s.named(asserted)
			if _, ok := ast.Unparen(asserted).(*ast.InterfaceType); ok {
				what = "an anonymous interface"
			} else if !ours[what] || public[what] {
				return
			}
			found = append(found, fmt.Sprintf("%s:%d: %s", s.name, files.Position(asserted.Pos()).Line, what))
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				if n.Type != nil { // It is nil in x.(type).
					check(n.Type)
				}
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					if clause, ok := clause.(*ast.CaseClause); ok {
						for _, asserted := range clause.List {
							check(asserted)
						}
					}
				}
			}
			return true
		})
	}
	return found
}

// interfacesOf are the interfaces that are declared, as FOLDER.NAME.
func interfacesOf(sources []source) map[string]bool {
	declared := map[string]bool{}
	for _, s := range sources {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if _, ok := spec.Type.(*ast.InterfaceType); ok {
					declared[s.folder+"."+spec.Name.Name] = true
				}
			}
			return true
		})
	}
	return declared
}

// named is the type that an expression names, as FOLDER.NAME; empty if it is none of ours.
func (s source) named(expr ast.Expr) string {
	switch expr := ast.Unparen(expr).(type) {
	case *ast.Ident:
		return s.folder + "." + expr.Name
	case *ast.SelectorExpr:
		of, ok := expr.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, spec := range s.tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			called := path.Base(imported)
			if spec.Name != nil {
				called = spec.Name.Name
			}
			if folder, ok := strings.CutPrefix(imported, module); ok && called == of.Name {
				return folder + "." + expr.Sel.Name
			}
		}
	}
	return ""
}
