package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestRunsThatTryAgain(t *testing.T) {
	type run struct {
		Phase        v1alpha1.HookPhase
		FirstAttempt int32
		Message      string
	}
	running, done := run{v1alpha1.HookRunning, 1, ""}, run{v1alpha1.HookSucceeded, 1, ""}
	held := run{v1alpha1.HookHeld, 1, "the Job's pod ended with exit code 1\x1b[31m"}
	again := run{v1alpha1.HookRetrying, 4, "olga lets it try again: the Job's pod ended with exit code 1\x1b[31m"}
	refused := run{v1alpha1.HookRefused, 1, "Job x cannot be created"}
	cases := map[string]struct {
		pod  string
		want []string
		runs []run
		err  string
	}{
		"all that can":       {want: []string{"db-1", "db-3"}, runs: []run{running, again, done, {v1alpha1.HookRefused, 1, "olga lets it try again: Job x cannot be created"}}},
		"one":                {pod: "db-1", want: []string{"db-1"}, runs: []run{running, again, done, refused}},
		"one that runs":      {pod: "db-0", runs: []run{running, held, done, refused}, err: "its run for pod db-0 is Running, so there is nothing to try again"},
		"one that is not":    {pod: "db-9", runs: []run{running, held, done, refused}, err: `it has no run for a pod "db-9": kubectl drawbridge hooks dump lists those that it has`},
		"no hook that holds": {err: "it holds no pod, so there is nothing to try again"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := dumpHook()
			h.Status.Runs = append(h.Status.Runs, hookRun("db-3", v1alpha1.HookRefused, 1, "Job x cannot be created"))
			if tc.runs == nil {
				h.Status.Runs = nil
			}
			got, err := retryRuns(h, tc.pod, "olga", ago(0))
			said := ""
			if err != nil {
				said = err.Error()
			}
			var runs []run
			for _, r := range h.Status.Runs {
				runs = append(runs, run{r.Phase, r.FirstAttempt, r.Message})
			}
			if diff := cmp.Diff([]any{tc.want, tc.runs, tc.err}, []any{got, runs, said}); diff != "" {
				t.Errorf("pods, runs and error (-want +got):\n%s", diff)
			}
		})
	}
}
