package main

import (
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// tree is the content of all files below a folder.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, relErr := filepath.Rel(folder, path)
		if err == nil {
			err = relErr
		}
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The image is the same, byte by byte, whoever builds it, wherever and whenever; and
// nothing of the machine is in it.
func TestTwoImagesAreTheSame(t *testing.T) {
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	scratch := t.TempDir()
	var trees []map[string]string
	for _, name := range []string{"first", "second"} {
		program := filepath.Join(scratch, name, "drawbridge")
		if err := compile("../..", program, "v1.2.3", platform); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		output := filepath.Join(scratch, name, "image")
		builds := []build{{platform, content}}
		if _, err := write(output, "1.2.3", []byte("licence"), builds); err != nil {
			t.Fatal(err)
		}
		if err := writeArchives(filepath.Dir(output), output, "1.2.3", []byte("licence"), builds); err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree(t, filepath.Dir(output)))
		if name == "first" {
			checkProgram(t, content)
		}
	}
	if len(trees[0]) != len(trees[1]) {
		t.Errorf("%d and %d files", len(trees[0]), len(trees[1]))
	}
	for name, content := range trees[0] {
		if trees[1][name] != content {
			t.Errorf("%s differs", name)
		}
	}
	checkLayout(t, filepath.Join(scratch, "first", "image"), platform)
	checkArchives(t, filepath.Join(scratch, "first"), platform)
}

// checkArchives checks that the archives hold the same image as the layout.
func checkArchives(t *testing.T, folder string, platform v1.Platform) {
	t.Helper()
	tag, err := name.NewTag("ghcr.io/drawbridge-dev/drawbridge:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(folder, "drawbridge-image_v1.2.3_linux_"+platform.Architecture+".docker.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	loaded, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	if out, err := exec.Command("tar", "-xf", filepath.Join(folder, "drawbridge-image_v1.2.3.oci.tar"), "-C", unpacked).CombinedOutput(); err != nil {
		t.Fatalf("unpack the OCI archive: %v: %s", err, out)
	}
	checkLayout(t, unpacked, platform)
	if _, err := os.Stat(filepath.Join(unpacked, "blobs", "sha256", loaded.Hex)); err != nil {
		t.Errorf("the archive for one platform is of another image than the OCI archive: %v", err)
	}
}

func TestProgramsThatAreGivenAreNotCompiled(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	builds, err := read([]string{"linux/arm64=" + program})
	if err != nil {
		t.Fatal(err)
	}
	if len(builds) != 1 || string(builds[0].program) != "a program" || builds[0].platform.Architecture != "arm64" {
		t.Errorf("builds: %v", builds)
	}
	for _, bad := range []string{"linux/arm64", "windows/amd64=" + program, "linux/amd64=" + program + "2"} {
		if _, err := read([]string{bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func checkProgram(t *testing.T, program []byte) {
	t.Helper()
	binary, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range binary.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the program is not static, but there are no libraries in the image")
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte(root)) {
		t.Errorf("the program names the folder it was built in, %s", root)
	}
}

func checkLayout(t *testing.T, folder string, platform v1.Platform) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if ref := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; ref != "1.2.3" {
		t.Errorf("the layout calls the image %q", ref)
	}
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = inner.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || !manifest.Manifests[0].Platform.Equals(platform) {
		t.Fatalf("images: %v", manifest.Manifests)
	}
	image, err := inner.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/drawbridge" {
		t.Errorf("configuration: %+v", config.Config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, error %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		t.Error(err)
	}
}

func TestBadPlatformsAreRefused(t *testing.T) {
	for _, name := range []string{"", "linux", "windows/amd64", "linux/", "linux/arm/v7"} {
		if _, err := parsePlatform(name); err == nil {
			t.Errorf("platform %q is accepted", name)
		}
	}
}
