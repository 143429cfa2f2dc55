package charts_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// metadata is Chart.yaml. What is not listed here is refused, as Helm would ignore it.
type metadata struct {
	APIVersion  string   `json:"apiVersion"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Type        string   `json:"type"`
	Version     string   `json:"version"`
	AppVersion  string   `json:"appVersion"`
	KubeVersion string   `json:"kubeVersion"`
	Home        string   `json:"home"`
	Icon        string   `json:"icon"`
	Sources     []string `json:"sources"`
	Keywords    []string `json:"keywords"`
	Maintainers []struct {
		Name  string `json:"name"`
		Email string `json:"email"`
		URL   string `json:"url"`
	} `json:"maintainers"`
	Annotations map[string]string `json:"annotations"`
}

// definition is one of the annotation artifacthub.io/crds.
type definition struct {
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Name        string `json:"name"`
	DisplayName string `json:"displayName"`
	Description string `json:"description"`
}

func readMetadata(t *testing.T) metadata {
	t.Helper()
	content, err := os.ReadFile("drawbridge/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m metadata
	if err := yaml.UnmarshalStrict(content, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// What chart-testing asks of a chart, as far as `helm lint` does not.
func TestTheChartSaysWhoMadeItAndWhere(t *testing.T) {
	m := readMetadata(t)
	for name, value := range map[string]string{"description": m.Description, "home": m.Home, "icon": m.Icon, "kubeVersion": m.KubeVersion} {
		if value == "" {
			t.Errorf("Chart.yaml has no %s", name)
		}
	}
	if len(m.Sources) == 0 || len(m.Keywords) == 0 || len(m.Maintainers) == 0 {
		t.Errorf("want sources, keywords and maintainers, have %v, %v, %v", m.Sources, m.Keywords, m.Maintainers)
	}
	// A role with a page: people change.
	for _, maintainer := range m.Maintainers {
		if maintainer.Email != "" || !strings.HasSuffix(maintainer.URL, "/MAINTAINERS.md") {
			t.Errorf("maintainer %+v: want a role, and the page that says who has it", maintainer)
		}
	}
	const branch = "drawbridge-dev/drawbridge/main/"
	_, file, found := strings.Cut(m.Icon, branch)
	if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(file))); !found || err != nil {
		t.Errorf("icon %s: want a file of %s: %v", m.Icon, branch, err)
	}
}

var released = regexp.MustCompile(`(?m)^## v(\d+\.\d+\.\d+)`)

// The version in Chart.yaml is that of the next release, or that of the newest. So whoever
// installs the chart from a checkout never gets less than they had from a release.
func TestTheChartsVersionIsNotBehindTheReleases(t *testing.T) {
	m := readMetadata(t)
	if m.Version != m.AppVersion {
		t.Errorf("version %s and appVersion %s: they are released together", m.Version, m.AppVersion)
	}
	ours, err := version.ParseSemantic(m.Version)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range released.FindAllStringSubmatch(string(changes), -1) {
		if theirs := version.MustParseSemantic(match[1]); ours.LessThan(theirs) {
			t.Errorf("Chart.yaml has version %s, and %s is released already", m.Version, theirs)
		}
	}
}

// Artifact Hub ignores an annotation that it cannot read, and says so only to the publisher.
func TestArtifactHubCanReadTheAnnotations(t *testing.T) {
	m := readMetadata(t)
	if got := m.Annotations["artifacthub.io/license"]; got != "Apache-2.0" {
		t.Errorf("license %q: want the name in SPDX's list", got)
	}
	var links []struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	if err := yaml.UnmarshalStrict([]byte(m.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) == 0 {
		t.Errorf("links %v: %v", links, err)
	}
	for _, link := range links {
		if link.Name == "" || !strings.HasPrefix(link.URL, "https://") {
			t.Errorf("link %+v: want a name and an address", link)
		}
	}
	for name := range m.Annotations {
		if !slices.Contains([]string{"license", "links", "crds"}, strings.TrimPrefix(name, "artifacthub.io/")) {
			t.Errorf("annotation %s: `make release` writes what changes from release to release", name)
		}
	}
}

func TestArtifactHubListsAllDefinitions(t *testing.T) {
	var got []definition
	if err := yaml.UnmarshalStrict([]byte(readMetadata(t).Annotations["artifacthub.io/crds"]), &got); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].DisplayName == "" || got[i].Description == "" {
			t.Errorf("%s has no name for people, or no description", got[i].Kind)
		}
		got[i].DisplayName, got[i].Description = "", ""
	}
	files, err := filepath.Glob("drawbridge/files/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want []definition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			want = append(want, definition{Kind: crd.Spec.Names.Kind, Version: v.Name, Name: crd.Name})
		}
	}
	byKind := func(a, b definition) int { return cmp.Compare(a.Kind, b.Kind) }
	slices.SortFunc(got, byKind)
	slices.SortFunc(want, byKind)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("artifacthub.io/crds (-want +got):\n%s", diff)
	}
}
