package site

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/internal/features"
	"github.com/drawbridge-dev/drawbridge/internal/keys"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// indexed is a page in the index of the search.
type indexed struct {
	URL, Title string
	Sections   []section
}

// section is one of its sections, with the rows of tables that have a name.
type section struct {
	ID, Heading, Text string
	Rows              []struct{ ID, Name, Text string }
}

// index is what the search of a rendered site, or of one version, looks through.
func index(t *testing.T, folder string) []indexed {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "search.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []indexed
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	if size := len(content); size > 1<<20 {
		t.Errorf("the index has %d KB, which is much to load for a search", size>>10)
	}
	return all
}

// anchors are the identifiers of a page, with how often each is there.
func anchors(p *page) map[string]int {
	all := map[string]int{}
	for _, node := range p.find(func(node *html.Node) bool { return attribute(node, "id") != "" }) {
		all[attribute(node, "id")]++
	}
	return all
}

// The search needs no service: its index is a file of the site, and leads to each section of each page.
func TestTheSearchIndexHasEachSection(t *testing.T) {
	site := pages(t, theSite(t))
	got := map[string]string{}
	for _, p := range index(t, theSite(t)) {
		for _, section := range p.Sections {
			got[p.URL+"#"+section.ID] = p.Title + " / " + section.Heading
			texts := []string{section.Text}
			for _, row := range section.Rows {
				texts = append(texts, row.Text)
			}
			for _, text := range texts {
				if strings.ContainsAny(text, "\x01\x02") || strings.Contains(text, "</") {
					t.Errorf("%s#%s has more than text: %s", p.URL, section.ID, text)
				}
			}
		}
	}
	want := map[string]string{}
	titles := documents(t)
	delete(titles, "docs/") // Its words are the titles of the others.
	for address, title := range titles {
		for _, article := range site[address].find(named("article", "")) {
			for node := range article.Descendants() {
				if len(node.Data) == 2 && node.Data[0] == 'h' && node.Data[1] <= '6' && attribute(node, "id") != "" {
					want["/drawbridge/"+address+"#"+attribute(node, "id")] = title + " / " + strings.TrimSpace(strings.TrimSuffix(text(node), "#"))
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

// Each row that the index has leads to an anchor that is there once, and each anchor of a row is in the index.
func TestTheSearchIndexHasEachRowThatHasAName(t *testing.T) {
	site := pages(t, theSite(t))
	count := 0
	for _, p := range index(t, theSite(t)) {
		address := strings.TrimPrefix(p.URL, "/drawbridge/")
		if site[address] == nil {
			t.Errorf("%s is no page", p.URL)
			continue
		}
		there := anchors(site[address])
		var got, want []string
		for _, section := range p.Sections {
			for _, row := range section.Rows {
				count++
				got = append(got, row.ID)
				if there[row.ID] != 1 {
					t.Errorf("%s#%s is there %d times", p.URL, row.ID, there[row.ID])
				}
			}
		}
		for _, node := range site[address].find(func(node *html.Node) bool {
			return attribute(node, "id") != "" && (node.Data == "tr" || node.Data == "span" && node.Parent.Data == "td")
		}) {
			want = append(want, attribute(node, "id"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows of %s (-page +index):\n%s", p.URL, diff)
		}
	}
	if count < 1000 {
		t.Errorf("%d rows were looked at", count)
	}
}

// inSources are the strings that an expression finds in Go files, without those of tests.
func inSources(t *testing.T, folder, expression string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(folder), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, submatches(string(content), expression)...)
	}
	return found
}

// submatches are what the first group of an expression finds.
func submatches(content, expression string) []string {
	var found []string
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(content, -1) {
		found = append(found, match[1])
	}
	return found
}

// reasons finds the constants ReasonSOMETHING of a package.
const reasons = `(?m)^\s*(?:const )?Reason\w+(?:\s+Reason)?\s*= "([^"]+)"`

// kinds are those of the CustomResourceDefinitions.
func kinds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../charts/drawbridge/files/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var definition struct {
			Spec struct {
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(content, &definition); err != nil {
			t.Fatal(err)
		}
		all = append(all, definition.Spec.Names.Kind)
	}
	return all
}

// Whoever types the name of a flag, a metric, a reason and so on gets to the place that says what it is, not only to its
// page. The names come from the code.
func TestTheSearchKnowsEachName(t *testing.T) {
	events := slices.DeleteFunc(inSources(t, "internal/events", reasons), func(reason string) bool { return reason == "RefusedBy" })
	for _, cause := range refused.Causes() {
		if cause != refused.NamespaceTerminating { // Nobody reads events of a namespace that goes.
			events = append(events, "RefusedBy"+string(cause))
		}
	}
	var series, labels []string
	for _, m := range metrics.All() {
		series = append(series, m.Name)
	}
	for _, row := range keys.Rows {
		labels = append(labels, row.Key)
	}
	cases := map[string]struct {
		page  string
		names []string
		least int
	}{
		"kinds":                  {"docs/reference/api/", kinds(t), 6},
		"flags of the manager":   {"docs/reference/flags/", submatches(source(t, "../docs/reference/flags.md"), "(?m)^\\| `(--[\\w-]+)`"), 80},
		"values of the chart":    {"docs/reference/values/", submatches(source(t, "../docs/reference/values.md"), "(?m)^\\| `([^`]+)`"), 100},
		"metrics":                {"docs/reference/metrics/", series, 40},
		"reasons of events":      {"docs/reference/events/", events, 80},
		"reasons of conditions":  {"docs/concepts/", inSources(t, "api/v1alpha1", reasons), 50},
		"answers":                {"docs/reference/answers/", inSources(t, "translate", reasons), 35},
		"labels and annotations": {"docs/reference/labels-and-annotations/", labels, 30},
		"feature gates":          {"docs/operations/feature-gates/", features.Names(), 5},
		"alerts": {"docs/operations/observability/",
			submatches(source(t, "../docs/operations/observability.md"), `(?m)^\| \[(Drawbridge\w+)\]`), 20},
	}
	// What is called so on a page, with its anchor.
	places := map[string]map[string]string{}
	for _, p := range index(t, theSite(t)) {
		found := map[string]string{}
		for _, section := range p.Sections {
			found[section.Heading] = section.ID
			for _, row := range section.Rows {
				found[row.Name] = row.ID
			}
		}
		places[strings.TrimPrefix(p.URL, "/drawbridge/")] = found
	}
	site := pages(t, theSite(t))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if len(tc.names) < tc.least {
				t.Fatalf("only %d names: %q", len(tc.names), tc.names)
			}
			there := anchors(site[tc.page])
			for _, name := range tc.names {
				if id, ok := places[tc.page][name]; !ok || there[id] != 1 {
					t.Errorf("%s leads to %q of %s, which is there %d times", name, id, tc.page, there[id])
				}
			}
		})
	}
}

// notInAnchors is what is left out of an anchor.
var notInAnchors = regexp.MustCompile(`[^a-z0-9_]+`)

// Each field of the API has an anchor: its type and its name.
func TestEachFieldOfTheAPIHasAnAnchor(t *testing.T) {
	kind := ""
	want := map[string]string{}
	for line := range strings.Lines(source(t, "../docs/reference/api.md")) {
		if name, ok := strings.CutPrefix(line, "#### "); ok {
			kind = strings.ToLower(strings.TrimSpace(name))
		} else if cell, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(cell, "`")
			want[kind+"-"+strings.Trim(notInAnchors.ReplaceAllString(strings.ToLower(name), "-"), "-")] = "Link to " + name
		}
	}
	if want["evictioninterceptorspec-priority"] == "" || len(want) < 300 {
		t.Errorf("%d fields were found", len(want))
	}
	got := map[string]string{}
	for _, row := range pages(t, theSite(t))["docs/reference/api/"].find(named("tr", "")) {
		for node := range row.Descendants() {
			if named("a", "anchor")(node) {
				got[attribute(row, "id")] = attribute(node, "aria-label")
				if attribute(node, "href") != "#"+attribute(row, "id") {
					t.Errorf("the link of %s leads to %s", attribute(row, "id"), attribute(node, "href"))
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("anchors and the names of their links (-want +got):\n%s", diff)
	}
}

// People link to rows. How their anchors are made does not change.
func TestTheAnchorsOfRowsStayWhatTheyAre(t *testing.T) {
	site := pages(t, theSite(t))
	for address, want := range map[string][]string{
		"docs/reference/flags/":                  {"heartbeat-deadline"},
		"docs/reference/metrics/":                {"drawbridge_budget_waiting"},
		"docs/reference/values/":                 {"crds-enabled"},
		"docs/reference/events/":                 {"deadlinereached", "refusedbyquota"},
		"docs/reference/answers/":                {"too-many-new"},
		"docs/reference/labels-and-annotations/": {"drawbridge-dev-surge"},
		"docs/reference/glossary/":               {"cut-off"},
		// The status of a condition stands before its reason.
		"docs/reference/evictioninterceptor/": {"spec-priority", "ordercircle"},
		// Two fields share a row.
		"docs/reference/nodemaintenance/": {"spec-waves", "status-starttime", "status-completiontime"},
		// Commands have flags of the same names.
		"docs/reference/kubectl-drawbridge/": {"budgets-all-namespaces", "cancel-output"},
		// Registrations, and policies, are accepted.
		"docs/concepts/": {"deadlinereached", "accepted", "the-states-of-an-evacuation-policy-accepted"},
	} {
		there := anchors(site[address])
		for _, anchor := range want {
			if there[anchor] != 1 {
				t.Errorf("/%s has the anchor %s %d times", address, anchor, there[anchor])
			}
		}
	}
}

// Each page leads to where it can be edited, or says what it is generated from.
func TestEachPageLeadsToItsSource(t *testing.T) {
	site := pages(t, theSite(t))
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile("<!-- (?:Generated|Written) by `?make generate")
	generated := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "../docs/") || filepath.Ext(name) != ".md" {
			continue
		}
		file := strings.TrimPrefix(name, "../")
		var words string
		var got []string
		for _, line := range site[addressOf(name)].find(named("p", "edit")) {
			words += text(line)
			for node := range line.Descendants() {
				if node.Data == "a" {
					got = append(got, strings.TrimPrefix(attribute(node, "href"), repository))
				}
			}
		}
		if len(got) != 2 {
			t.Errorf("%s leads to %q", file, got)
			continue
		}
		want := []string{"edit/main/" + file, "commits/main/" + file}
		says := "Edit this page"
		if marked.MatchString(files[name]) || file == "docs/reference/api.md" {
			generated++
			says = "This page is generated from "
			want[0] = got[0] // TestNoLinkIsBroken says that it is there.
			if !strings.HasPrefix(got[0], "tree/main/") && !strings.HasPrefix(got[0], "blob/main/") || strings.HasSuffix(got[0], ".md") {
				t.Errorf("%s is generated, and leads to %s: see generated in hugo.yaml", file, got[0])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || !strings.HasPrefix(words, says) {
			t.Errorf("%s says %q, and leads to (-want +got):\n%s", file, words, diff)
		}
	}
	if generated != 7 {
		t.Errorf("%d pages are generated, want 7", generated)
	}
}
