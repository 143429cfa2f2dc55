package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The oldest Kubernetes must stay as old as it is.
const heldBack = "/test/framework/cluster/kube-oldest"

func TestEveryModuleIsKeptUpToDate(t *testing.T) {
	content, err := os.ReadFile("../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			listed = append(listed, update.Directories...)
		}
	}
	var modules []string
	err = fs.WalkDir(os.DirFS(".."), ".", func(name string, _ fs.DirEntry, err error) error {
		if folder := path.Join("/", path.Dir(name)); err == nil && path.Base(name) == "go.mod" && folder != heldBack {
			modules = append(modules, filepath.ToSlash(folder))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	slices.Sort(modules)
	if diff := cmp.Diff(modules, listed); diff != "" {
		t.Errorf("folders in .github/dependabot.yml (-want +got):\n%s", diff)
	}
}
