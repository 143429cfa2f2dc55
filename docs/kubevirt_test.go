package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testOfAGap is a test that shows a gap of KubeVirt's closed.
var testOfAGap = regexp.MustCompile(`\bTestKubeVirt(G\d+)[A-Z]\w*`)

// Each gap that Drawbridge closes has a test with its number in its name, and the guide
// names exactly these.
func TestEveryGapOfKubeVirtIsShownClosed(t *testing.T) {
	files, err := filepath.Glob("../test/e2e/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	var tests []string
	for _, file := range files {
		tests = append(tests, testOfAGap.FindAllString(page(t, file), -1)...)
	}
	named := testOfAGap.FindAllString(page(t, "guides/kubevirt.md"), -1)
	for _, list := range []*[]string{&tests, &named} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if diff := cmp.Diff(tests, named); diff != "" {
		t.Errorf("tests (-in test/e2e +in the guide):\n%s", diff)
	}
	for n := 1; n <= 11; n++ {
		gap := fmt.Sprintf("G%d", n)
		if !slices.ContainsFunc(tests, func(name string) bool { return testOfAGap.FindStringSubmatch(name)[1] == gap }) {
			t.Errorf("no test shows %s closed", gap)
		}
	}
}
