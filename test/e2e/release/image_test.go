//go:build linux

package release_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// descriptor points to a blob, as the image specification of OCI has it.
type descriptor struct {
	Digest   string `json:"digest"`
	Platform *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

// programOf unpacks the image for this machine from an OCI archive, as a container runtime
// does, and returns where its entry point is.
func programOf(t *testing.T, folder, archive, to string) string {
	t.Helper()
	layout, root := filepath.Join(to, "layout"), filepath.Join(to, "root")
	unpack(t, filepath.Join(folder, archive), layout, false)
	var top, index struct {
		Manifests []descriptor `json:"manifests"`
	}
	decode(t, filepath.Join(layout, "index.json"), &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("%d images in %s, want 1", len(top.Manifests), archive)
	}
	decode(t, blob(layout, top.Manifests[0]), &index)
	for _, m := range index.Manifests {
		if m.Platform == nil || m.Platform.OS != "linux" || m.Platform.Architecture != runtime.GOARCH {
			continue
		}
		var manifest struct {
			Config descriptor   `json:"config"`
			Layers []descriptor `json:"layers"`
		}
		decode(t, blob(layout, m), &manifest)
		for _, layer := range manifest.Layers {
			unpack(t, blob(layout, layer), root, true)
		}
		var config struct {
			Config struct {
				User       string   `json:"User"`
				Entrypoint []string `json:"Entrypoint"`
			} `json:"config"`
		}
		decode(t, blob(layout, manifest.Config), &config)
		if len(config.Config.Entrypoint) != 1 || config.Config.User == "" {
			t.Fatalf("configuration of the image: %+v", config)
		}
		return filepath.Join(root, config.Config.Entrypoint[0])
	}
	t.Fatalf("no image for linux/%s in %s", runtime.GOARCH, archive)
	return ""
}

func blob(layout string, d descriptor) string {
	return filepath.Join(layout, "blobs", strings.ReplaceAll(d.Digest, ":", string(filepath.Separator)))
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
}

// unpack writes the files of a tar into a folder.
func unpack(t *testing.T, path, folder string, compressed bool) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	var content io.Reader = file
	if compressed {
		if content, err = gzip.NewReader(file); err != nil {
			t.Fatal(err)
		}
	}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("unpack %s: %v", path, err)
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			t.Fatalf("unpack %s: %v", path, err)
		}
		to := filepath.Join(folder, filepath.FromSlash(header.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, header.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
}
