package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// The table of the page is about the releases that the tests can run on, and the oldest is
// the one that the chart still allows.
func TestTheSupportedReleasesAgree(t *testing.T) {
	content := page(t, "operations/versions.md")
	_, section, _ := strings.Cut(content, "## Supported Kubernetes")
	var tested []string
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if _, err := version.ParseGeneric(cells[0]); err != nil || len(cells) < 2 {
			continue
		}
		for _, cell := range cells[1:] {
			if !regexp.MustCompile(`^[1-9][0-9]* passed$`).MatchString(cell) {
				t.Errorf("Kubernetes %s: the table says %q", cells[0], cell)
			}
		}
		tested = append(tested, cells[0])
	}
	slices.Sort(tested)
	embedded := cluster.Versions()
	if diff := cmp.Diff(embedded, tested); diff != "" {
		t.Errorf("run make test-skew, for both: releases in the table (-embedded +table):\n%s", diff)
	}
	oldest := version.MustParseGeneric(embedded[0])
	chart := regexp.MustCompile(`(?m)^kubeVersion: ">=(\d+\.\d+)\.0-0"$`).FindStringSubmatch(page(t, "../charts/drawbridge/Chart.yaml"))
	if chart == nil || chart[1] != fmt.Sprintf("%d.%d", oldest.Major(), oldest.Minor()) {
		t.Fatalf("the chart allows %v, and the oldest release of the tests is %s", chart, oldest)
	}
	if want := "The chart installs on Kubernetes " + chart[1] + " and later"; !strings.Contains(content, want) {
		t.Errorf("the page does not say %q", want)
	}
	for i, module := range []string{"kube-oldest", "kube"} {
		required := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes (\S+)$`).FindStringSubmatch(page(t, "../test/framework/cluster/"+module+"/go.mod"))
		if required == nil || required[1] != embedded[i] {
			t.Errorf("module %s requires Kubernetes %v, the tests say %s", module, required, embedded[i])
		}
	}
}
