package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestVersions(t *testing.T) {
	cases := map[string]bool{
		"v0.1.0": true, "v10.20.30": true, "v1.2.3-rc.1": true, "v0.0.0-test.1": true,
		"": false, "0.1.0": false, "v1.2": false, "v01.2.3": false, "v1.2.3-": false, "v1.2.3-rc..1": false, "v1.2.3+build": false, "v1.2.3\n": false,
	}
	for version, want := range cases {
		t.Run(version, func(t *testing.T) {
			err := checkVersion(version)
			if (err == nil) != want {
				t.Errorf("accepted: %t, want %t", err == nil, want)
			}
			if err != nil && !strings.Contains(err.Error(), "make release VERSION=v1.2.3") {
				t.Errorf("the error does not say what to do: %v", err)
			}
		})
	}
}

const changes = `# Changelog

Text.

## Unreleased

### Added

- Next.

## v0.2.0 - 2027-01-02

### Before you upgrade

- **Chart**: rename the value ` + "`a`" + ` to
  b ([how](docs/a.md#b)). Then upgrade.

  | a | b |
  |---|---|

### Added

- A [thing](https://example.com/x). More of it.
- Another thing

### Fixed

- It no longer fails: never.

## v0.1.0

### Added

- All.
`

func TestTheChangelogIsCutByVersion(t *testing.T) {
	cases := map[string]struct {
		version, first string
		unreleased     bool
	}{
		"of a version with a date":                   {version: "v0.2.0", first: "### Before you upgrade"},
		"of the last version":                        {version: "v0.1.0", first: "### Added\n\n- All."},
		"of a version without a section":             {version: "v0.3.0", first: "### Added\n\n- Next.", unreleased: true},
		"of a version whose name begins another one": {version: "v0.2", first: "### Added\n\n- Next.", unreleased: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := cut(changes, tc.version)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(got.text, tc.first) || got.unreleased != tc.unreleased || strings.Contains(got.text, "\n## ") {
				t.Errorf("unreleased %t, text:\n%s", got.unreleased, got.text)
			}
		})
	}
	if _, err := cut("# Changelog\n\n## Unreleased\n\n## v0.1.0\n\n- All.\n", "v0.2.0"); err == nil {
		t.Error("a release without notes is accepted")
	}
}

func TestChangesForArtifactHub(t *testing.T) {
	log, err := cut(changes, "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	got, err := log.changes()
	if err != nil {
		t.Fatal(err)
	}
	want := []change{
		{"changed", "Chart: rename the value a to b (how)"}, {"added", "A thing"}, {"added", "Another thing"}, {"fixed", "It no longer fails: never"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if _, err := (changelog{text: "### News\n\n- One."}).changes(); err == nil {
		t.Error("a heading that Artifact Hub has no kind for is accepted")
	}
}

// The changelog of this repository can be read.
func TestTheChangelogOfToday(t *testing.T) {
	log, err := readChangelog(filepath.Join("..", "..", "CHANGELOG.md"), "v99.0.0")
	if err != nil {
		t.Fatal(err)
	}
	got, err := log.changes()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got {
		if len(c.Description) < 3 || len(c.Description) > 400 || strings.ContainsAny(c.Description, "`|\n") {
			t.Errorf("change %q", c.Description)
		}
	}
}

func TestLinksOfTheNotesLeadToTheRelease(t *testing.T) {
	log, err := cut(changes, "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	got := release{version: "v0.2.0"}.notes(log)
	for _, want := range []string{
		"(https://github.com/drawbridge-dev/drawbridge/blob/v0.2.0/docs/a.md#b)", "(https://example.com/x)",
		"apply --server-side -f https://github.com/drawbridge-dev/drawbridge/releases/download/v0.2.0/install.yaml", "--version 0.2.0 ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the notes lack %s:\n%s", want, got)
		}
	}
}

// GoReleaser's configuration is the only one there is, also for a part of the platforms.
func TestAPartOfThePlatforms(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		platforms []string
		want      map[string][]string
		wantErr   bool
	}{
		"all of them": {want: map[string][]string{
			"manager": {"linux_amd64", "linux_arm64"},
			"plugin":  {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64", "windows_arm64"},
		}},
		"one":                          {platforms: []string{"linux/amd64"}, want: map[string][]string{"manager": {"linux_amd64"}, "plugin": {"linux_amd64"}}},
		"one that only the plugin has": {platforms: []string{"darwin/arm64"}, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			configured, err := configure(content, "elsewhere", "stand-in", tc.platforms)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %t", err, tc.wantErr)
			}
			if tc.wantErr {
				return
			}
			var config struct {
				Dist   string `json:"dist"`
				Builds []struct {
					ID      string   `json:"id"`
					Tool    string   `json:"tool"`
					Targets []string `json:"targets"`
				} `json:"builds"`
			}
			if err := yaml.Unmarshal(configured, &config); err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for _, build := range config.Builds {
				got[build.ID] = build.Targets
				if build.Tool != "stand-in" {
					t.Errorf("build %s is made by %q, want the go command that was asked for", build.ID, build.Tool)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || config.Dist != "elsewhere" {
				t.Errorf("folder %q, targets (-want +got):\n%s", config.Dist, diff)
			}
		})
	}
}

func TestWhatGoReleaserMakesIsCollected(t *testing.T) {
	const (
		binary  = `{"path": "m", "goos": "linux", "goarch": "amd64", "type": "Binary", "extra": {"ID": "manager"}}`
		archive = `{"name": "a.tar.gz", "path": "a", "type": "Archive"}`
		bill    = `{"name": "a.cdx.json", "path": "b", "type": "SBOM"}`
		krew    = `{"name": "drawbridge.yaml", "path": "k", "type": "Krew Plugin Manifest"}`
	)
	cases := map[string]struct {
		artifacts []string
		wantErr   string
	}{
		"all there is":    {artifacts: []string{binary, archive, bill, krew, `{"name": "metadata.json", "path": "x", "type": "Metadata"}`}},
		"but no manager":  {artifacts: []string{archive, bill, krew}, wantErr: "no manager"},
		"but no manifest": {artifacts: []string{binary, archive, bill}, wantErr: "no Krew Plugin Manifest"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := release{root: t.TempDir(), output: t.TempDir()}
			for name, content := range map[string]string{"artifacts.json": "[" + strings.Join(tc.artifacts, ",") + "]", "a": "1", "b": "2", "k": "3"} {
				if err := os.WriteFile(filepath.Join(r.root, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := r.collect(r.root)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"linux/amd64": filepath.Join(r.root, "m")}, got); diff != "" {
				t.Errorf("programs (-want +got):\n%s", diff)
			}
			for name, want := range map[string]string{"a.tar.gz": "1", "a.cdx.json": "2", "krew/drawbridge.yaml": "3"} {
				if content, err := os.ReadFile(filepath.Join(r.output, filepath.FromSlash(name))); err != nil || string(content) != want {
					t.Errorf("%s: %q, %v", name, content, err)
				}
			}
		})
	}
}

func TestChecksumsAreOfAllFilesThatArePublished(t *testing.T) {
	folder := t.TempDir()
	if err := writeChecksums(folder); err == nil {
		t.Error("an empty folder has checksums")
	}
	for name, content := range map[string]string{"b": "two", "a": "one", "checksums.txt": "old", "release-notes.md": "text", "below/c": "three"} {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeChecksums(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  a\n" +
		"3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3  b\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("checksums (-want +got):\n%s", diff)
	}
}
