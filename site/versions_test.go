package site

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"sigs.k8s.io/yaml"
)

// testdata/urls.txt are the addresses of the first site. People link to them: each is there for good, as a page or as a
// page that leads on (docs/redirects.yaml).
func TestOldAddressesStillLeadSomewhere(t *testing.T) {
	site := pages(t, theSite(t))
	count := 0
	for line := range strings.Lines(source(t, "testdata/urls.txt")) {
		count++
		if site[strings.Trim(line, "\n")[1:]] == nil {
			t.Errorf("%s is gone: add a line to docs/redirects.yaml", strings.TrimSpace(line))
		}
	}
	if count < 60 {
		t.Errorf("%d addresses were looked at", count)
	}
}

// checkout is a copy of what the site is made of, for a test to change.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"site", "docs"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", name))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// change replaces text of a file, which must be there.
func change(t *testing.T, file, old, text string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	write(t, file, strings.ReplaceAll(string(content), old, text))
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// render makes the site of a copy.
func render(t *testing.T, dir string, environment ...string) string {
	t.Helper()
	theSite(t)
	to := filepath.Join(dir, "dist")
	if out, err := hugo(filepath.Join(dir, "site"), to, environment...); err != nil {
		t.Fatalf("hugo: %v\n%s", err, out)
	}
	return to
}

// A page is renamed, as it may be between two releases. Its old address leads to the new one.
func TestARenamedPageIsFoundUnderItsOldAddress(t *testing.T) {
	dir := checkout(t)
	rename(t, dir)
	site := pages(t, render(t, dir))
	old := site["docs/faq/"]
	if old == nil {
		t.Fatal("the old address is gone")
	}
	want := []string{"0; url=" + base + "docs/questions/"}
	var got []string
	for _, node := range old.find(named("meta", "")) {
		if attribute(node, "http-equiv") == "refresh" {
			got = append(got, attribute(node, "content"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the old address leads to (-want +got):\n%s", diff)
	}
	if site["docs/questions/"] == nil {
		t.Error("there is no page under the new address")
	}
}

// rename gives docs/faq.md another name, with all links to it and its redirect.
func rename(t *testing.T, dir string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, "docs", "faq.md"), filepath.Join(dir, "docs", "questions.md")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(filepath.Join(dir, "docs"), func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".md" {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, []byte(strings.ReplaceAll(string(content), "faq.md", "questions.md")), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	change(t, filepath.Join(dir, "docs", "redirects.yaml"), "{}", "faq: questions")
}

// Mistakes of authors end the build, with the place.
func TestMistakesOfAuthorsAreNamed(t *testing.T) {
	cases := map[string]struct{ file, text, want string }{
		"a link to a page that is missing":     {"docs/faq.md", "\n[gone](gone.md)\n", `no page for the link "gone.md"`},
		"a picture that is missing":            {"docs/faq.md", "\n![gone](images/gone.png)\n", `no picture "images/gone.png"`},
		"a redirect to a page that is missing": {"docs/redirects.yaml", "old: gone", "docs/redirects.yaml: old leads to gone, which is no page"},
		"a list with a page that is missing":   {"docs/README.md", "\n- [Gone](gone.md)\n", "docs/README.md lists /docs/gone, which is no page"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			theSite(t)
			dir := checkout(t)
			file := filepath.Join(dir, filepath.FromSlash(tc.file))
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			write(t, file, strings.TrimSuffix(string(content), "{}\n")+tc.text)
			out, err := hugo(filepath.Join(dir, "site"), filepath.Join(dir, "dist"))
			if err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("got %v with\n%s\nwant %s", err, out, tc.want)
			}
		})
	}
}

// A release adds its version as the README of this folder says. Its pages come from its Go module, as they were then.
func TestAReleaseAddsItsVersion(t *testing.T) {
	dir := checkout(t)
	proxy := t.TempDir()
	publish(t, proxy, "v0.1.0")
	// main goes on: a page has another name, and one is new.
	rename(t, dir)
	write(t, filepath.Join(dir, "docs", "guides", "new.md"), "# A new page\n\nIt has one sentence.\n")
	change(t, filepath.Join(dir, "docs", "README.md"), "- [Install](guides/install.md)", "- [Install](guides/install.md)\n- [A new page](guides/new.md)")
	addVersion(t, filepath.Join(dir, "site", "hugo.yaml"))

	to := render(t, dir, "HUGO_MODULE_PROXY=file://"+filepath.ToSlash(proxy), "GOMODCACHE="+filepath.Join(dir, "modules"),
		"GOFLAGS=-modcacherw", "HUGO_CACHEDIR="+filepath.Join(dir, "cache"))
	site := pages(t, to)
	for address, there := range map[string]bool{
		"":                     true,
		"docs/faq/":            true,
		"docs/questions/":      false,
		"docs/guides/new/":     false,
		"main/":                true,
		"main/docs/faq/":       true, // It leads to the next.
		"main/docs/questions/": true, "main/docs/guides/new/": true,
	} {
		if (site[address] != nil) != there {
			t.Errorf("/%s is there: %t, want %t", address, site[address] != nil, there)
		}
	}
	for name, want := range map[string]map[string]string{
		"docs/quick-start/": {"v0.1.0": "/drawbridge/docs/quick-start/", "main": "/drawbridge/main/docs/quick-start/"},
		// Where a version does not have the page, its first page comes instead.
		"main/docs/guides/new/": {"v0.1.0": "/drawbridge/", "main": "/drawbridge/main/docs/guides/new/"},
	} {
		if site[name] == nil {
			continue
		}
		got := map[string]string{}
		for _, menu := range site[name].find(named("details", "versions")) {
			for node := range menu.Descendants() {
				if node.Data == "a" {
					got[text(node)] = attribute(node, "href")
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("versions of %s (-want +got):\n%s", name, diff)
		}
	}
	// Each version has its own search, and its links stay within it.
	for version, prefix := range map[string]string{"v0.1.0": "/drawbridge/docs/", "main": "/drawbridge/main/docs/"} {
		folder := to
		if version == "main" {
			folder = filepath.Join(to, "main")
		}
		entries := index(t, folder)
		if i := slices.IndexFunc(entries, func(e indexed) bool { return !strings.HasPrefix(e.URL, prefix) }); i >= 0 || len(entries) < 60 {
			t.Errorf("the search of %s has %d pages, and one that leads to another: %d", version, len(entries), i)
		}
		if !slices.ContainsFunc(entries, func(e indexed) bool {
			return slices.ContainsFunc(e.Sections, func(section section) bool { return len(section.Rows) > 0 })
		}) {
			t.Errorf("the search of %s has no rows of tables", version)
		}
	}
	saysWhichVersion(t, site)
	for _, p := range site {
		for _, node := range p.find(func(node *html.Node) bool { return leads[node.Data] != "" && attribute(node, leads[node.Data]) != "" }) {
			link := attribute(node, leads[node.Data])
			if strings.HasPrefix(link, repository) {
				continue // It leads to what has been changed here only.
			}
			if problem := broken(to, site, p.url, link); problem != "" {
				t.Errorf("/%s: %s: %s", p.url, link, problem)
			}
		}
	}
}

// saysWhichVersion looks at the line on each page of main while v0.1.0 is the newest release, and at where the pages of
// both can be edited.
func saysWhichVersion(t *testing.T, site map[string]*page) {
	t.Helper()
	const says = "This page is for version main. The newest release is v0.1.0."
	for address, want := range map[string][]string{
		"":                       nil,
		"docs/quick-start/":      {"The source of this page"},
		"main/":                  {says, "/drawbridge/"},
		"main/docs/quick-start/": {says, "/drawbridge/docs/quick-start/", "Edit this page"},
		// v0.1.0 does not have it.
		"main/docs/guides/new/": {says, "/drawbridge/", "Edit this page"},
	} {
		if site[address] == nil {
			t.Errorf("/%s is missing", address)
			continue
		}
		var got []string
		for _, line := range site[address].find(named("p", "other-version")) {
			got = append(got, text(line), attribute(line.FirstChild.NextSibling, "href"))
		}
		for _, line := range site[address].find(named("p", "edit")) {
			for node := range line.Descendants() {
				if node.Data == "a" {
					got = append(got, text(node))
					break
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("/%s (-want +got):\n%s", address, diff)
		}
	}
}

// addVersion does to the configuration what the README says.
func addVersion(t *testing.T, file string) {
	t.Helper()
	_, block, _ := strings.Cut(source(t, "README.md"), "```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("README.md does not show how a release adds its version")
	}
	var added, config map[string]any
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text, into := range map[string]*map[string]any{block: &added, string(content): &config} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	module, ok := config["module"].(map[string]any)
	more, okMore := added["module"].(map[string]any)
	if !ok || !okMore {
		t.Fatal("the configuration has no module, or the README adds none")
	}
	maps.Copy(module, more)
	added["module"] = module
	maps.Copy(config, added)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(text))
}

// publish puts the pages of this checkout into a module proxy of files, as a release.
func publish(t *testing.T, proxy, version string) {
	t.Helper()
	const module = "github.com/drawbridge-dev/drawbridge"
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	write(t, filepath.Join(dir, "list"), version+"\n")
	write(t, filepath.Join(dir, version+".info"), `{"Version":"`+version+`"}`)
	write(t, filepath.Join(dir, version+".mod"), "module "+module+"\n")
	var archive bytes.Buffer
	out := zip.NewWriter(&archive)
	add := func(name string, content []byte) {
		file, err := out.Create(path.Join(module+"@"+version, name))
		if err == nil {
			_, err = file.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("go.mod", []byte("module "+module+"\n"))
	err := filepath.WalkDir("../docs", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err == nil {
			add(strings.TrimPrefix(filepath.ToSlash(name), "../"), content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, version+".zip"), archive.String())
}
