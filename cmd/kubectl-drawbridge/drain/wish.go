package drain

import (
	"context"
	"errors"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// Wish is a drain that is asked for by other means than flags.
type Wish struct {
	Nodes  []string
	Reason string
	// Force, DeleteEmptyDirData and IgnoreDaemonSets are kubectl drain's.
	Force, DeleteEmptyDirData, IgnoreDaemonSets bool
}

// Plan is what a drain would do.
type Plan struct {
	// Rows of a table; the first is its heading.
	Rows [][]string
	// Summary in one sentence without an end.
	Summary string
	// Refused is why kubectl drain would refuse it as it stands; nil if it would not.
	Refused error
}

func (w Wish) options(o *cli.Options) *options {
	return &options{Options: o, reason: w.Reason, force: w.Force, deleteEmptyDirData: w.DeleteEmptyDirData, ignoreDaemonSets: w.IgnoreDaemonSets}
}

// Command is the command line of the same drain.
func (w Wish) Command() string {
	line := w.options(nil).command(w.Nodes)
	if w.Reason != "" {
		line += " --reason=" + cli.ShellWord(w.Reason)
	}
	return line
}

// Plan returns what it would do. Warnings are printed.
func (w Wish) Plan(ctx context.Context, o *cli.Options, c *cli.Connection) (Plan, error) {
	d := w.options(o)
	m, err := d.maintenance(w.Nodes)
	if err != nil {
		return Plan{}, err
	}
	nodes, err := d.nodes(ctx, c, w.Nodes)
	if err != nil {
		return Plan{}, err
	}
	refused := d.refusal(ctx, c, nodes)
	if _, ok := errors.AsType[*refusedError](refused); refused != nil && !ok {
		return Plan{}, refused
	}
	p, err := d.foresee(ctx, c, m, nodes)
	p.Refused = refused
	return p, err
}

// Start starts it, as kubectl drawbridge drain --wait=false does.
func (w Wish) Start(ctx context.Context, o *cli.Options, c *cli.Connection) error {
	return w.options(o).run(ctx, c, w.Nodes)
}
