package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// artifact is one of GoReleaser's artifacts.json.
type artifact struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	GOOS   string `json:"goos"`
	GOARCH string `json:"goarch"`
	Type   string `json:"type"`
	Extra  struct {
		ID string `json:"ID"`
	} `json:"extra"`
}

// sbomProgram is what .goreleaser.yaml calls for the bills of materials.
const sbomProgram = "drawbridge-sbom"

// goreleaser lets GoReleaser make what .goreleaser.yaml says, puts what is to be published
// into the output folder, and returns the manager's programs by their platform.
func (r release) goreleaser(ctx context.Context, scratch string) (map[string]string, error) {
	dist := filepath.Join(scratch, "dist")
	content, err := os.ReadFile(filepath.Join(r.root, ".goreleaser.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read GoReleaser's configuration: %w", err)
	}
	content, err = configure(content, dist, r.compiler, r.platforms)
	if err != nil {
		return nil, fmt.Errorf(".goreleaser.yaml: %w", err)
	}
	config := filepath.Join(scratch, "goreleaser.yaml")
	if err := os.WriteFile(config, content, 0o600); err != nil { //nolint:gosec // The folder is our own temporary one.
		return nil, fmt.Errorf("write GoReleaser's configuration: %w", err)
	}
	bin := filepath.Join(scratch, "bin")
	if err := r.command(ctx, r.root, nil, "go", "build", "-o", filepath.Join(bin, sbomProgram), "./hack/sbom"); err != nil {
		return nil, err
	}
	env := []string{
		"VERSION=" + r.number(),
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10),
		"SOURCE_DATE=" + r.time.Format(time.RFC3339),
		"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}
	// One program at a time: two go commands at once compile twice what the programs share.
	if err := r.command(ctx, r.root, env, "go", "tool", "-modfile=go.tools.goreleaser.mod", "goreleaser", "release",
		"--snapshot", "--parallelism=1", "--config="+config); err != nil {
		return nil, err
	}
	return r.collect(dist)
}

// configure makes GoReleaser write into another folder, build with another go command, unless
// that is empty, and for these platforms only; for all when there are none.
func configure(content []byte, dist, compiler string, platforms []string) ([]byte, error) {
	var config map[string]any
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, err
	}
	config["dist"] = dist
	builds, ok := config["builds"].([]any)
	if !ok {
		return nil, errors.New("there are no builds")
	}
	for _, b := range builds {
		build, ok := b.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("build %v is no object", b)
		}
		if compiler != "" {
			build["tool"] = compiler
		}
		if len(platforms) == 0 {
			continue
		}
		all, ok := build["targets"].([]any)
		if !ok {
			return nil, fmt.Errorf("build %v has no targets", build["id"])
		}
		wanted := slices.DeleteFunc(slices.Clone(all), func(target any) bool {
			return !slices.ContainsFunc(platforms, func(p string) bool { return strings.ReplaceAll(p, "/", "_") == target })
		})
		if len(wanted) == 0 {
			return nil, fmt.Errorf("build %v is for none of the platforms %v", build["id"], platforms)
		}
		build["targets"] = wanted
	}
	return yaml.Marshal(config)
}

// published are the types of GoReleaser's artifacts that are files of a release, and the
// folders they go to.
var published = map[string]string{"Archive": "", "SBOM": "", "Krew Plugin Manifest": "krew"}

// collect copies what is published, and returns the manager's programs by OS/ARCH.
func (r release) collect(dist string) (map[string]string, error) {
	content, err := os.ReadFile(filepath.Join(dist, "artifacts.json"))
	if err != nil {
		return nil, fmt.Errorf("read what GoReleaser made: %w", err)
	}
	var artifacts []artifact
	if err := json.Unmarshal(content, &artifacts); err != nil {
		return nil, fmt.Errorf("read what GoReleaser made: %w", err)
	}
	managers, seen := map[string]string{}, map[string]bool{}
	for _, a := range artifacts {
		path := a.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.root, path)
		}
		if a.Type == "Binary" && a.Extra.ID == "manager" {
			managers[a.GOOS+"/"+a.GOARCH] = path
		}
		folder, ok := published[a.Type]
		if !ok {
			continue
		}
		seen[a.Type] = true
		if err := copyFile(path, filepath.Join(r.output, folder, a.Name)); err != nil {
			return nil, err
		}
	}
	if len(managers) == 0 {
		return nil, errors.New("GoReleaser built no manager: is there a build with the id manager?")
	}
	for kind := range published {
		if !seen[kind] {
			return nil, fmt.Errorf("GoReleaser made no %s, or calls it something else", kind)
		}
	}
	return managers, nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // Everybody may read a release.
		return fmt.Errorf("copy: %w", err)
	}
	if err := os.WriteFile(to, content, 0o644); err != nil { //nolint:gosec // Everybody may read a release.
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

// platformsOf are the platforms of programs, in order.
func platformsOf(programs map[string]string) []string { return slices.Sorted(maps.Keys(programs)) }
