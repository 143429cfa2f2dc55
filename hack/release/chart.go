package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"
)

// imageRepository is that of the chart's values.
const imageRepository = "ghcr.io/drawbridge-dev/drawbridge"

// chart packages the chart with the version of the release.
func (r release) chart(ctx context.Context, scratch string, platforms []string, log changelog) error {
	folder := filepath.Join(scratch, "drawbridge")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(r.root, "charts", "drawbridge"))); err != nil {
		return fmt.Errorf("copy the chart: %w", err)
	}
	path := filepath.Join(folder, "Chart.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	content, err = r.annotate(content, platforms, log)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	// Helm gives the files of the package this time.
	env := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10)}
	return r.command(ctx, r.root, env, "go", "tool", "-modfile=go.tools.helm.mod", "helm", "package", folder,
		"--version="+r.number(), "--app-version="+r.number(), "--destination="+r.output)
}

// image is one of the annotation artifacthub.io/images.
type image struct {
	Name      string   `json:"name"`
	Image     string   `json:"image"`
	Platforms []string `json:"platforms"`
}

// annotate adds what Artifact Hub shows of a release. What does not change from release to
// release is in Chart.yaml.
func (r release) annotate(content []byte, platforms []string, log changelog) ([]byte, error) {
	var chart map[string]any
	if err := yaml.Unmarshal(content, &chart); err != nil {
		return nil, fmt.Errorf("read Chart.yaml: %w", err)
	}
	annotations, ok := chart["annotations"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("read Chart.yaml: want annotations, have %v", chart["annotations"])
	}
	changes, err := log.changes()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		"changes": changes,
		"images":  []image{{Name: "drawbridge", Image: imageRepository + ":" + r.number(), Platforms: platforms}},
	} {
		text, err := yaml.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		annotations["artifacthub.io/"+name] = string(text)
	}
	if r.prerelease() {
		annotations["artifacthub.io/prerelease"] = "true"
	}
	return yaml.Marshal(chart)
}
