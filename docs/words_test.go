package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// oldWords are expressions for words that the glossary has replaced, with what to write. They are
// matched against texts in small letters, with single spaces.
var oldWords = []struct {
	old   *regexp.Regexp
	write string
}{
	{regexp.MustCompile(`call(s|ed|ing)?( [^ .,;:|]+){0,3} off\b`), "cancel"},
	{regexp.MustCompile(`for ever\b`), "forever"},
	{regexp.MustCompile(`anew\b`), "again"},
	{regexp.MustCompile(`goes on\b`), "continues"},
	{regexp.MustCompile(`going on\b`), "in progress"},
	{regexp.MustCompile(`not get on\b`), "makes no progress"},
	{regexp.MustCompile(`wanted by\b`), "requested by"},
	{regexp.MustCompile(`held up longest`), "waiting longest"},
	{regexp.MustCompile(`takes? pods (again|already)`), "schedulable"},
	{regexp.MustCompile(`not let go\b`), "blocked"},
	{regexp.MustCompile(`lets go\b`), "allows the eviction; steps aside"},
	{regexp.MustCompile(`done and still kept`), "finished"},
	{regexp.MustCompile(`what is said\b`), "message"},
	{regexp.MustCompile(`who had which turn`), "timeline"},
	{regexp.MustCompile(`stands? in (the|a|an|its|each) `), "is in"},
	{regexp.MustCompile(`foret(ell|old)`), "forecast"},
	{regexp.MustCompile(`\btrials?\b`), "test"},
	{regexp.MustCompile(`wish(es)?\b`), "request"},
	{regexp.MustCompile(`pass(es|ed)? (the )?(interceptors|responders|them|it) by\b`), "bypass"},
	{regexp.MustCompile(`comes? to nothing\b`), "has no effect"},
	{regexp.MustCompile(`as things are\b`), "currently"},
	{regexp.MustCompile(`ma(ke( it| them)?|de) again\b`), "recreate"},
	{regexp.MustCompile(`needless\b`), "unnecessary"},
	{regexp.MustCompile(`has not (been )?looked at\b`), "has not observed"},
}

// notOurs are pages that show what programs print, or that are made of other sources.
var notOurs = []string{
	"benchmarks.md",         // Written by the benchmark.
	"conformance.md",        // Of the names of tests.
	"conformance-native.md", // The same.
}

// oldWordsIn returns the old words of a text, each with what to write.
func oldWordsIn(text string) []string {
	text = strings.ToLower(strings.Join(strings.Fields(text), " "))
	var found []string
	for _, word := range oldWords {
		for _, match := range word.old.FindAllString(text, -1) {
			found = append(found, strconv.Quote(match)+": write "+strconv.Quote(word.write))
		}
	}
	return found
}

// literals are the texts in a Go file, each a sentence: comments and names are not for users.
func literals(t *testing.T, path, source string) string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	ast.Inspect(tree, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
		return true
	})
	return strings.Join(texts, " . ")
}

// The glossary says what the words are; these are those that they replaced.
func TestOldWordsAreGone(t *testing.T) {
	counts := map[string]int{}
	look := func(path string) {
		text, kind := page(t, path), filepath.Ext(path)
		if kind == ".go" {
			text = literals(t, path, text)
		}
		counts[kind]++
		for _, wrong := range oldWordsIn(text) {
			t.Errorf("%s has %s", path, wrong)
		}
	}
	look("../README.md")
	for _, folder := range []string{".", "../cmd", "../internal/events", "../site/content", "../site/layouts"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			switch name := entry.Name(); {
			case entry.IsDir() && (name == "testdata" || name == "vendor"):
				return filepath.SkipDir
			case entry.IsDir() || strings.HasSuffix(name, "_test.go") || slices.Contains(notOurs, name):
			case slices.Contains([]string{".go", ".html", ".js", ".md"}, filepath.Ext(name)):
				look(path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for kind, least := range map[string]int{".go": 100, ".html": 10, ".js": 1, ".md": 60} {
		if counts[kind] < least {
			t.Errorf("only %d files %s were read", counts[kind], kind)
		}
	}
}

func TestAnOldWordIsFound(t *testing.T) {
	want := []string{`"call the eviction off": write "cancel"`, `"for ever": write "forever"`}
	if diff := cmp.Diff(want, oldWordsIn("Call the eviction\n  off, or wait for\never.")); diff != "" {
		t.Errorf("in a page (-want +got):\n%s", diff)
	}
	source := "package x\n\n// It goes on.\nconst wish = \"it is called off\" + `\nfor ever`\n"
	want = []string{`"called off": write "cancel"`, `"for ever": write "forever"`}
	if diff := cmp.Diff(want, oldWordsIn(literals(t, "x.go", source))); diff != "" {
		t.Errorf("in a Go file (-want +got):\n%s", diff)
	}
	for _, fine := range []string{"Cancel eviction", "an eviction in progress", "for every pod", "it calls for every pod, and is switched off"} {
		if wrong := oldWordsIn(fine); len(wrong) > 0 {
			t.Errorf("%q has %q", fine, wrong)
		}
	}
}

// The glossary has each term once, in the order of the alphabet.
func TestTheGlossaryIsInOrder(t *testing.T) {
	var terms []string
	for line := range strings.Lines(page(t, "reference/glossary.md")) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.Trim(cells[1], "- ") != "" && strings.TrimSpace(cells[1]) != "Term" {
			terms = append(terms, strings.ToLower(strings.Trim(cells[1], "` ")))
		}
	}
	if len(terms) < 20 {
		t.Fatalf("only %d terms", len(terms))
	}
	if diff := cmp.Diff(slices.Compact(slices.Sorted(slices.Values(terms))), terms); diff != "" {
		t.Errorf("terms (-want +got):\n%s", diff)
	}
}

var pictured = regexp.MustCompile(`<text [^>]*>(.*)</text>`)

// The picture of README.md shows what `make demo` prints.
func TestThePictureOfTheDrainIsTrue(t *testing.T) {
	printed := page(t, "quick-start.md")
	lines := pictured.FindAllStringSubmatch(page(t, "images/drain.svg"), -1)
	if len(lines) < 10 {
		t.Errorf("only %d lines are shown", len(lines))
	}
	for _, line := range lines {
		if text := html.UnescapeString(line[1]); !strings.Contains(printed, text) {
			t.Errorf("quick-start.md does not have %q", text)
		}
	}
}
