// Package app is the command line of kubectl-drawbridge.
package app

import (
	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/drain"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/forecast"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/forecast/forecastpage"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/scale"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/internal/version"
)

const longHelp = `Drain nodes, follow drains, find out why one is not finished, and cancel it.

Drawbridge lets the interceptors of pods (migrations, replacements, checkpoints)
work before the pods are evicted. This plugin is its command line.

Exit codes: 0 for success, 1 for an error, and 130 after ^C.`

// commands are the short commands. The longer ones have their own packages.
type commands struct{ *cli.Options }

// NewCommand returns the command line.
func NewCommand(o *cli.Options) *cobra.Command {
	// Errors are returned to us; log lines of the libraries would break the view.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	root := &cobra.Command{
		Use:           "kubectl-drawbridge",
		Short:         "Drain nodes, and let the interceptors of their pods run first",
		Long:          longHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl drawbridge"},
	}
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.ErrOut)
	o.Config.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&o.System, "drawbridge-namespace", o.System, "namespace that Drawbridge runs in")
	c := commands{o}
	root.AddCommand(
		drain.NewCommand(o), forecast.NewCommand(o), newStatus(c), why.NewCommand(o), newCancel(c), newUncordon(c), newSkip(c), scale.NewCommand(o), newInterceptors(c), newHooks(c), newBudgets(c),
		dashboard.NewCommand(o, dashboard.Parts{Actions: newActions, Pages: forecastpage.Pages(), Version: version.Get()}), doctor.NewCommand(o, version.Get()), newVersion(c),
	)
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	cli.Must(err)
	completion.AddCommand(newKubectlCompletion(c))
	for _, flag := range []string{"namespace", "drawbridge-namespace"} {
		cli.Must(root.RegisterFlagCompletionFunc(flag, o.CompleteNamespaces))
	}
	return root
}
