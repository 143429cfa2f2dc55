//go:build unix

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The API server accepts the examples as they are. Package budget tests that they can be
// read as well.
func TestTheExamplesOfBudgetsAreAccepted(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	files := must(filepath.Glob("../../examples/budgets/*.yaml"))(t)
	if len(files) == 0 {
		t.Fatal("there are none")
	}
	for _, file := range files {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(must(os.ReadFile(file))(t), &u.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		u.SetNamespace(namespace)
		if err := admin.Create(t.Context(), u, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
