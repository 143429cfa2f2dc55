//go:build unix

package gitops

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// chartURL is where a release's chart is.
const chartURL = "oci://ghcr.io/drawbridge-dev/charts/drawbridge"

// strictly decodes the object of a kind in a file, and refuses what its type does not know.
func strictly(t *testing.T, file, kind string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(content)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(document, into); err != nil {
			t.Fatalf("%s, %s: %v", file, kind, err)
		}
		return
	}
	t.Fatalf("%s has no %s", file, kind)
}

// helmTemplate renders the chart as Argo CD and the source of a HelmRelease give it, with
// exactly these values.
func helmTemplate(ctx context.Context, t *testing.T, release, namespace string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	objects, err := install.Render(ctx, install.Options{Release: release, Namespace: namespace, Values: values})
	if err != nil {
		t.Fatal(err)
	}
	return withoutHooks(objects)
}

// application is what we use of Argo CD's Application. Its schema was checked with Argo CD's
// own CustomResourceDefinition, see docs/guides/gitops.md.
type application struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       struct {
		Project string `json:"project"`
		Source  struct {
			RepoURL        string `json:"repoURL"`
			Chart          string `json:"chart"`
			TargetRevision string `json:"targetRevision"`
			Helm           struct {
				ReleaseName  string         `json:"releaseName"`
				ValuesObject map[string]any `json:"valuesObject"`
			} `json:"helm"`
		} `json:"source"`
		Destination struct {
			Server    string `json:"server"`
			Namespace string `json:"namespace"`
		} `json:"destination"`
		SyncPolicy struct {
			Automated   map[string]bool `json:"automated"`
			SyncOptions []string        `json:"syncOptions"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// ofArgoCD renders what the Application asks for.
func ofArgoCD(ctx context.Context, t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var app application
	strictly(t, example(t, "argocd", "application.yaml"), "Application", &app)
	source := app.Spec.Source
	if got := "oci://" + source.RepoURL + "/" + source.Chart; got != chartURL {
		t.Errorf("the chart is at %s, want %s", got, chartURL)
	}
	if diff := cmp.Diff([]string{"CreateNamespace=true", "ServerSideApply=true"}, app.Spec.SyncPolicy.SyncOptions); diff != "" {
		t.Errorf("sync options (-want +got):\n%s", diff)
	}
	return helmTemplate(ctx, t, source.Helm.ReleaseName, app.Spec.Destination.Namespace, source.Helm.ValuesObject)
}

// ofHelmRelease renders what a HelmRelease asks for.
func ofHelmRelease(file string) func(context.Context, *testing.T) []*unstructured.Unstructured {
	return func(ctx context.Context, t *testing.T) []*unstructured.Unstructured {
		t.Helper()
		var release helmv2.HelmRelease
		path := example(t, "flux", file)
		strictly(t, path, helmv2.HelmReleaseKind, &release)
		if got := chartOf(t, path, release); got != chartURL {
			t.Errorf("the chart is at %s, want %s", got, chartURL)
		}
		return helmTemplate(ctx, t, release.GetReleaseName(), release.GetReleaseNamespace(), release.GetValues())
	}
}

// chartOf is where the source of a HelmRelease has its chart.
func chartOf(t *testing.T, path string, release helmv2.HelmRelease) string {
	t.Helper()
	if ref := release.Spec.ChartRef; ref != nil {
		var source sourcev1.OCIRepository
		strictly(t, path, ref.Kind, &source)
		if source.Name != ref.Name {
			t.Errorf("the release is of %s, the source is %s", ref.Name, source.Name)
		}
		return source.Spec.URL
	}
	var source sourcev1.HelmRepository
	chart := release.Spec.Chart.Spec
	strictly(t, path, chart.SourceRef.Kind, &source)
	if source.Name != chart.SourceRef.Name {
		t.Errorf("the release is of %s, the source is %s", chart.SourceRef.Name, source.Name)
	}
	return source.Spec.URL + "/" + chart.Chart
}

// overlay is a copy of the folder with the kustomization, and the install.yaml of a release
// beside it.
func overlay(ctx context.Context, t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	content, err := os.ReadFile(example(t, "kustomize", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	// What `make manifests` runs.
	command := exec.CommandContext(ctx, "go", "run", "./hack/manifests", "--version=v0.1.0", "--out="+folder)
	command.Dir = example(t, "..")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("write install.yaml: %v: %s", err, out)
	}
	return folder
}

// build runs kubectl kustomize.
func build(ctx context.Context, t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	built, err := kubectl(ctx, cluster.KubectlOptions{}, "kustomize", folder)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode([]byte(built))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// ofKustomize builds the overlay.
func ofKustomize(ctx context.Context, t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return build(ctx, t, overlay(ctx, t))
}

// ofFluxKustomization builds the overlay with the patches of the Kustomization, as
// kustomize-controller does.
func ofFluxKustomization(ctx context.Context, t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	path := example(t, "flux", "kustomization-of-flux.yaml")
	var repository sourcev1.GitRepository
	strictly(t, path, sourcev1.GitRepositoryKind, &repository)
	var kustomization kustomizev1.Kustomization
	strictly(t, path, kustomizev1.KustomizationKind, &kustomization)
	if got := kustomization.Spec.SourceRef.Name; got != repository.Name {
		t.Errorf("the source is %s, want %s", got, repository.Name)
	}
	root := overlay(ctx, t)
	patched, err := yaml.Marshal(map[string]any{"resources": []string{"drawbridge"}, "patches": kustomization.Spec.Patches})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(filepath.Join(folder, kustomization.Spec.Path), os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), patched, 0o600); err != nil {
		t.Fatal(err)
	}
	return build(ctx, t, folder)
}
