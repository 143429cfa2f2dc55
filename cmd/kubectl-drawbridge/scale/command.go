// Package scale is the command that scales a Deployment or ReplicaSet down so that its
// topology spread constraints still hold (story 5 of KEP-4563). Decide is pure and chooses
// the pods that go; gather.go reads what it needs, and apply.go makes the ReplicaSet
// controller take these pods, by their deletion cost.
package scale

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// options are the flags of scale.
type options struct {
	*cli.Options
	replicas int32
	balanced bool
	dryRun   string
}

// NewCommand returns the command scale.
func NewCommand(o *cli.Options) *cobra.Command {
	s := &options{Options: o}
	cmd := &cobra.Command{
		Use:   "scale (deployment|replicaset)/NAME --replicas=N --balanced",
		Short: "Scale down so that topology spread constraints still hold",
		Long: `Scale a Deployment or a ReplicaSet down, and choose the pods that go: those whose
loss leaves the topology spread constraints of the pod template hold, and among these
the ones that are lost most cheaply. kubectl scale leaves that to chance, because
only the scheduler knows of the constraints, and only for new pods.

It first prints each constraint with its domains before and after, and which pods
go and why. Then it gives these pods the lowest pod-deletion-cost, so that the
ReplicaSet controller takes them, and scales. If that fails or is interrupted before
the number of replicas has changed, the former costs are restored.

Kubernetes takes pods first that are not Ready, whatever their cost; the plan counts
with that. What a HorizontalPodAutoscaler scales, and Deployments that are rolling
out, are refused.`,
		Example: `  kubectl drawbridge scale deployment/web --replicas=6 --balanced -n shop
  kubectl drawbridge scale deployment/web --replicas=6 --balanced -n shop --dry-run`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := parse(args)
			if err != nil {
				return err
			}
			if err := s.check(cmd, args); err != nil {
				return err
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			defer func() { o.PrintWarnings(c) }()
			return s.run(cmd.Context(), c, kind, name)
		},
	}
	flags := cmd.Flags()
	flags.Int32Var(&s.replicas, "replicas", 0, "how many replicas there are to be; required")
	flags.BoolVar(&s.balanced, "balanced", false, "choose the pods that go by the topology spread constraints; required, because kubectl scale does the rest")
	flags.StringVar(&s.dryRun, "dry-run", "none", "none, client or server: only say which pods would go. With server the API server is asked, too, whether it would accept the writes")
	flags.Lookup("dry-run").NoOptDefVal = "client"
	cli.Must(cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{"none", "client", "server"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// The kinds that can be scaled.
const (
	deployment = "deployment"
	replicaSet = "replicaset"
)

// parse returns kind and name of the arguments, TYPE/NAME or TYPE NAME as in kubectl.
func parse(args []string) (kind, name string, err error) {
	kind, name, typed := strings.Cut(args[0], "/")
	if len(args) > 1 {
		if typed {
			return "", "", errors.New("give one object, as TYPE/NAME")
		}
		name = args[1]
	}
	switch strings.TrimSuffix(strings.ToLower(kind), ".apps") {
	case "deployment", "deployments", "deploy":
		kind = deployment
	case "replicaset", "replicasets", "rs":
		kind = replicaSet
	default:
		return "", "", fmt.Errorf("%q cannot be scaled in balance: give deployment/NAME or replicaset/NAME. Pods of a StatefulSet always go in the order of their numbers", args[0])
	}
	if name == "" {
		return "", "", fmt.Errorf("give the name of the %s, as %s/NAME", kind, kind)
	}
	return kind, name, nil
}

func (s *options) check(cmd *cobra.Command, args []string) error {
	switch {
	case !cmd.Flags().Changed("replicas"):
		return errors.New("--replicas is required: how many replicas there are to be")
	case s.replicas < 0:
		return fmt.Errorf("--replicas must not be negative, but is %d", s.replicas)
	case !s.balanced:
		return fmt.Errorf("without --balanced there is nothing to choose: kubectl scale %s --replicas=%d", strings.Join(args, " "), s.replicas)
	case s.dryRun != "none" && s.dryRun != "client" && s.dryRun != "server":
		return fmt.Errorf("--dry-run must be none, client or server, not %q", s.dryRun)
	}
	return nil
}

func (s *options) run(ctx context.Context, c *cli.Connection, kind, name string) error {
	t, err := getTarget(ctx, c, kind, name)
	if err != nil {
		return err
	}
	if s.replicas == t.replicas {
		fmt.Fprintf(s.Out, "%s has %d replicas already\n", t, t.replicas)
		return nil
	}
	if s.replicas > t.replicas {
		return fmt.Errorf("%s has %d replicas, and only a scale-down chooses pods: kubectl scale %s --replicas=%d. The scheduler balances new pods", t, t.replicas, t, s.replicas)
	}
	in, err := s.gather(ctx, c, t)
	if err != nil {
		return err
	}
	plan, err := Decide(*in)
	if err != nil {
		return err
	}
	if err := explain(s.Out, t, &plan, s.replicas); err != nil {
		return err
	}
	for i := range plan.Spreads {
		if spread := &plan.Spreads[i]; spread.Hard && spread.Broken() {
			return fmt.Errorf("%s is not scaled: the constraint for %s holds now, and would not with %d replicas. Choose another number, or scale with kubectl scale", t, spread.TopologyKey, s.replicas)
		}
	}
	if s.dryRun == "client" {
		fmt.Fprintln(s.Out, "dry run: nothing was changed")
		return nil
	}
	return s.apply(ctx, c, t, &plan)
}
