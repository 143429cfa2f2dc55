package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// workflow is all that a workflow of ours may have. Conditions, shells, services and
// defaults are not among it: logic is in the Makefile, where it can be tried.
type workflow struct {
	Name        string            `json:"name"`
	On          map[string]any    `json:"on"`
	Permissions map[string]string `json:"permissions"`
	Concurrency map[string]any    `json:"concurrency"`
	Jobs        map[string]job    `json:"jobs"`
}

type job struct {
	RunsOn      string            `json:"runs-on"`
	Needs       string            `json:"needs"`
	Minutes     int               `json:"timeout-minutes"`
	Environment string            `json:"environment"`
	Permissions map[string]string `json:"permissions"`
	Strategy    struct {
		FailFast bool                `json:"fail-fast"`
		Matrix   map[string][]string `json:"matrix"`
	} `json:"strategy"`
	Steps []step `json:"steps"`
}

type step struct {
	ID   string            `json:"id"`
	Uses string            `json:"uses"`
	Run  string            `json:"run"`
	With map[string]any    `json:"with"`
	Env  map[string]string `json:"env"`
}

var (
	nightly = regexp.MustCompile(`(?m)^NIGHTLY \?= (.*)$`)
	target  = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
)

// read decodes a workflow, and refuses what it may not have.
func read(content string) (workflow, error) {
	// Otherwise YAML takes the key for a truth value.
	content = strings.Replace(content, "\non:", "\n\"on\":", 1)
	var w workflow
	err := yaml.UnmarshalStrict([]byte(content), &w)
	return w, err
}

// workflows are all of the repository, by the names of their files.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../.github/workflows/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows %v: %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		all[filepath.Base(file)] = page(t, file)
	}
	return all
}

// Workflows cannot run here. So each step is a command that can, or an action for what only
// GitHub has.
func TestWorkflowsOnlyCallWhatRunsHere(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range target.FindAllStringSubmatch(page(t, "../Makefile"), -1) {
		targets[match[1]] = true
	}
	for name, content := range workflows(t) {
		t.Run(name, func(t *testing.T) {
			w, err := read(content)
			if err != nil {
				t.Fatal(err)
			}
			for name, job := range w.Jobs {
				for _, step := range job.Steps {
					switch made, ok := strings.CutPrefix(step.Run, "make "); {
					case step.Run == "":
					case step.Run == ".ci/run":
						if _, err := os.Stat("../.ci/run"); err != nil {
							t.Error(err)
						}
					case !ok || !targets[made]:
						t.Errorf("job %s runs %q, want .ci/run or make with one target of the Makefile", name, step.Run)
					}
				}
			}
		})
	}
}

// The jobs of the workflow are all that `make nightly` makes, beside each other.
func TestTheNightlyWorkflowMakesAllOfIt(t *testing.T) {
	w, err := read(workflows(t)["nightly.yml"])
	if err != nil {
		t.Fatal(err)
	}
	match := nightly.FindStringSubmatch(page(t, "../Makefile"))
	if match == nil {
		t.Fatal("the Makefile does not say what is made at night")
	}
	if diff := cmp.Diff(strings.Fields(match[1]), w.Jobs["nightly"].Strategy.Matrix["target"]); diff != "" {
		t.Errorf("targets (-Makefile +workflow):\n%s", diff)
	}
}

func TestWorkflowsAreSafe(t *testing.T) {
	for name, content := range workflows(t) {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff([]string(nil), audit(name, content)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// One commit of an action in all workflows: an update that forgets one would be seen.
func TestWorkflowsAgreeOnTheirActions(t *testing.T) {
	found := map[string][]string{}
	for _, content := range workflows(t) {
		for _, match := range pinned.FindAllStringSubmatch(content, -1) {
			if pin := fmt.Sprintf("%s %s", match[2], match[3]); !slices.Contains(found[match[1]], pin) {
				found[match[1]] = append(found[match[1]], pin)
			}
		}
	}
	for action, pins := range found {
		if len(pins) > 1 {
			t.Errorf("%s has the commits %q", action, pins)
		}
	}
}
