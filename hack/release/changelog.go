package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// changelog is what CHANGELOG.md says about one version.
type changelog struct {
	// text of the version, without its heading.
	text string
	// unreleased: the text is that of the next version, because there is none of this.
	unreleased bool
}

// change is one of the annotation artifacthub.io/changes.
type change struct {
	Kind        string `json:"kind"`
	Description string `json:"description"`
}

// readChangelog cuts a version out of the file. A version that has no section yet is what
// is under "Unreleased".
func readChangelog(path, version string) (changelog, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return changelog{}, fmt.Errorf("read the changelog: %w", err)
	}
	log, err := cut(string(content), version)
	if err != nil {
		return changelog{}, fmt.Errorf("%s: %w", path, err)
	}
	if log.unreleased {
		fmt.Fprintf(os.Stderr, "release: CHANGELOG.md has no section %s, so the notes are those of Unreleased\n", version)
	}
	return log, nil
}

func cut(content, version string) (changelog, error) {
	if text, ok := section(content, regexp.QuoteMeta(version)); ok {
		return changelog{text: text}, nil
	}
	text, ok := section(content, "Unreleased")
	if !ok || text == "" {
		return changelog{}, fmt.Errorf("there is neither a section %q nor anything under %q", "## "+version, "## Unreleased")
	}
	return changelog{text: text, unreleased: true}, nil
}

// section is the text below "## NAME", which may have a date behind it.
func section(content, name string) (string, bool) {
	at := regexp.MustCompile(`(?m)^## ` + name + `( - \d{4}-\d\d-\d\d)?$`).FindStringIndex(content)
	if at == nil {
		return "", false
	}
	text, _, _ := strings.Cut(content[at[1]:], "\n## ")
	return strings.TrimSpace(text), true
}

// kinds of changes, by the headings of the changelog. Artifact Hub knows no others.
var kinds = map[string]string{
	"Before you upgrade": "changed", "Added": "added", "Changed": "changed", "Deprecated": "deprecated",
	"Removed": "removed", "Fixed": "fixed", "Security": "security",
}

var (
	// sentence is the first one, or what is before a table.
	sentence = regexp.MustCompile(`^.*?(\.(\s|$)|\s\|)`)
	linked   = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	toFile   = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)\s]*)?\)`)
)

// changes are the first sentences of all entries.
func (l changelog) changes() ([]change, error) {
	var all []change
	for part := range strings.SplitSeq("\n"+l.text, "\n### ") {
		heading, entries, _ := strings.Cut(part, "\n")
		if strings.TrimSpace(part) == "" {
			continue
		}
		kind, ok := kinds[heading]
		if !ok {
			return nil, fmt.Errorf("the changelog has a heading %q: use one of Keep a Changelog, or add it to the kinds in hack/release", heading)
		}
		for entry := range strings.SplitSeq("\n"+entries, "\n- ") {
			text := linked.ReplaceAllString(strings.Join(strings.Fields(entry), " "), "$1")
			if text == "" {
				continue
			}
			if first := sentence.FindString(text); first != "" {
				text = first
			}
			text = strings.TrimRight(strings.ReplaceAll(text, "**", ""), " .:|")
			all = append(all, change{Kind: kind, Description: strings.ReplaceAll(text, "`", "")})
		}
	}
	return all, nil
}

// notes are the notes of the release: how to get it, and what has changed.
func (r release) notes(log changelog) string {
	download := repository + "/releases/download/" + r.version
	text := toFile.ReplaceAllString(log.text, "]("+repository+"/blob/"+r.version+"/$1$2)")
	return fmt.Sprintf(`Install it, with kubectl or with Helm:

    kubectl apply --server-side -f %[1]s/install.yaml
    helm upgrade --install drawbridge oci://ghcr.io/drawbridge-dev/charts/drawbridge --version %[2]s --namespace drawbridge-system --create-namespace

The plugin is in kubectl-drawbridge_%[3]s_OS_ARCH. [What is in a release and how to check it](%[4]s/blob/%[3]s/docs/operations/release.md).

%[5]s
`, download, r.number(), r.version, repository, text)
}
