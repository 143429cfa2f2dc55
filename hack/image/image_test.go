package main

import (
	"bytes"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
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
		if err := compile("../..", program, platform); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		output := filepath.Join(scratch, name, "image")
		if _, err := write(output, "1.2.3", []byte("licence"), []build{{platform, content}}); err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree(t, output))
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
