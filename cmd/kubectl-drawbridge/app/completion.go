package app

import (
	_ "embed"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// completionProgram is what kubectl looks for in the PATH to complete the plugin. It is in the
// plugin's archives, too.
//
//go:embed kubectl_complete-drawbridge
var completionProgram string

func newKubectlCompletion(o commands) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Print the program by which kubectl completes this plugin",
		Long: `Print the program kubectl_complete-drawbridge. kubectl runs it to complete
kubectl drawbridge, if it finds it in the PATH. The completion of kubectl itself must be
set up as well: see kubectl completion --help.

The other commands here are for a shell that calls kubectl-drawbridge by its own name.`,
		Example: `  kubectl drawbridge completion kubectl > ~/.local/bin/kubectl_complete-drawbridge
  chmod +x ~/.local/bin/kubectl_complete-drawbridge`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if _, err := io.WriteString(o.Out, completionProgram); err != nil {
				return fmt.Errorf("print the program: %w", err)
			}
			return nil
		},
	}
}
