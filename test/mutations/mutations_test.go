package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// What has gone stale is found by `make test`, although nobody makes the mutations there.
func TestTheListIsTrue(t *testing.T) {
	all, err := read("mutations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := (options{root: "../.."}).stale(all); err != nil {
		t.Error(err)
	}
	if len(all) < 60 {
		t.Errorf("there are only %d mutations", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.File] {
			t.Errorf("%s has two mutations", m.File)
		}
		seen[m.File] = true
		if strings.HasSuffix(m.File, "_test.go") || !strings.HasSuffix(m.File, ".go") {
			t.Errorf("%s is no source of the product", m.File)
		}
		if m.Says == "" || !strings.HasSuffix(m.Says, ".") {
			t.Errorf("%s: %q is no sentence about what is wrong", m.File, m.Says)
		}
		if info, err := os.Stat(filepath.Join("..", "..", m.Tests)); !strings.HasPrefix(m.Tests, "./") || err != nil || !info.IsDir() {
			t.Errorf("%s: %q is no package of tests", m.File, m.Tests)
		}
	}
}

func TestHowARunIsJudged(t *testing.T) {
	const begin = `{"Action":"start","Package":"p"}` + "\n"
	cases := map[string]struct {
		printed string
		passed  bool
		want    result
	}{
		"the tests pass": {begin + `{"Action":"pass","Package":"p"}`, true, result{verdict: notFound}},
		"a test fails": {
			begin + `{"Action":"fail","Package":"p","Test":"TestA/case"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}`,
			false, result{verdict: found, by: "TestA"}},
		"the process ends without a test that fails": {begin + `{"Action":"fail","Package":"p"}`, false, result{verdict: found}},
		"the package does not compile": {
			`{"ImportPath":"p","Action":"build-output","Output":"p.go:1: syntax error\n"}` + "\n" + `{"ImportPath":"p","Action":"build-fail"}` + "\n" +
				begin + `{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			false, result{verdict: noProgram, output: "p.go:1: syntax error\n"}},
		"what it imports does not compile": {begin + `{"Action":"fail","Package":"p","FailedBuild":"q"}`, false, result{verdict: noProgram}},
		"the go command fails":             {"no such package\n", false, result{verdict: couldNotRun}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := judge([]byte(tc.printed), tc.passed)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

const program = `package p

func Small(n int) bool { return n < 3 }
`

const itsTest = `package p

import "testing"

func TestSmall(t *testing.T) {
	if !Small(2) || Small(3) {
		t.Error("wrong")
	}
}
`

func TestMutationsOfAModule(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module p\n", "p.go": program, "p_test.go": itsTest} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct{ find, replace, run, want string }{
		"one that a test finds":            {"n < 3", "n <= 3", "", "p.go: found"},
		"one that no test finds":           {"n < 3", "n < 3 || n > 9", "", "p.go: NOT FOUND"},
		"one that no test looks for":       {"n < 3", "n <= 3", "TestOther", "p.go: NOT FOUND"},
		"one that is no program":           {"n < 3", "m < 3", "", "p.go: does not compile"},
		"one whose text is not there":      {"n > 3", "n >= 3", "", "update the list: in p.go this stands 0 times"},
		"one whose text is there twice":    {"n", "m", "", "update the list: in p.go this stands 5 times"},
		"one that is replaced by the same": {"n < 3", "n < 3", "", "replaced by itself"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "list.yaml")
			text := "- {file: p.go, find: '" + tc.find + "', replace: '" + tc.replace + "', tests: ., run: '" + tc.run + "', says: It is wrong.}\n"
			if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := (options{root: root, list: list, out: &out, clock: clock.RealClock{}, unmutated: true}).do(t.Context())
			if err != nil {
				out.WriteString(err.Error())
			}
			if got := out.String(); !strings.Contains(got, tc.want) || (err == nil) != (tc.want == "p.go: found") {
				t.Errorf("want %q, got %v:\n%s", tc.want, err, got)
			}
			if content, err := os.ReadFile(filepath.Join(root, "p.go")); err != nil || string(content) != program {
				t.Errorf("the source is changed: %v\n%s", err, content)
			}
		})
	}
}
