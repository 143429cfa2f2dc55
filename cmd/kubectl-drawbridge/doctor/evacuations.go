package doctor

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/evacuation/vm"
)

// dryRunWrites tries the writes of the policies as dry runs: nothing is stored or moved.
func (g *Gatherer) dryRunWrites(ctx context.Context, f *Facts) {
	for i := range f.EvacuationPolicies {
		result, err := vm.DryRun(ctx, g.reader, &f.EvacuationPolicies[i])
		r := WriteDryRun{DryRunResult: result}
		switch {
		case meta.IsNoMatchError(err):
			continue // The condition Ready says so.
		case err != nil:
			r.Problem = err.Error()
		}
		f.WriteDryRuns = append(f.WriteDryRuns, r)
	}
}

func evacuations(f *Facts) verdict {
	var v verdict
	var findings []Finding
	var tried []string
	for _, r := range f.WriteDryRuns {
		object := "evacuationpolicy/" + r.Policy
		switch {
		case r.Problem != "":
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "dry runs were not tried: " + r.Problem, Do: "Try again; if it stays, look at the API server, and at your permissions."})
		case len(r.Missing) > 0:
			findings = append(findings, Finding{Severity: Warn, Object: object,
				What: "dry runs were not tried, because you may not " + strings.Join(r.Missing, ", "),
				Do:   "Ask for these permissions, or let somebody run this who has them: the API server has none that are for dry runs alone, so the ClusterRole drawbridge-doctor does not have them."})
		case r.Workload != "":
			tried = append(tried, r.Workload)
		}
		for _, problem := range r.Problems {
			findings = append(findings, Finding{Severity: Fail, Object: object,
				What: fmt.Sprintf("the dry run of a %s (tried with %s)", problem, r.Workload),
				Do:   "Evacuations have no effect: keep the platform's own eviction webhook. See who changes or refuses the write, and let the policy write where others may (docs/runbooks/mark-discarded.md)."})
		}
	}
	v.summary = "nothing to try"
	if len(tried) > 0 {
		v.summary = "tried with " + list(tried)
	}
	v.findings = bounded(findings, "dry runs did not go well")
	return v
}
