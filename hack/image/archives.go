package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// repository is where the chart expects the image.
const repository = "ghcr.io/drawbridge-dev/drawbridge"

// writeArchives writes the image as files: the layout with all platforms as one OCI archive,
// and for each platform one that `docker load` takes, which knows no layouts everywhere.
func writeArchives(folder, layout, version string, licence []byte, builds []build) error {
	content, err := tarOf(layout)
	if err != nil {
		return err
	}
	base := filepath.Join(folder, "drawbridge-image_v"+version)
	if err := os.WriteFile(base+".oci.tar", content, 0o644); err != nil {
		return fmt.Errorf("write the OCI archive: %w", err)
	}
	ref, err := name.NewTag(repository + ":" + version)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	for _, b := range builds {
		image, err := assemble(version, licence, b)
		if err != nil {
			return fmt.Errorf("image for %s: %w", b.platform, err)
		}
		file := fmt.Sprintf("%s_%s_%s.docker.tar", base, b.platform.OS, b.platform.Architecture)
		if err := tarball.WriteToFile(file, ref, image); err != nil {
			return fmt.Errorf("write the archive for %s: %w", b.platform, err)
		}
	}
	return nil
}

// tarOf is a tar of all files of a folder, in the order of their names.
func tarOf(folder string) ([]byte, error) {
	var files []file
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files = append(files, file{filepath.ToSlash(name), 0o644, content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the layout: %w", err)
	}
	return archive(files)
}
