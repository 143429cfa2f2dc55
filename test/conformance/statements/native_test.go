package statements_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/test/conformance/statements"
	"github.com/drawbridge-dev/drawbridge/test/framework/gocommand"
)

func loadNative(t *testing.T) ([]statements.NativeStatement, []statements.Case, map[int][]string) {
	t.Helper()
	all, err := statements.Native()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := statements.Cases()
	if err != nil {
		t.Fatal(err)
	}
	tests, err := statements.NativeTests(root)
	if err != nil {
		t.Fatal(err)
	}
	return all, cases, tests
}

func TestOnlyNativeStatementsThatExistAreCited(t *testing.T) {
	all, cases, tests := loadNative(t)
	if len(all) == 0 || len(cases) == 0 {
		t.Fatalf("%d statements and %d cases", len(all), len(cases))
	}
	for n, names := range tests {
		if n < 1 || n > len(all) {
			t.Errorf("%v cite statement N%d, which does not exist", names, n)
		}
	}
	for _, c := range cases {
		for _, n := range c.Statements {
			if n < 1 || n > len(all) {
				t.Errorf("case %q cites statement N%d, which does not exist", c.Name, n)
			}
		}
	}
}

// The sections about the API server need nothing that is still to be written.
func TestEveryStatementAboutTheAPIServerHasATest(t *testing.T) {
	all, _, tests := loadNative(t)
	for _, s := range all {
		if strings.HasPrefix(s.Section, "C.") && len(tests[s.Number]) == 0 {
			t.Errorf("statement N%d (%s) has no test", s.Number, s.Title)
		}
	}
}

func TestNativePageIsUpToDate(t *testing.T) {
	all, cases, tests := loadNative(t)
	got, err := os.ReadFile(filepath.Join(root, "docs/conformance-native.md"))
	if err != nil {
		t.Fatalf("%v; run `make generate`", err)
	}
	if diff := cmp.Diff(statements.NativePage(all, cases, tests), string(got)); diff != "" {
		t.Errorf("docs/conformance-native.md is out of date, run `make generate` (-want +got):\n%s", diff)
	}
}

// A new Kubernetes may rename its cases, or have more.
func TestCasesAreKubernetesOwn(t *testing.T) {
	_, cases, _ := loadNative(t)
	kubernetes, err := gocommand.Output(t.Context(), filepath.Join(root, "test/framework/cluster/kube"), "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(kubernetes, "pkg/apis/lifecycle/validation/validation_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, c := range cases {
		if !strings.Contains(string(source), "\t\t\""+c.Name+"\": {") {
			t.Errorf("Kubernetes has no case %q", c.Name)
		}
		if slices.Contains(seen, c.Name) {
			t.Errorf("case %q is here twice", c.Name)
		}
		seen = append(seen, c.Name)
	}
}

func TestNativeSubtestsAreFoundByTheNumbersInTheirNames(t *testing.T) {
	folder := t.TempDir()
	for _, parent := range []string{"evacuation", "test/conformance"} {
		where := filepath.Join(folder, parent, "native")
		if err := os.MkdirAll(where, 0o755); err != nil {
			t.Fatal(err)
		}
		source := `package x
import "testing"
func TestNative_A6(t *testing.T) {
	t.Run("N1 called", nil)
	for range map[string]int{"N2, N3 in a table": 1, "4 of the other list": 2} {}
}
func TestConformance_F1(t *testing.T) { t.Run("N5 elsewhere", nil) }
`
		if err := os.WriteFile(filepath.Join(where, "x_test.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := statements.NativeTests(folder)
	if err != nil {
		t.Fatal(err)
	}
	both := func(name string) []string {
		return []string{"conformance/native TestNative_A6/" + name, "evacuation/native TestNative_A6/" + name}
	}
	want := map[int][]string{1: both(`"N1 called"`), 2: both(`"N2, N3 in a table"`), 3: both(`"N2, N3 in a table"`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
}

func TestTheNativePageCountsWhatHasNoTest(t *testing.T) {
	all := []statements.NativeStatement{{Number: 1, Section: "C.1", Title: "Proved."}, {Number: 2, Section: "C.1", Title: "Not proved."}}
	cases := []statements.Case{{Name: "a case", Ours: "It waits.", Statements: []int{1, 2}}}
	page := statements.NativePage(all, cases, map[int][]string{1: {"native TestNative_C1/\"N1 proved\""}})
	for _, want := range []string{
		"\n2 statements; 1 of them have no test yet.\n",
		"| N1 | C.1 | Proved. | native TestNative_C1/\"N1 proved\" |\n",
		"| N2 | C.1 | Not proved. | *no test yet* |\n",
		"| a case | refused | It waits. | N1, N2 | native TestNative_C1/\"N1 proved\" |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q in:\n%s", want, page)
		}
	}
}
