package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	recipePages = "guides/recipes"
	// recipeLines is how long the page of a recipe may be.
	recipeLines = 100
)

var (
	yamlFence = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	seenLine  = regexp.MustCompile(`(?m)^\*\*How this was seen:\*\* \S`)
	objectOf  = regexp.MustCompile(`(?m)^kind: (?:EvacuationHook|EvictionBudget)\nmetadata:\n  name: (\S+)$`)
)

// recipeNames are the names of files without their extension.
func recipeNames(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.FromSlash(pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	slices.Sort(files)
	return files
}

func TestEachRecipeHasAPageAndAFile(t *testing.T) {
	examples := recipeNames(t, "../examples/recipes/*.yaml")
	if diff := cmp.Diff(examples, recipeNames(t, recipePages+"/*.md")); diff != "" {
		t.Errorf("recipes (-examples/recipes +docs/guides/recipes):\n%s", diff)
	}
	index := page(t, recipePages+".md")
	for _, name := range examples {
		if !regexp.MustCompile(`(?m)^\| \[[^]]+\]\(recipes/` + regexp.QuoteMeta(name) + `\.md\) \|`).MatchString(index) {
			t.Errorf("the table of %s.md has no row for %s", recipePages, name)
		}
	}
}

// What a page shows is a part of the file that a test applies, and it names everything
// there that Drawbridge acts upon.
func TestThePageOfARecipeShowsItsFile(t *testing.T) {
	for _, name := range recipeNames(t, recipePages+"/*.md") {
		t.Run(name, func(t *testing.T) {
			for _, problem := range recipeProblems(name, page(t, recipePages+"/"+name+".md"), page(t, "../examples/recipes/"+name+".yaml")) {
				t.Error(problem)
			}
		})
	}
}

// recipeProblems are what is wrong with the page of a recipe, whose file has this content.
func recipeProblems(name, content, file string) (problems []string) {
	blocks := yamlFence.FindAllStringSubmatch(content, -1)
	if len(blocks) == 0 {
		problems = append(problems, "it shows no YAML")
	}
	for _, block := range blocks {
		if !strings.Contains(file, block[1]) {
			problems = append(problems, "it shows YAML that is not in its file:\n"+block[1])
		}
	}
	for _, object := range objectOf.FindAllStringSubmatch(file, -1) {
		if !strings.Contains(content, object[1]) {
			problems = append(problems, "it does not name "+object[1])
		}
	}
	if !strings.Contains(content, "(../../../examples/recipes/"+name+".yaml)") {
		problems = append(problems, "it has no link to its file")
	}
	if len(seenLine.FindAllString(content, -1)) != 1 {
		problems = append(problems, "it needs one line that begins with **How this was seen:**")
	}
	if n := strings.Count(content, "\n"); n > recipeLines {
		problems = append(problems, "it is too long for a recipe")
	}
	return problems
}

// A rule that finds nothing must be able to.
func TestWrongPagesOfRecipesAreFound(t *testing.T) {
	const (
		file  = "apiVersion: drawbridge.dev/v1alpha1\nkind: EvacuationHook\nmetadata:\n  name: dump\n"
		right = "# A\n\n[The file](../../../examples/recipes/a.yaml)\n\n```yaml\n" + file + "```\n\n**How this was seen:** it was run.\n"
	)
	cases := map[string]struct {
		change []string
		want   string
	}{
		"a right page":                         {},
		"another value than in the file":       {[]string{"name: dump", "name: dumps"}, "it shows YAML that is not in its file:"},
		"no YAML":                              {[]string{"```yaml", "```text"}, "it shows no YAML"},
		"a hook that is not named":             {[]string{"```yaml\n" + file + "```", "```yaml\nkind: EvacuationHook\n```"}, "it does not name dump"},
		"no link":                              {[]string{"recipes/a.yaml", "recipes/b.yaml"}, "it has no link to its file"},
		"nobody says how it was seen":          {[]string{"**How this was seen:**", "It was seen:"}, "it needs one line"},
		"it says nothing about how it was":     {[]string{" it was run.", ""}, "it needs one line"},
		"a page that is as long as a chapter":  {[]string{"# A", strings.Repeat("more\n", recipeLines)}, "it is too long"},
		"how it was seen, in a sentence twice": {[]string{"# A\n", "**How this was seen:** not.\n"}, "it needs one line"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			content := strings.NewReplacer(tc.change...).Replace(right)
			got := strings.Join(recipeProblems("a", content, file), "\n")
			if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("problems %q, want %q", got, tc.want)
			}
		})
	}
}
