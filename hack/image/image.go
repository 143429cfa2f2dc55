package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user has no name in the image, which has no passwd file either. The kubelet
	// wants a number to see that it is not root.
	user = "65532:65532"
	// source is where the image comes from.
	source = "https://github.com/drawbridge-dev/drawbridge"
)

// build is the program for a platform.
type build struct {
	platform v1.Platform
	program  []byte
}

// parsePlatform reads OS/ARCH. Only linux has images.
func parsePlatform(name string) (v1.Platform, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 2 || parts[0] != "linux" || parts[1] == "" {
		return v1.Platform{}, fmt.Errorf("platform %q: want linux/ARCH, for example linux/amd64", name)
	}
	return v1.Platform{OS: parts[0], Architecture: parts[1]}, nil
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: "?([0-9A-Za-z.+-]+)"?$`)

// chartVersion is the version that the chart asks for.
func chartVersion(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the version: %w", err)
	}
	match := appVersion.FindSubmatch(content)
	if match == nil {
		return "", fmt.Errorf("%s has no appVersion", path)
	}
	return string(match[1]), nil
}

// compile builds the program so that neither the folder nor the time nor the state of
// the checkout gets into it. The flags are those of .goreleaser.yaml.
func compile(root, output, version string, platform v1.Platform) error {
	flags := "-s -w -buildid="
	if version != "" {
		flags += " -X github.com/drawbridge-dev/drawbridge/internal/version.version=" + version
	}
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+flags, "-o", output, "./cmd/drawbridge")
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program for %s: %w\n%s", platform, err, out)
	}
	return nil
}

// write writes the image of all builds as an OCI layout into the folder, and returns
// the digest of its index, which a registry has it under.
func write(folder, version string, licence []byte, builds []build) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range builds {
		image, err := assemble(version, licence, b)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("image for %s: %w", b.platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &b.platform}})
	}
	if err := os.RemoveAll(folder); err != nil {
		return v1.Hash{}, fmt.Errorf("empty the output folder: %w", err)
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("write the layout: %w", err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return v1.Hash{}, fmt.Errorf("write the index: %w", err)
	}
	return index.Digest()
}

func assemble(version string, licence []byte, b build) (v1.Image, error) {
	content, err := archive([]file{{"LICENSE", 0o644, licence}, {"drawbridge", 0o755, b.program}})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = b.platform.OS, b.platform.Architecture
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/drawbridge"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "drawbridge", "org.opencontainers.image.version": version,
			"org.opencontainers.image.source": source, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// archive is a tar with the files, all of root's and of 1970.
func archive(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var errs []error
	for _, f := range files {
		errs = append(errs, w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}))
		_, err := w.Write(f.content)
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.Close())...); err != nil {
		return nil, fmt.Errorf("write the archive: %w", err)
	}
	return out.Bytes(), nil
}
