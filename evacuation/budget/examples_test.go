package budget

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// What the examples and the pages show can be used as it is.
func TestTheExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/budgets/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, file := range append(files, "../../docs/guides/budgets.md", "../../docs/guides/from-rollout-operator.md") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if filepath.Ext(file) == ".yaml" {
			shown[name] = string(content)
			continue
		}
		for _, block := range yamlBlock.FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(block[1], "kind: EvictionBudget") {
				shown[name+":"+block[1]] = block[1]
			}
		}
	}
	if len(shown) < len(files)+2 {
		t.Errorf("there are only %d", len(shown))
	}
	for name, content := range shown {
		var budget v1alpha1.EvictionBudget
		if err := yaml.UnmarshalStrict([]byte(content), &budget); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p := compile(&budget); p.problem != nil {
			t.Errorf("%s: %v", name, p.problem)
		}
	}
}
