// Package push tests the scripts that publish a release, against a registry on this machine.
// A module of its own, because of what crane requires.
package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const version = "v1.2.3"

// made is a folder with an image of two platforms and the real chart, as `make release`
// writes them.
func made(t *testing.T) (folder string, image v1.Hash) {
	t.Helper()
	folder = t.TempDir()
	index, err := random.Index(64, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Write(filepath.Join(folder, "image"), index); err != nil {
		t.Fatal(err)
	}
	if image, err = index.Digest(); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"checksums.txt": "sums", "release-notes.md": "notes", "install.yaml": "manifests"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	number := strings.TrimPrefix(version, "v")
	run(t, nil, "go", "-C", "../..", "tool", "-modfile=go.tools.helm.mod", "helm", "package", "charts/drawbridge",
		"--version="+number, "--app-version="+number, "--destination="+folder)
	return folder, image
}

// run runs a command, and returns what it printed.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), env, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(ctx context.Context, env []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return string(out), nil
}

// local is an empty registry.
func local(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/drawbridge-dev"
}

// stub is a program in the PATH that notes its arguments, one a line.
func stub(t *testing.T, program string) (env []string, called func() []string) {
	t.Helper()
	folder := t.TempDir()
	notes := filepath.Join(folder, "notes")
	script := "#!/bin/sh\nprintf '%s\\n' \"$*\" >>'" + notes + "'\n"
	if err := os.WriteFile(filepath.Join(folder, program), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + folder + string(filepath.ListSeparator) + os.Getenv("PATH")}, func() []string {
		content, err := os.ReadFile(notes)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(content)), "\n")
	}
}

// The way of a release after `make release`: what is signed is what the registry has.
func TestARegistryGetsImageAndChartAndWhatItHasIsSigned(t *testing.T) {
	folder, image := made(t)
	at := local(t)
	output := filepath.Join(t.TempDir(), "output")
	run(t, []string{"GITHUB_OUTPUT=" + output}, "./push.sh", version, at, folder)

	reference, err := name.ParseReference(at + "/drawbridge:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(reference, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("want the images of two platforms, have %v (%v)", manifest, err)
	}
	chart, err := name.ParseReference(at + "/charts/drawbridge:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Get(chart, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}

	references := []string{at + "/drawbridge@" + image.String(), at + "/charts/drawbridge@" + pushed.Digest.String()}
	env, called := stub(t, "cosign")
	run(t, env, "./sign.sh", folder)
	if diff := cmp.Diff([]string{"sign --yes " + references[0], "sign --yes " + references[1]}, called()); diff != "" {
		t.Errorf("calls of cosign (-want +got):\n%s", diff)
	}
	written, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("image-digest=%s\nchart-digest=%s\n", image, pushed.Digest)
	if diff := cmp.Diff(want, string(written)); diff != "" {
		t.Errorf("outputs of the step (-want +got):\n%s", diff)
	}

	// helm finds the chart where its users look for it, and it is the same file.
	pulled := t.TempDir()
	run(t, nil, "go", "-C", "../..", "tool", "-modfile=go.tools.helm.mod", "helm", "pull", "oci://"+at+"/charts/drawbridge",
		"--version=1.2.3", "--plain-http", "--destination="+pulled)
	sent, err1 := os.ReadFile(filepath.Join(folder, "drawbridge-1.2.3.tgz"))
	got, err2 := os.ReadFile(filepath.Join(pulled, "drawbridge-1.2.3.tgz"))
	if err := errors.Join(err1, err2); err != nil || string(sent) != string(got) {
		t.Errorf("%d bytes were pushed, %d pulled (%v)", len(sent), len(got), err)
	}
}

func TestAReleaseHasAllFilesAndTheNotes(t *testing.T) {
	folder, _ := made(t)
	cases := map[string]struct{ version, kind string }{
		"a version":    {"v1.2.3", ""},
		"a prerelease": {"v1.2.3-rc.1", " --prerelease"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			env, called := stub(t, "gh")
			run(t, env, "./publish.sh", tc.version, folder)
			want := "release create " + tc.version + " --verify-tag --title=" + tc.version + " --notes-file=" + folder + "/release-notes.md" + tc.kind +
				" " + folder + "/checksums.txt " + folder + "/drawbridge-1.2.3.tgz " + folder + "/install.yaml"
			if diff := cmp.Diff([]string{want}, called()); diff != "" {
				t.Errorf("calls of gh (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheScriptsSayWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	cases := map[string]struct {
		command []string
		want    string
	}{
		"nothing was built":  {[]string{"./push.sh", version, "127.0.0.1:1/x", empty}, "run first: make release VERSION=v1.2.3"},
		"no registry":        {[]string{"./push.sh", version, "", empty}, "make push VERSION=v1.2.3 REGISTRY="},
		"nothing was pushed": {[]string{"./sign.sh", empty}, "run first: make push"},
		"no release":         {[]string{"./publish.sh", version, empty}, "run first: make release"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := try(t.Context(), nil, tc.command[0], tc.command[1:]...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
