package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	uses       = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.*)$`)
	pinned     = regexp.MustCompile(`(?m)^\s*(?:- )?uses: ([\w.-]+/[\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$`)
	expression = regexp.MustCompile(`\$\{\{\s*(.*?)\s*\}\}`)
)

// expressions are all that our workflows may read of the event. None of them can be chosen
// by somebody who may not push: no titles, names of branches, or texts.
var expressions = []string{
	"github.actor", "github.ref", "github.ref_name", "secrets.GITHUB_TOKEN",
	"steps.push.outputs.image-digest", "steps.push.outputs.chart-digest",
}

// writers are the jobs that may write, and what.
var writers = map[string]map[string]string{
	"release.yml/publish": {"contents": "write", "packages": "write", "id-token": "write", "attestations": "write"},
	"site.yml/deploy":     {"pages": "write", "id-token": "write"},
}

// triggers are what may start a workflow. The others run with the permissions of the
// repository on what strangers have written (pull_request_target, workflow_run,
// issue_comment).
var triggers = []string{"pull_request", "push", "schedule", "workflow_dispatch"}

// audit returns what zizmor would find in a workflow: actions that can change, too many
// permissions, expressions in scripts, credentials that stay, dangerous triggers, and caches
// in what is published. zizmor is no Go program, and the module proxy has none of the Go
// programs that look for a part of this (ghalint, poutine).
func audit(file, content string) (findings []string) {
	find := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	for _, match := range uses.FindAllStringSubmatch(content, -1) {
		if !pinned.MatchString(strings.TrimLeft(match[0], "\n")) {
			find("the action %s is not named by a commit with its version behind it", match[1])
		}
	}
	w, err := read(content)
	if err != nil {
		return append(findings, err.Error())
	}
	for _, trigger := range slices.Sorted(maps.Keys(w.On)) {
		if !slices.Contains(triggers, trigger) {
			find("the trigger %s is dangerous", trigger)
		}
	}
	if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
		find("permissions %v: a workflow may read, jobs ask for more", w.Permissions)
	}
	if w.Concurrency["group"] == nil {
		find("there is no concurrency group")
	}
	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		for _, finding := range auditJob(file+"/"+name, w.Jobs[name]) {
			find("job %s: %s", name, finding)
		}
	}
	return findings
}

func auditJob(name string, j job) (findings []string) {
	find := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	if j.Minutes == 0 {
		find("there is no timeout-minutes")
	}
	var writes []string
	for scope, access := range j.Permissions {
		if access != "read" && writers[name][scope] != access {
			writes = append(writes, scope+": "+access)
		}
	}
	if slices.Sort(writes); len(writes) > 0 {
		find("it may %s", strings.Join(writes, ", "))
	}
	publishes := strings.HasPrefix(name, "release.yml/") || strings.HasPrefix(name, "site.yml/")
	for _, s := range j.Steps {
		switch {
		case strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false:
			find("it leaves its token in the checkout")
		case strings.HasPrefix(s.Uses, "actions/cache"), strings.HasPrefix(s.Uses, "actions/setup-") && publishes && s.With["cache"] != false:
			find("it may publish what another workflow has put into a cache")
		}
		for _, match := range expression.FindAllStringSubmatch(s.Run, -1) {
			find("the shell reads the expression %s: give it as a variable", match[1])
		}
		for _, value := range slices.Concat(slices.Collect(maps.Values(s.Env)), texts(s.With)) {
			for _, match := range expression.FindAllStringSubmatch(value, -1) {
				if !slices.Contains(expressions, match[1]) && !strings.HasPrefix(match[1], "matrix.") {
					find("it reads the expression %s", match[1])
				}
			}
		}
	}
	return findings
}

func texts(with map[string]any) (all []string) {
	for _, value := range with {
		all = append(all, fmt.Sprint(value))
	}
	return all
}

// goodWorkflow has nothing to find. The cases below spoil it.
const goodWorkflow = `name: good
on:
  push: {}
permissions:
  contents: read
concurrency:
  group: good
jobs:
  publish:
    runs-on: ubuntu-latest
    timeout-minutes: 10
    permissions:
      contents: write
    steps:
      - uses: actions/checkout@8e8c483db84b4bee98b60c0593521ed34d9990e8 # v6.0.1
        with:
          persist-credentials: false
      - uses: actions/setup-go@4dc6199c7b1a012772edbd06daecab0f50c9053c # v6.1.0
        with:
          cache: false
      - run: make release
        env:
          VERSION: ${{ github.ref_name }}
`

func TestTheAuditFindsWhatIsDangerous(t *testing.T) {
	cases := map[string]struct {
		from, to string
		want     []string
	}{
		"nothing":                       {"", "", nil},
		"an action by its tag":          {"@8e8c483db84b4bee98b60c0593521ed34d9990e8 # v6.0.1", "@v6.0.1", []string{"the action actions/checkout@v6.0.1 is not named by a commit with its version behind it"}},
		"an action without its version": {" # v6.0.1", "", []string{"the action actions/checkout@8e8c483db84b4bee98b60c0593521ed34d9990e8 is not named by a commit with its version behind it"}},
		"pull requests of strangers with our permissions": {"push: {}", "pull_request_target: {}", []string{"the trigger pull_request_target is dangerous"}},
		"a workflow after another":                        {"push: {}", "workflow_run: {}", []string{"the trigger workflow_run is dangerous"}},
		"permissions for all jobs":                        {"contents: read", "contents: write", []string{"permissions map[contents:write]: a workflow may read, jobs ask for more"}},
		"no concurrency group":                            {"concurrency:\n  group: good\n", "", []string{"there is no concurrency group"}},
		"no timeout":                                      {"    timeout-minutes: 10\n", "", []string{"job publish: there is no timeout-minutes"}},
		"a permission that the job has no use for":        {"contents: write", "actions: write", []string{"job publish: it may actions: write"}},
		"a token in the checkout":                         {"persist-credentials: false", "fetch-depth: 1", []string{"job publish: it leaves its token in the checkout"}},
		"a cache in a release":                            {"cache: false", "go-version-file: go.mod", []string{"job publish: it may publish what another workflow has put into a cache"}},
		"an expression in a script":                       {"make release", "make ${{ github.event.head_commit.message }}", []string{"job publish: the shell reads the expression github.event.head_commit.message: give it as a variable"}},
		"a text of a stranger":                            {"github.ref_name", "github.event.pull_request.title", []string{"job publish: it reads the expression github.event.pull_request.title"}},
		"a secret":                                        {"github.ref_name", "secrets.KEY", []string{"job publish: it reads the expression secrets.KEY"}},
		"logic in YAML":                                   {"      - run:", "      - if: always()\n        run:", []string{`error unmarshaling JSON: while decoding JSON: json: unknown field "if"`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := audit("release.yml", strings.Replace(goodWorkflow, tc.from, tc.to, 1))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
