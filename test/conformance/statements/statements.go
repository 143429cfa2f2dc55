// Package statements knows the numbered conformance statements of the
// EvictionRequest API, and of the native one, and finds the tests that cite them: a
// subtest of a TestConformance_ function whose name begins with the numbers it proves,
// as in "67 completion hands over in one write" or "83, 84 a failed call is counted",
// or of a TestNative_ function, as in "N57 whoever has completed is followed".
package statements

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed statements.tsv
var list string

// Statement is one sentence of the acceptance suite.
type Statement struct {
	// Number is stable; tests cite it.
	Number int
	// Family groups statements: F1 CREATE ... F12 the contract of interceptors.
	Family string
	// Level is E (explicit in the KEP) or D (derived).
	Level string
	// Where it is enforced: S schema, V policy, W webhook, C controller, K interceptor or requester.
	Where string
	// Title is the statement in short.
	Title string
}

// All returns the statements in the order of their numbers.
func All() ([]Statement, error) {
	lines, err := rows(list, 5)
	if err != nil {
		return nil, err
	}
	var all []Statement
	for i, f := range lines {
		if f[0] != strconv.Itoa(i+1) {
			return nil, fmt.Errorf("statement %q: want number %d", f[4], i+1)
		}
		all = append(all, Statement{Number: i + 1, Family: f[1], Level: f[2], Where: f[3], Title: f[4]})
	}
	return all, nil
}

// rows are the lines of a table with so many fields, less its comments.
func rows(table string, fields int) ([][]string, error) {
	var all [][]string
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != fields {
			return nil, fmt.Errorf("line %q: want %d fields, have %d", line, fields, len(f))
		}
		all = append(all, f)
	}
	return all, nil
}

// Unproven are the statements that no test of this version proves, and why.
var Unproven = map[int]string{}

// Ruling is what Drawbridge does beyond a statement.
type Ruling struct {
	// Says what, and when, in a sentence without a full stop.
	Says string
	// Tests that prove it, of test/e2e: they need more than the chart's default values.
	Tests []string
}

// Rulings are those of Drawbridge. The suite's own are part of its statements.
var Rulings = map[int]Ruling{
	77: {
		Says: "with the consent of an EvictionBudget (`spec.exhausted`), and only where an administrator allows it (`budgets.exhausted.enabled`, " +
			"off by default), a pod is deleted instead whose only PodDisruptionBudget can never let it go: with its UID, in its own grace period, " +
			"one at a time, and after the API server has refused its eviction for the time that the EvictionBudget says",
		Tests: []string{
			"TestASingletonGoesInSpiteOfItsBudget", "TestASingletonStays", "TestASingletonWaitsIfTheManagerMustNotDelete",
			"TestTwoSingletonsGoOneAfterTheOther", "TestThePoliciesOfExhaustedBudgets",
		},
	},
	113: {
		Says:  "as for 77, after the eviction API has refused",
		Tests: []string{"TestASingletonGoesInSpiteOfItsBudget"},
	},
}

// citations are how the tests of one list of statements cite them.
type citations struct {
	// function is what the name of their test functions begins with.
	function string
	// number is what a number begins with, and names the numbers at the beginning of a name.
	number string
	names  *regexp.Regexp
	// label is how the page names a folder.
	label func(folder string) string
}

var ours = citations{function: "TestConformance_", names: regexp.MustCompile(`^(\d+(?:, \d+)*) \S`), label: filepath.Base}

// Tests maps each statement's number to the names of the tests that cite it,
// read from the Go test files of the given folders.
func Tests(folders ...string) (map[int][]string, error) { return ours.tests(folders) }

func (c citations) tests(folders []string) (map[int][]string, error) {
	found := map[int][]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", folder, err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", file, err)
			}
			for _, decl := range parsed.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, c.function) {
					c.collect(found, c.label(folder), f)
				}
			}
		}
	}
	for n := range found {
		slices.Sort(found[n])
		found[n] = slices.Compact(found[n])
	}
	return found, nil
}

// collect finds names of subtests: the first argument of a call of Run, a key of
// a table, or the value of a table's field called name.
func (c citations) collect(found map[int][]string, folder string, f *ast.FuncDecl) {
	cite := func(e ast.Expr) {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil {
			return // Not a literal the parser would have accepted.
		}
		m := c.names.FindStringSubmatch(name)
		if m == nil {
			return
		}
		for _, number := range strings.Split(m[1], ", ") {
			if n, err := strconv.Atoi(strings.TrimPrefix(number, c.number)); err == nil {
				found[n] = append(found[n], fmt.Sprintf("%s %s/%q", folder, f.Name.Name, name))
			}
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" && len(n.Args) > 0 {
				cite(n.Args[0])
			}
		case *ast.KeyValueExpr:
			if id, ok := n.Key.(*ast.Ident); ok && id.Name == "name" {
				cite(n.Value)
			} else {
				cite(n.Key)
			}
		}
		return true
	})
}

// Page renders docs/conformance.md.
func Page(all []Statement, tests map[int][]string) string {
	var b strings.Builder
	b.WriteString("<!-- Generated by `make generate`; do not edit. -->\n\n# Conformance\n\n" +
		"Every statement of the acceptance suite of the EvictionRequest API and the tests that prove it, on a real\n" +
		"control plane unless the test says otherwise. Level E is explicit in KEP-4563, D is derived. It is enforced in the\n" +
		"schema (S), a ValidatingAdmissionPolicy (V), the webhook (W), the controller (C) or by interceptors and\n" +
		"requesters (K). Where Drawbridge does more than a statement says, its ruling follows.\n\n| # | Family | Level | Where | Statement | Tests |\n|---|---|---|---|---|---|\n")
	for _, s := range all {
		title, proofs := s.Title, slices.Clone(tests[s.Number])
		if ruling, ok := Rulings[s.Number]; ok {
			title += ". *Ruling of Drawbridge: " + ruling.Says + "*"
			for _, test := range ruling.Tests {
				proofs = append(proofs, "e2e "+test)
			}
		}
		proof := strings.Join(proofs, "<br>")
		if why := Unproven[s.Number]; why != "" {
			if proof != "" {
				proof += "<br>"
			}
			proof += "*" + why + "*"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s |\n", s.Number, s.Family, s.Level, s.Where, title, proof)
	}
	return b.String()
}
