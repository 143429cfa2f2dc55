// Package doctor is the command that finds problems of an installation of Drawbridge,
// and problems of the cluster that block drains. Gather reads everything once. Examine
// is pure: facts in, findings out.
package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// plainWidth is the width of the report if standard output is no terminal.
const plainWidth = 120

// NewCommand returns the command doctor. The version is that of this program.
func NewCommand(o *cli.Options, version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation, and say what to do",
		Long: `Check the installation of Drawbridge, and what in the cluster keeps drains from
ending. Every finding says what is wrong and what to do.

WARN means that Drawbridge works, but some evictions will fail or hang, or that
something could not be checked. FAIL means that Drawbridge does not work; the exit
code is 1 then.

Nothing is changed. Some calls are made as dry runs: the eviction of a pod that does
not exist, which only the webhook answers, the mark and the migration of one machine
for each EvacuationPolicy, and an EvictionRequest and the guard's budget in each
namespace whose pods have interceptors, at most 50. Missing permissions are named, and
the other checks continue; the ClusterRole drawbridge-doctor of the chart allows all but
the webhook's Secret and these dry runs of writes.

Checks:
` + checkLines(),
		Example: `  kubectl drawbridge doctor
  kubectl drawbridge doctor -o json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace := "" // Gather finds it.
			if cmd.Flags().Changed("drawbridge-namespace") {
				namespace = o.System
			}
			return run(cmd.Context(), o, namespace, version)
		},
	}
	o.AddOutput(cmd, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func checkLines() string {
	var lines []string
	for _, c := range Checks() {
		lines = append(lines, fmt.Sprintf("  %-20s %s", c[0], c[1]))
	}
	return strings.Join(lines, "\n")
}

func run(ctx context.Context, o *cli.Options, namespace, version string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	gatherer, err := NewGatherer(c.REST, o.Clock)
	if err != nil {
		return err
	}
	facts, err := gatherer.Gather(ctx, namespace)
	if err != nil {
		return err
	}
	facts.Plugin = version
	report := Examine(*facts)
	if o.Output != "" {
		err = o.PrintValue(report)
	} else {
		width, _, ok := o.Size()
		if !ok {
			width = plainWidth
		}
		err = Print(o.Out, report, width)
	}
	if err != nil {
		return err
	}
	if failed := report.Count(Fail); failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(report.Checks))
	}
	if blind, most := report.Blind(); most {
		return fmt.Errorf("%d of %d checks could not look, so nothing is known of the installation", blind, len(report.Checks))
	}
	return nil
}
