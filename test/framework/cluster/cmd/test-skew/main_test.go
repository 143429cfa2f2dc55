package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const empty = "# Versions\n\n" + tableBegins + "\n" + tableEnds + "\n\nMore.\n"

func TestTheTableKeepsWhatOtherRunsWrote(t *testing.T) {
	page := empty
	for _, run := range []struct {
		release, name string
		passed        int
	}{{"v1.30.14", "test/e2e", 10}, {"v1.37.2", "test/e2e/install", 20}, {"v1.37.2", "test/e2e", 21}, {"v1.30.15", "test/e2e/install", 30}} {
		var err error
		if page, err = withCell(page, run.release, run.name, run.passed); err != nil {
			t.Fatal(err)
		}
	}
	want := "# Versions\n\n" + tableBegins + "\n" +
		"| Kubernetes | `test/e2e` | `test/e2e/install` |\n|---|---|---|\n" +
		"| v1.37.2 | 21 passed | 20 passed |\n" +
		"| v1.30.15 | not run | 30 passed |\n" +
		tableEnds + "\n\nMore.\n"
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	for name, content := range map[string]string{"no table": "# Versions\n", "no end": tableBegins + "\n"} {
		if _, err := withCell(content, "v1.30.14", "test/e2e", 1); err == nil {
			t.Errorf("a page with %s is written", name)
		}
	}
	if _, err := withCell(empty, "v1.30.14", "test/e2e", 0); err == nil {
		t.Error("a run without tests is written down")
	}
}

func TestWhatIsCountedAndPrinted(t *testing.T) {
	events := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b.go:1: no\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c.go:1: not here\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p","Test":"TestD/with_a_case"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t1.0s\n"}
{"Action":"pass","Package":"p"}
# p
`
	var out strings.Builder
	passed, err := follow(strings.NewReader(events), &out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(2, passed); diff != "" {
		t.Errorf("passed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("    b.go:1: no\n    c.go:1: not here\nok  \tp\t1.0s\n# p\n", out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}
