package doctor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/evacuation/vm"
)

func TestDryRunsOfEvacuations(t *testing.T) {
	const machine = "VirtualMachineInstance shop/vm"
	cases := map[string]struct {
		dryRun  WriteDryRun
		want    []string
		summary string
	}{
		"no machine could be evacuated now": {
			dryRun: WriteDryRun{DryRunResult: vm.DryRunResult{Policy: "kubevirt"}}, summary: "nothing to try",
		},
		"all is taken": {
			dryRun:  WriteDryRun{DryRunResult: vm.DryRunResult{Policy: "kubevirt", Workload: machine, Tried: []string{"mark", "migration"}}},
			summary: "tried with " + machine,
		},
		"a mark is discarded": {
			dryRun: WriteDryRun{DryRunResult: vm.DryRunResult{Policy: "kubevirt", Workload: machine, Tried: []string{"mark"}, Problems: []string{"mark: it is discarded"}}},
			want:   []string{"FAIL evacuationpolicy/kubevirt: the dry run of a mark: it is discarded (tried with " + machine + ")"},
		},
		"a permission is missing": {
			dryRun: WriteDryRun{DryRunResult: vm.DryRunResult{Policy: "kubevirt", Missing: []string{`"patch" on machines.example.com`}}},
			want:   []string{`WARN evacuationpolicy/kubevirt: dry runs were not tried, because you may not "patch" on machines.example.com`},
		},
		"the API server does not answer": {
			dryRun: WriteDryRun{DryRunResult: vm.DryRunResult{Policy: "kubevirt"}, Problem: "list pods: timeout"},
			want:   []string{"WARN evacuationpolicy/kubevirt: dry runs were not tried: list pods: timeout"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			f.WriteDryRuns = []WriteDryRun{tc.dryRun}
			r := only(t, f, "evacuations")
			if diff := cmp.Diff(tc.want, brief(r)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if r.Summary != tc.summary {
				t.Errorf("summary: want %q, got %q", tc.summary, r.Summary)
			}
		})
	}
}
