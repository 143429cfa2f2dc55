package site

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// leads are the attributes that lead somewhere, by the names of elements.
var leads = map[string]string{"a": "href", "link": "href", "img": "src", "script": "src", "source": "srcset"}

// Each link of the rendered site leads to a page or a file of it, and to an anchor if it names
// one; or to a file of this checkout, which the repository shows; or out into the world, which
// is not looked at. docs/links_test.go says the same of the sources.
func TestNoLinkIsBroken(t *testing.T) {
	dir := theSite(t)
	site := pages(t, dir)
	checked := 0
	for _, p := range site {
		for _, node := range p.find(func(node *html.Node) bool { return leads[node.Data] != "" }) {
			to := attribute(node, leads[node.Data])
			if to == "" && node.Data == "script" {
				continue
			}
			checked++
			if problem := broken(dir, site, p.url, to); problem != "" {
				t.Errorf("/%s: %s %q: %s", p.url, node.Data, to, problem)
			}
			if node.Data != "a" && !strings.HasPrefix(to, "/drawbridge/") && !strings.HasPrefix(to, "data:") && attribute(node, "rel") != "canonical" {
				t.Errorf("/%s: %s %q is loaded from elsewhere", p.url, node.Data, to)
			}
		}
	}
	if checked < 5000 {
		t.Errorf("%d links were looked at", checked)
	}
}

// broken is what is wrong with a link of a page; nothing if it is empty.
func broken(dir string, site map[string]*page, from, to string) string {
	link, err := url.Parse(to)
	if err != nil {
		return err.Error()
	}
	here, err := url.Parse(base + from)
	if err != nil {
		return err.Error()
	}
	target := here.ResolveReference(link)
	address := *target
	address.Fragment = ""
	switch inside, ok := strings.CutPrefix(address.String(), base); {
	case ok:
		return brokenInside(dir, site, inside, target.Fragment)
	case strings.HasPrefix(to, "data:"), strings.HasPrefix(to, "mailto:"):
		return ""
	case strings.HasPrefix(address.String(), repository):
		// blob/main/FILE or tree/main/FOLDER, edit/main/FILE, commits/main/FILE
		parts := strings.SplitN(strings.TrimPrefix(address.Path, "/drawbridge-dev/drawbridge/"), "/", 3)
		if len(parts) != 3 || !slices.Contains([]string{"blob", "tree", "edit", "commits"}, parts[0]) {
			return ""
		}
		if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(parts[2]))); err != nil {
			return err.Error()
		}
		return ""
	case address.Scheme != "https":
		return "leads out of the site, and not by https"
	}
	return ""
}

// brokenInside looks at a link to a page, or a file, of the site.
func brokenInside(dir string, site map[string]*page, address, fragment string) string {
	p := site[address]
	if p == nil {
		if path.Ext(address) == ".md" {
			return "is the name of a source"
		}
		if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(address))); err != nil || info.IsDir() {
			return "there is no such page"
		}
		return ""
	}
	if fragment == "" {
		return ""
	}
	for _, node := range p.find(func(*html.Node) bool { return true }) {
		if attribute(node, "id") == fragment || (node.Data == "a" && attribute(node, "name") == fragment) {
			return ""
		}
	}
	return "the page has no such anchor"
}

// A rule that finds nothing must be able to.
func TestBrokenLinksAreFound(t *testing.T) {
	dir := theSite(t)
	site := pages(t, dir)
	cases := map[string]struct{ link, want string }{
		"a page that exists":                 {link: "../faq/"},
		"an anchor that exists":              {link: "../concepts/#what-happens-during-an-eviction"},
		"a page that is missing":             {link: "/drawbridge/docs/nothing/", want: "there is no such page"},
		"a folder without a page":            {link: "/drawbridge/docs/images/", want: "there is no such page"},
		"an anchor that is missing":          {link: "/drawbridge/docs/concepts/#nothing", want: "the page has no such anchor"},
		"the source of a page":               {link: "concepts.md", want: "is the name of a source"},
		"a file of the repository":           {link: repository + "blob/main/CONTRIBUTING.md"},
		"no file of the repository":          {link: repository + "blob/main/NOTHING.md", want: "stat ../NOTHING.md: no such file or directory"},
		"the world":                          {link: "https://kubernetes.io/"},
		"the world, where anyone may listen": {link: "http://kubernetes.io/", want: "leads out of the site, and not by https"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := broken(dir, site, "docs/faq/", tc.link); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
