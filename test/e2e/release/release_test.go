//go:build linux

// Package release_test takes the way of a stranger: from the files of a release, without a
// checkout, to a drain that was intercepted.
package release_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

const (
	version = "v0.0.0-test.1"
	// patience bounds building a release and using it, when nothing is in a cache.
	patience = 20 * time.Minute
)

var kube *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{}, func(c *cluster.Cluster) error {
		kube = c
		return nil
	}))
}

// makeRelease builds a release for this machine's platform only, and returns a folder with what is
// published of it, and nothing else.
func makeRelease(ctx context.Context, t *testing.T) string {
	t.Helper()
	chart, err := install.Chart(ctx)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(filepath.Dir(chart))
	// The program and the plugin are built from these.
	if _, err := manager.Build(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := manager.BuildPlugin(ctx); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{".goreleaser.yaml", "Makefile", "CHANGELOG.md", "LICENSE"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Fatal(err)
		}
	}
	dist := filepath.Join(t.TempDir(), "dist")
	command := exec.CommandContext(ctx, "make", "--silent", "release", "VERSION="+version, "PLATFORMS=linux/"+runtime.GOARCH, "DIST="+dist)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	downloads := t.TempDir()
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "krew" {
			continue // The layout of the image goes to a registry.
		}
		if err := os.Rename(filepath.Join(dist, entry.Name()), filepath.Join(downloads, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return downloads
}

// shell runs commands in a folder, with kubectl, helm, and what is in its bin.
func shell(ctx context.Context, t *testing.T, folder string, commands ...string) string {
	t.Helper()
	kubeconfig, err := kube.KubeconfigFile("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	helm, err := install.Helm(ctx)
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{filepath.Join(folder, "bin"), filepath.Join(kube.Dir(), "bin"), filepath.Dir(helm), "/usr/bin", "/bin"}, string(filepath.ListSeparator))
	program, err := kube.StartProgram(ctx, cluster.ProgramOptions{Env: []string{"KUBECONFIG=" + kubeconfig, "PATH=" + path, "HOME=" + folder}},
		"/bin/bash", "-c", "set -euo pipefail\ncd "+folder+"\n"+strings.Join(commands, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	result, err := program.Wait()
	if err := errors.Join(err, result.Err()); err != nil {
		t.Fatalf("%s: %v", commands[0], err)
	}
	return result.Stdout + result.Stderr
}

func TestFromTheFilesOfAReleaseToAnInterceptedDrain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	folder := makeRelease(ctx, t)
	archive := "kubectl-drawbridge_" + version + "_linux_" + runtime.GOARCH
	number := strings.TrimPrefix(version, "v")

	// As docs/operations/release.md says.
	shell(ctx, t, folder, "sha256sum --check --strict checksums.txt", "mkdir bin", "tar -xzf "+archive+".tar.gz -C bin", "test -f bin/LICENSE", "test -x bin/kubectl_complete-drawbridge")
	if said := strings.TrimSpace(shell(ctx, t, folder, "kubectl drawbridge version --client -o json")); !strings.Contains(said, `"`+version+`"`) {
		t.Errorf("the plugin says that its version is %s, want %s", said, version)
	}
	if said := shell(ctx, t, folder, "kubectl __complete drawbridge stat"); !strings.Contains(said, "status\t") {
		t.Errorf("kubectl completes the plugin's command with\n%s", said)
	}
	program := programOf(t, folder, "drawbridge-image_"+version+".oci.tar", filepath.Join(folder, "image"))
	if said := strings.TrimSpace(shell(ctx, t, folder, program+" version")); said != version {
		t.Errorf("the manager says that its version is %q, want %q", said, version)
	}
	wantBill(t, filepath.Join(folder, "drawbridge_"+version+"_linux_"+runtime.GOARCH+".cdx.json"))
	wantBill(t, filepath.Join(folder, archive+".cdx.json"))
	wantChart(t, shell(ctx, t, folder, "helm show chart drawbridge-"+number+".tgz"), number)

	// The pods of the Deployment run nowhere here, so the same program runs beside them.
	if _, err := kube.AddNodes(ctx, 2, func(*corev1.Node) {}); err != nil {
		t.Fatal(err)
	}
	inst, err := manager.Install(ctx, kube, manager.InstallOptions{
		Chart:  filepath.Join(folder, "drawbridge-"+number+".tgz"),
		Values: map[string]any{"deployment": map[string]any{"enabled": true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	process, err := inst.StartProcess(ctx, manager.ProcessOptions{Binary: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	})
	out := shell(ctx, t, folder,
		`[[ $(kubectl -n drawbridge-system get deployment drawbridge -o jsonpath='{.spec.template.spec.containers[0].image}') == ghcr.io/drawbridge-dev/drawbridge:`+number+` ]]`,
		"kubectl create namespace shop",
		"kubectl label namespace shop drawbridge.dev/surge=enabled",
		"kubectl -n shop create deployment web --image=nginx",
		"kubectl -n shop create poddisruptionbudget web --selector=app=web --min-available=1",
		"kubectl -n shop rollout status deployment/web",
		`node=$(kubectl -n shop get pods -l app=web -o jsonpath='{.items[0].spec.nodeName}')`,
		`kubectl drain "$node" --ignore-daemonsets`,
		`kubectl -n shop get evictionrequests`,
		`kubectl drawbridge status`,
	)
	for _, want := range []string{
		`error when evicting pods/"web-\S+" .*denied the request: Eviction triggered evacuation: `,
		`(?m)^node/\S+ drained$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("nothing in the output matches %s:\n%s", want, out)
		}
	}
}

// wantChart checks what `helm show chart` says of the package.
func wantChart(t *testing.T, shown, number string) {
	t.Helper()
	var chart struct {
		Version     string            `json:"version"`
		AppVersion  string            `json:"appVersion"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal([]byte(shown), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version != number || chart.AppVersion != number {
		t.Errorf("the chart has version %s and appVersion %s, want %s", chart.Version, chart.AppVersion, number)
	}
	type image struct {
		Name      string   `json:"name"`
		Image     string   `json:"image"`
		Platforms []string `json:"platforms"`
	}
	var images []image
	if err := yaml.UnmarshalStrict([]byte(chart.Annotations["artifacthub.io/images"]), &images); err != nil {
		t.Fatal(err)
	}
	want := []image{{Name: "drawbridge", Image: "ghcr.io/drawbridge-dev/drawbridge:" + number, Platforms: []string{"linux/" + runtime.GOARCH}}}
	if diff := cmp.Diff(want, images); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	var changes []struct {
		Kind        string `json:"kind"`
		Description string `json:"description"`
	}
	if err := yaml.UnmarshalStrict([]byte(chart.Annotations["artifacthub.io/changes"]), &changes); err != nil || len(changes) == 0 {
		t.Errorf("changes %v: %v", changes, err)
	}
	if chart.Annotations["artifacthub.io/prerelease"] != "true" {
		t.Errorf("%s is a prerelease, and the annotations do not say so", number)
	}
}

// wantBill checks that a bill of materials is of this version, and lists something.
func wantBill(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct {
				Version string `json:"version"`
			} `json:"component"`
		} `json:"metadata"`
		Components []struct{} `json:"components"`
	}
	if err := json.Unmarshal(content, &bill); err != nil {
		t.Fatal(err)
	}
	if bill.Format != "CycloneDX" || bill.Metadata.Component.Version != version || len(bill.Components) < 50 {
		t.Errorf("%s: format %s, version %s, %d components", filepath.Base(path), bill.Format, bill.Metadata.Component.Version, len(bill.Components))
	}
}
