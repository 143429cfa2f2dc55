package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what we look at of a workflow.
type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Minutes  int `json:"timeout-minutes"`
		Strategy struct {
			Matrix map[string][]string `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			Uses string         `json:"uses"`
			Run  string         `json:"run"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

var (
	pinned = regexp.MustCompile(`(?m)uses: [\w./-]+@([0-9a-f]{40}) # v\d`)
	uses   = regexp.MustCompile(`(?m)uses:`)
	target = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	ofAll  = regexp.MustCompile(`^make \$\{\{ matrix\.(\w+) \}\}$`)
)

// Workflows cannot run here. So each step is a command that can, and nothing hides in YAML.
func TestWorkflowsOnlyCallWhatRunsHere(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range target.FindAllStringSubmatch(page(t, "../Makefile"), -1) {
		targets[match[1]] = true
	}
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows %v: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content := page(t, file)
			if all, good := len(uses.FindAllString(content, -1)), len(pinned.FindAllString(content, -1)); all != good {
				t.Errorf("%d of %d actions are named by a commit with its version behind it", good, all)
			}
			var w workflow
			if err := yaml.Unmarshal([]byte(content), &w); err != nil {
				t.Fatal(err)
			}
			if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
				t.Errorf("permissions %v: a workflow may read, jobs ask for more", w.Permissions)
			}
			for name, job := range w.Jobs {
				if job.Minutes == 0 {
					t.Errorf("job %s has no timeout-minutes", name)
				}
				for _, step := range job.Steps {
					if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
						t.Errorf("job %s leaves its token in the checkout", name)
					}
					for _, run := range commands(step.Run, job.Strategy.Matrix) {
						if run == ".ci/run" {
							if _, err := os.Stat("../.ci/run"); err != nil {
								t.Error(err)
							}
						} else if made, ok := strings.CutPrefix(run, "make "); !ok || !targets[made] {
							t.Errorf("job %s runs %q, want .ci/run or make with one target of the Makefile", name, run)
						}
					}
				}
			}
		})
	}
}

// commands are the commands of a step, one for each value if it is for all of a matrix.
func commands(run string, matrix map[string][]string) (all []string) {
	if run == "" {
		return nil
	}
	match := ofAll.FindStringSubmatch(run)
	if match == nil {
		return []string{run}
	}
	for _, value := range matrix[match[1]] {
		all = append(all, "make "+value)
	}
	return all
}
