package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?[^)]*\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inText  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// notPages are folders of what is built.
var notPages = map[string]bool{"bin": true, "dist": true, ".git": true, ".artifacts": true, "testdata": true}

// Each link of each page of the repository leads to a file, and to a heading if it names one.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && notPages[entry.Name()]:
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		pages++
		for _, match := range link.FindAllStringSubmatch(fenced.ReplaceAllString(page(t, path), ""), -1) {
			file, fragment := match[1], match[2]
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if fragment != "" && filepath.Ext(target) == ".md" && !anchors(page(t, target))[fragment] {
				t.Errorf("%s: %s has no heading #%s", path, target, fragment)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 50 {
		t.Errorf("%d pages were looked at", pages)
	}
}

// anchors are the names of a page's headings, as GitHub makes them: of two that are alike
// only the first is taken.
func anchors(content string) map[string]bool {
	names := map[string]bool{}
	content = fenced.ReplaceAllString(content, "")
	for _, match := range heading.FindAllStringSubmatch(content, -1) {
		var name strings.Builder
		for _, r := range strings.ToLower(inText.ReplaceAllString(match[1], "$1")) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				name.WriteRune(r)
			case r == ' ':
				name.WriteByte('-')
			}
		}
		names[name.String()] = true
	}
	for _, match := range anchor.FindAllStringSubmatch(content, -1) {
		names[match[1]] = true
	}
	return names
}

func TestAnchorsAreNamedAsGitHubDoes(t *testing.T) {
	got := anchors("# What `kubectl drain` says\n\n```\n# not a heading\n```\n## A [link](x.md), and a dash - here\n<a id=\"old\"></a>\n")
	for _, want := range []string{"what-kubectl-drain-says", "a-link-and-a-dash---here", "old"} {
		if !got[want] {
			t.Errorf("no %q in %v", want, got)
		}
	}
	if got["not-a-heading"] {
		t.Error("a comment in a block of code is no heading")
	}
}
