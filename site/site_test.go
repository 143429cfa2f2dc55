// Package site tests the site that Hugo makes of docs/.
package site

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

// base is where the tests pretend that the site lives: below a path, as on GitHub's pages.
const base = "https://docs.example.com/drawbridge/"

// repository is where links to other files of the checkout lead.
const repository = "https://github.com/drawbridge-dev/drawbridge/"

// program is Hugo's, built by the go command when there is none yet.
var program = sync.OnceValues(func() (string, error) {
	var out, problems bytes.Buffer
	command := exec.Command("go", "tool", "-modfile=../go.tools.hugo.mod", "-n", "hugo")
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("build hugo: %w: %s", err, problems.String())
	}
	return strings.TrimSpace(out.String()), nil
})

// hugo renders the site whose configuration is in a folder, as `make site` does, and returns
// what Hugo says.
func hugo(source, destination string, environment ...string) (string, error) {
	path, err := program()
	if err != nil {
		return "", err
	}
	command := exec.Command(path, "build", "--source="+source, "--destination="+destination, "--baseURL="+base, "--noBuildLock", "--panicOnWarning")
	command.Env = append(os.Environ(), environment...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// sources reads what the site is made of. So the go command knows, too, and does not take an
// old result of these tests for one of today.
var sources = sync.OnceValues(func() (map[string]string, error) {
	files := map[string]string{}
	for _, root := range []string{".", "../docs"} {
		err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(name)
			files[filepath.ToSlash(name)] = string(content)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	content, err := os.ReadFile("../go.tools.hugo.mod")
	if err != nil {
		return nil, err
	}
	files["../go.tools.hugo.mod"] = string(content)
	return files, nil
})

// source is one file that the site is made of.
func source(t *testing.T, name string) string {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	content, ok := files[name]
	if !ok {
		t.Fatalf("the site is not made of %s", name)
	}
	return content
}

// built is the site of this checkout, for all tests.
var built struct {
	sync.Once
	dir, out string
	err      error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// theSite is the folder of the rendered site.
func theSite(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if _, built.err = sources(); built.err != nil {
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "drawbridge-site-"); built.err == nil { //nolint:usetesting // It outlives the test that needs it first.
			built.out, built.err = hugo(".", built.dir)
		}
	})
	if built.err != nil {
		t.Fatalf("hugo: %v\n%s", built.err, built.out)
	}
	return built.dir
}

// page is one page of the rendered site.
type page struct {
	// url is its address below base: "docs/faq/".
	url string
	// content is the file.
	content []byte
	root    *html.Node
}

// pages are the HTML pages of a rendered site, by their addresses.
func pages(t *testing.T, dir string) map[string]*page {
	t.Helper()
	all := map[string]*page{}
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".html" {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		root, err := html.Parse(bytes.NewReader(content))
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		url := strings.TrimSuffix(filepath.ToSlash(rel), "index.html")
		all[url] = &page{url: url, content: content, root: root}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Fatalf("the site has %d pages", len(all))
	}
	return all
}

// find are the elements of a page that a function chooses.
func (p *page) find(choose func(*html.Node) bool) []*html.Node {
	var found []*html.Node
	for node := range p.root.Descendants() {
		if node.Type == html.ElementNode && choose(node) {
			found = append(found, node)
		}
	}
	return found
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text is what a reader sees of an element.
func text(node *html.Node) string {
	var all strings.Builder
	for inner := range node.Descendants() {
		if inner.Type == html.TextNode {
			all.WriteString(inner.Data)
		}
	}
	return strings.Join(strings.Fields(all.String()), " ")
}

// named chooses elements by their name, and by their class if one is given.
func named(name, class string) func(*html.Node) bool {
	return func(node *html.Node) bool {
		return node.Data == name && (class == "" || slices.Contains(strings.Fields(attribute(node, "class")), class))
	}
}

var (
	firstHeading = regexp.MustCompile(`(?m)^# (.+)$`)
	inMarkdown   = strings.NewReplacer("`", "", "**", "")
)

// addressOf is where a page of docs/ is on the site.
func addressOf(file string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(file, "../"), ".md")
	if name == "docs/README" {
		return "docs/"
	}
	return name + "/"
}

// documents are the pages of docs/, with their titles by their addresses.
func documents(t *testing.T) map[string]string {
	t.Helper()
	theSite(t)
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	titles := map[string]string{}
	for name, content := range files {
		if strings.HasPrefix(name, "../docs/") && path.Ext(name) == ".md" {
			match := firstHeading.FindStringSubmatch(content)
			if match == nil {
				t.Errorf("%s has no heading, which would be its title", name)
				continue
			}
			titles[addressOf(name)] = inMarkdown.Replace(match[1])
		}
	}
	return titles
}

func TestEachPageOfTheDocumentationIsOnTheSiteUnderItsFirstHeading(t *testing.T) {
	site := pages(t, theSite(t))
	for address, title := range documents(t) {
		p := site[address]
		if p == nil {
			t.Errorf("%s is missing", address)
			continue
		}
		want := map[string]string{"title": title + " · Drawbridge", "h1": title}
		got := map[string]string{}
		for name := range want {
			for _, node := range p.find(named(name, "")) {
				got[name] += text(node)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
}

// docs/README.md is the menu. A page that it does not list cannot be reached.
func TestEachPageIsInTheMenuOfEachPage(t *testing.T) {
	titles := documents(t)
	delete(titles, "docs/") // It is the list itself, and stands in the bar on top.
	want := slices.Sorted(maps.Keys(titles))
	for address, p := range pages(t, theSite(t)) {
		if address == "" {
			continue // The landing page has none.
		}
		got := map[string]bool{}
		for _, menu := range p.find(named("nav", "menu")) {
			for node := range menu.Descendants() {
				if node.Data == "a" {
					got[strings.TrimPrefix(attribute(node, "href"), "/drawbridge/")] = true
				}
			}
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("menu of %s (-want +got):\n%s", address, diff)
		}
	}
}

// The menu has the order of the list, and its groups.
func TestTheMenuHasTheOrderOfTheList(t *testing.T) {
	var want []string
	for line := range strings.Lines(source(t, "../docs/README.md")) {
		if item, ok := strings.CutPrefix(line, "- ["); ok {
			title, _, _ := strings.Cut(item, "](")
			want = append(want, title)
		} else if line[0] >= 'A' && line[0] <= 'Z' {
			want = append(want, "# "+strings.TrimSpace(line))
		}
	}
	var got []string
	for _, menu := range pages(t, theSite(t))["404.html"].find(named("nav", "menu"))[:1] {
		for node := range menu.Descendants() {
			switch node.Data {
			case "p":
				got = append(got, "# "+text(node))
			case "li":
				got = append(got, text(node))
			}
		}
	}
	if diff := cmp.Diff(append([]string{"# Start"}, want...), got); diff != "" {
		t.Errorf("menu (-want +got):\n%s", diff)
	}
}

// The first page tells the story in ten seconds: the problem, a drain, how to install, three
// ways to use it, and a picture.
func TestTheLandingPageTellsTheStory(t *testing.T) {
	p := pages(t, theSite(t))[""]
	drain := p.find(named("figure", "console"))
	if len(drain) != 1 {
		t.Fatalf("%d drains are shown", len(drain))
	}
	var lines []string
	for node := range drain[0].Descendants() {
		if node.Data == "code" && node.Parent.Data == "pre" {
			var raw strings.Builder
			for inner := range node.Descendants() {
				if inner.Type == html.TextNode {
					raw.WriteString(inner.Data)
				}
			}
			lines = strings.Split(strings.TrimSpace(raw.String()), "\n")
		}
	}
	if len(lines) != 6 {
		t.Errorf("the drain has %d lines, want 6:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	// What is shown is what `make demo` printed; its seconds differ from one run to the next.
	printed := seconds.ReplaceAllString(source(t, "../docs/quick-start.md"), "N s")
	for _, line := range lines {
		if !strings.Contains(printed, seconds.ReplaceAllString(strings.TrimSpace(line), "N s")) {
			t.Errorf("docs/quick-start.md does not show %q", line)
		}
	}
	install := p.find(named("section", "install"))
	if len(install) != 1 || !regexp.MustCompile(`helm .*drawbridge|kubectl apply .*install\.yaml`).MatchString(text(install[0])) {
		t.Error("nobody learns how to install it")
	}
	var cards int
	for _, list := range p.find(named("ul", "cards")) {
		for node := range list.Descendants() {
			if node.Data == "li" {
				cards++
			}
		}
	}
	if cards != 3 {
		t.Errorf("%d cards, want 3", cards)
	}
	pictures := p.find(func(node *html.Node) bool {
		return node.Data == "img" && strings.HasSuffix(attribute(node, "src"), "dashboard-node.png") && attribute(node, "alt") != ""
	})
	if len(pictures) != 1 {
		t.Errorf("%d pictures with words for people who cannot see them, want 1", len(pictures))
	}
}

var seconds = regexp.MustCompile(`\d+\.\ds`)
