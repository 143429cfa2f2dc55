package statements_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/test/conformance/statements"
)

var root = filepath.Join("..", "..", "..")

func load(t *testing.T) ([]statements.Statement, map[int][]string) {
	t.Helper()
	all, err := statements.All()
	if err != nil {
		t.Fatal(err)
	}
	tests, err := statements.Tests(filepath.Join(root, "test/conformance"), filepath.Join(root, "test/e2e"))
	if err != nil {
		t.Fatal(err)
	}
	return all, tests
}

func TestEveryStatementHasATestOrAReason(t *testing.T) {
	all, tests := load(t)
	if want, got := 114, len(all); want != got {
		t.Fatalf("%d statements, want %d", got, want)
	}
	for _, s := range all {
		if len(tests[s.Number]) == 0 && statements.Unproven[s.Number] == "" {
			t.Errorf("statement %d (%s) has neither a test nor a reason in statements.Unproven", s.Number, s.Title)
		}
		delete(tests, s.Number)
	}
	for n, names := range tests {
		t.Errorf("%v cite statement %d, which does not exist", names, n)
	}
}

// A ruling is about a statement, and its tests are there.
func TestEveryRulingHasTests(t *testing.T) {
	all, _ := load(t)
	files, err := filepath.Glob(filepath.Join(root, "test/e2e/*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(source)
	}
	for n, ruling := range statements.Rulings {
		if n < 1 || n > len(all) || ruling.Says == "" || len(ruling.Tests) == 0 {
			t.Errorf("ruling %d is about no statement, says nothing or has no tests: %+v", n, ruling)
		}
		for _, test := range ruling.Tests {
			if !strings.Contains(sources.String(), "\nfunc "+test+"(t *testing.T) {") {
				t.Errorf("ruling %d: there is no test %s in test/e2e", n, test)
			}
		}
	}
}

func TestPageIsUpToDate(t *testing.T) {
	all, tests := load(t)
	got, err := os.ReadFile(filepath.Join(root, "docs/conformance.md"))
	if err != nil {
		t.Fatalf("%v; run `make generate`", err)
	}
	if diff := cmp.Diff(statements.Page(all, tests), string(got)); diff != "" {
		t.Errorf("docs/conformance.md is out of date, run `make generate` (-want +got):\n%s", diff)
	}
}

func TestSubtestsAreFoundByTheNumbersInTheirNames(t *testing.T) {
	folder := t.TempDir()
	source := `package x
import "testing"
func TestConformance_F1(t *testing.T) {
	t.Run("1 called", nil)
	for range map[string]int{"2, 3 in a table": 1, "40 %": 2, "no number": 3} {}
	for range []struct{name, other string}{{name: "4 by field", other: "5 not a name"}} {}
}
func TestOther(t *testing.T) { t.Run("6 elsewhere", nil) }
`
	if err := os.WriteFile(filepath.Join(folder, "x_test.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := statements.Tests(folder)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Base(folder)
	want := map[int][]string{
		1:  {base + ` TestConformance_F1/"1 called"`},
		2:  {base + ` TestConformance_F1/"2, 3 in a table"`},
		3:  {base + ` TestConformance_F1/"2, 3 in a table"`},
		4:  {base + ` TestConformance_F1/"4 by field"`},
		40: {base + ` TestConformance_F1/"40 %"`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}
