// Package records keeps what the programs of others did in the situations of
// test/peers/situations, as `make test-peers` has seen it, and writes the tables of
// docs/guides/callers.md from it.
package records

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Record is what one program did.
type Record struct {
	// Peer is its name for `make test-peers`.
	Peer string `json:"peer"`
	// Program is what its users call it, with what was done to have it empty a node.
	Program string `json:"program"`
	// Version that was built: a commit and its date, or a release.
	Version string `json:"version"`
	// Date of the run, as 2006-01-02, and Kubernetes' version in it.
	Date       string `json:"date"`
	Kubernetes string `json:"kubernetes"`
	// Situations are all in which it was.
	Situations []Situation `json:"situations"`
}

// Situation is what happened in one of them without Drawbridge, and with it.
type Situation struct {
	Name    string `json:"name"`
	Without Result `json:"without"`
	With    Result `json:"with"`
}

// Result is what happened to the pod that a situation is about, and to a plain pod beside it.
type Result struct {
	// Impossible says why the program cannot be in this situation; empty if it was.
	Impossible string `json:"impossible,omitempty"`
	// Order are those of the two that went, in the order in which they went.
	Order []string `json:"order"`
	// Refused says that the program was refused an eviction of the pod.
	Refused bool `json:"refused,omitempty"`
	// Prepared says that the interceptor was done before the pod went.
	Prepared bool `json:"prepared,omitempty"`
	// Replaced says that another pod of its owner was Ready before it went.
	Replaced bool `json:"replaced,omitempty"`
	// Canceled says that the interceptor was told that nobody wants the eviction any more.
	Canceled bool `json:"canceled,omitempty"`
	// Evicted and Deleted are how many pods of its name were evicted, and deleted by the program.
	Evicted int `json:"evicted,omitempty"`
	Deleted int `json:"deleted,omitempty"`
	// Ended says that the program was done with the node.
	Ended bool `json:"ended,omitempty"`
	// GaveUp says that it ended with an error instead.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Says is the last that it told its user meanwhile, with NODE, POD and NAMESPACE in place of their names.
	Says []string `json:"says,omitempty"`
}

// The two pods of a situation.
const (
	Subject  = "pod"
	Neighbor = "neighbor"
)

// String says what became of the pod, such as "refused, prepared, evicted".
func (r Result) String() string {
	if r.Impossible != "" {
		return "not possible: " + r.Impossible
	}
	var words []string
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	add(r.Refused, "refused")
	add(r.Canceled, "canceled")
	add(r.Prepared, "prepared")
	add(r.Replaced, "replaced")
	switch {
	case r.Evicted == 1:
		add(true, "evicted")
	case r.Evicted > 1:
		add(true, fmt.Sprintf("**evicted %d times**", r.Evicted))
	}
	add(r.Deleted > 0, "**deleted**")
	add(!slices.Contains(r.Order, Subject), "stays")
	return strings.Join(words, ", ")
}

//go:embed data/*.json
var data embed.FS

// All are the records of this repository, sorted by program.
func All() ([]Record, error) { return read(data) }

func read(files fs.FS) ([]Record, error) {
	names, err := fs.Glob(files, "data/*.json")
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var r Record
		if err := json.Unmarshal(content, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if want := "data/" + r.Peer + ".json"; name != want {
			return nil, fmt.Errorf("%s has the record of %s, which belongs in %s", name, r.Peer, want)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(strings.ToLower(a.Program), strings.ToLower(b.Program)) })
	return all, nil
}

// Write writes the record into the folder of this package's source.
func (r Record) Write(folder string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", r.Peer, err)
	}
	return os.WriteFile(filepath.Join(folder, "data", r.Peer+".json"), append(content, '\n'), 0o600)
}

// The marks in the page between which the tables are.
const (
	begin = "<!-- tables: written by make test-peers from test/peers/records -->\n"
	end   = "<!-- end of tables -->\n"
)

// Page returns the page with the tables of these records in place of those that it has. Error: it
// does not have both marks.
func Page(page string, records []Record) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", errors.New("the page does not have the marks of the tables")
	}
	return before + begin + "\n" + tables(records) + "\n" + end + after, nil
}

// tables are one about the programs, and one about each.
func tables(records []Record) string {
	var b strings.Builder
	b.WriteString("| Program | Version | Seen on | Kubernetes | Again |\n|---|---|---|---|---|\n")
	for _, r := range records {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | `make test-peers PEER=%s%s` |\n",
			r.Program, strings.ReplaceAll(strings.ToLower(r.title()), " ", "-"), r.Version, r.Date, r.Kubernetes, r.Peer, r.checkout())
	}
	for _, r := range records {
		fmt.Fprintf(&b, "\n### %s\n\n| Situation | Without Drawbridge | With Drawbridge | With it, the tool says |\n|---|---|---|---|\n", r.title())
		for _, s := range r.Situations {
			with := s.With.String()
			if with == s.Without.String() {
				with = "the same"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.Name, s.Without, with, says(s.With))
		}
	}
	return b.String()
}

// title is that of its table. The page has sections of its own about some programs.
func (r Record) title() string { return r.Peer + " in ten situations" }

// checkout is the rest of the command that repeats a record: kubectl comes with the control plane.
func (r Record) checkout() string {
	if r.Peer == "kubectl" {
		return ""
	}
	return " CHECKOUT=FOLDER"
}

// says is what the program told its user, and whether it was done, in a cell.
func says(r Result) string {
	said := make([]string, 0, len(r.Says)+1)
	for _, s := range r.Says {
		// What stands before our own words is always the same.
		if _, ours, ok := strings.Cut(s, "denied the request: "); ok {
			s = "... " + ours
		}
		said = append(said, "`"+strings.NewReplacer("|", "\\|", "`", "'", "\n", " ").Replace(s)+"`")
	}
	switch {
	case r.GaveUp:
		said = append(said, "(**ends with an error**)")
	case !r.Ended && r.Impossible == "":
		said = append(said, "(continues)")
	}
	return strings.Join(said, "<br>")
}
