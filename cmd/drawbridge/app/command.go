package app

import (
	"flag"

	"github.com/go-logr/zapr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

// NewCommand returns the command line of the manager. It runs until its context ends.
// The changes are applied to the options after the flags.
func NewCommand(changes ...func(*Options)) *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "drawbridge",
		Short: "Make evictions wait for a pod's interceptors",
		Long: "Drawbridge turns calls of pods/eviction into EvictionRequests, answers 429 while the pod's\n" +
			"interceptors work, and evicts the pod when they are done.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, change := range changes {
				change(&o)
			}
			if err := o.Validate(); err != nil {
				return err
			}
			log, level, err := newLogger(o.LogLevel, o.LogFormat)
			if err != nil {
				return err
			}
			// net/http logs failed TLS handshakes with the standard logger.
			restore, err := zap.RedirectStdLogAt(log, zap.DebugLevel)
			if err != nil {
				return err
			}
			defer restore()
			o.Logger, o.Level = zapr.NewLogger(log), &level
			ctrl.SetLogger(o.Logger)
			klog.SetLogger(o.Logger)
			conf, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			return Run(cmd.Context(), conf, o)
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.CompletionOptions.DisableDefaultCmd = true // Nobody types this in a shell.
	cleanup := newCleanupCommand()
	selfTest := newSelfTestCommand()
	cmd.AddCommand(cleanup, selfTest, newVersionCommand())
	for _, c := range []*cobra.Command{cmd, cleanup, selfTest} {
		// controller-runtime owns this one; GetConfig reads it.
		c.Flags().AddGoFlag(flag.CommandLine.Lookup(config.KubeconfigFlagName))
	}
	return cmd
}
