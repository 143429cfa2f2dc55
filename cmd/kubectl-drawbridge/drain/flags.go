package drain

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// options are the flags of drain.
type options struct {
	*cli.Options
	selector          string
	reason            string
	timeout           time.Duration
	dryRunFlag        string
	dryRun            cmdutil.DryRunStrategy
	wait              bool
	cancelOnInterrupt bool
	parallel          int32
	// force, deleteEmptyDirData, ignoreDaemonSets and chunkSize are kubectl drain's.
	force, deleteEmptyDirData, ignoreDaemonSets bool
	chunkSize                                   int64
}

// addFlags adds our own flags and those of kubectl drain. What kubectl drain refuses
// without a flag is refused here, too.
func (d *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&d.selector, "selector", "l", "", "label selector of the nodes, instead of their names")
	flags.StringVar(&d.reason, "reason", "", "why, for people; shown in the conditions of the pods")
	flags.DurationVar(&d.timeout, "timeout", 0, "how long to follow; the drain itself continues. 0 is forever")
	flags.StringVar(&d.dryRunFlag, "dry-run", "none", "none, client or server: only say what would happen to each pod. With server, the API server is asked, too: whether it would accept the NodeMaintenance, and how it would answer the eviction of each pod")
	flags.Lookup("dry-run").NoOptDefVal = "client"
	flags.BoolVar(&d.force, "force", false, "also evict pods that no controller would recreate")
	flags.BoolVar(&d.deleteEmptyDirData, "delete-emptydir-data", false, "also evict pods with emptyDir volumes, whose data is lost")
	flags.BoolVar(&d.ignoreDaemonSets, "ignore-daemonsets", false, "ignore pods of DaemonSets, which stay")
	flags.BoolVar(&d.wait, "wait", true, "follow the drain until it is done")
	flags.BoolVar(&d.cancelOnInterrupt, "cancel-on-interrupt", false, "on ^C stop the drain instead of leaving it running")
	flags.Int32Var(&d.parallel, "max-parallel", 0, "how many nodes to drain at the same time; 0 is all")
	flags.Int64Var(&d.chunkSize, "chunk-size", cmdutil.DefaultChunkSize, "how many pods to read at a time; 0 is all")
	cli.Must(cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "client", "server"}, cobra.ShellCompDirectiveNoFileComp)))
	for _, foreign := range kubectlOnly {
		flags.String(foreign.name, "", "")
		flags.Lookup(foreign.name).NoOptDefVal = "true"
		cli.Must(flags.MarkHidden(foreign.name))
	}
}

// kubectlOnly are the flags of kubectl drain that a NodeMaintenance does not support.
var kubectlOnly = []struct{ name, why string }{
	{"disable-eviction", "it would delete pods without their interceptors and budgets"},
	{"grace-period", "each pod gets the grace period that it asks for itself"},
	{"pod-selector", "a maintenance drains whole nodes"},
	{"skip-wait-for-delete-timeout", "a node is not drained before its pods have ended"},
}

// check reports what is wrong with the flags.
func (d *options) check(cmd *cobra.Command) error {
	for _, foreign := range kubectlOnly {
		if cmd.Flags().Changed(foreign.name) {
			return fmt.Errorf("only kubectl drain has --%s: %s. Use kubectl drain if that is what you want; interceptors come first there, too", foreign.name, foreign.why)
		}
	}
	switch d.dryRunFlag {
	case "none":
		d.dryRun = cmdutil.DryRunNone
	case "client":
		d.dryRun = cmdutil.DryRunClient
	case "server":
		d.dryRun = cmdutil.DryRunServer
	default:
		return fmt.Errorf(`--dry-run must be none, client or server, not %q`, d.dryRunFlag)
	}
	return nil
}

// command is the command line for the same drain.
func (d *options) command(args []string) string {
	words := []string{"kubectl drawbridge drain"}
	if d.selector != "" {
		words = append(words, "-l "+cli.ShellWord(d.selector))
	}
	words = append(words, args...)
	for _, flag := range []struct {
		name string
		on   bool
	}{{"--force", d.force}, {"--delete-emptydir-data", d.deleteEmptyDirData}, {"--ignore-daemonsets", d.ignoreDaemonSets}} {
		if flag.on {
			words = append(words, flag.name)
		}
	}
	return strings.Join(words, " ")
}
