package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook"
)

func newHooksRetry(o commands) *cobra.Command {
	return &cobra.Command{
		Use:   "retry HOOK [POD]",
		Short: "Let a hook that has failed try again",
		Long: `Let a hook try again for a pod that it holds because its last attempt has failed, or
for all of them. It gets all of its attempts again. The hook itself is not changed.

An attempt that waits because the cluster refuses its Job begins now. Without this command
it begins within five minutes.

You need get on evacuationhooks, and patch on evacuationhooks/status, which the
ClusterRole drawbridge-operator has.`,
		Example: `  kubectl drawbridge hooks retry dump -n shop
  kubectl drawbridge hooks retry dump ledger-0 -n shop`,
		Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return o.completeHeld(cmd.Context(), args[0], prefix)
			}
			return o.CompleteFirst(cli.HookResource)(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.Connect()
			if err != nil {
				return err
			}
			defer func() { o.PrintWarnings(c) }()
			pod := ""
			if len(args) > 1 {
				pod = strings.TrimPrefix(args[1], "pod/")
			}
			return o.retryHook(cmd.Context(), c, args[0], pod)
		},
	}
}

func (o commands) retryHook(ctx context.Context, c *cli.Connection, name, pod string) error {
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	var pods []string
	err = cli.OnLatest(func() error {
		found := &v1alpha1.EvacuationHook{}
		if err := get(ctx, c, found, "EvacuationHook", name); err != nil {
			return err
		}
		before := found.DeepCopy()
		if pods, err = retryRuns(found, pod, text.Clean(user.Username), c.ServerTime()); err != nil {
			return err
		}
		// Only in this version: Drawbridge may have gone on meanwhile.
		return c.Status().Patch(ctx, found, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(cli.FieldOwner)) //nolint:wrapcheck // Below.
	})
	if err != nil {
		return fmt.Errorf("let hook %s try again: %w", name, err)
	}
	fmt.Fprintf(o.Out, "hook %s tries again for %s\n", name, podList(pods))
	return nil
}

// podList names the pods: "pod a", "pods a, b".
func podList(pods []string) string {
	if len(pods) == 1 {
		return "pod " + pods[0]
	}
	return "pods " + strings.Join(pods, ", ")
}

// retryRuns lets the runs of the pod, or all of them, try again, and returns their pods.
func retryRuns(h *v1alpha1.EvacuationHook, pod, who string, now time.Time) ([]string, error) {
	var pods []string
	phase := ""
	for i := range h.Status.Runs {
		run := &h.Status.Runs[i]
		if pod != "" && run.Pod != pod {
			continue
		}
		phase = string(run.Phase)
		if retried, ok := hook.Retry(*run, who, now); ok {
			*run = retried
			pods = append(pods, run.Pod)
		}
	}
	switch {
	case len(pods) > 0:
		slices.Sort(pods)
		return pods, nil
	case pod == "":
		return nil, fmt.Errorf("it holds no pod, so there is nothing to try again")
	case phase == "":
		return nil, fmt.Errorf("it has no run for a pod %q: kubectl drawbridge hooks %s lists those that it has", pod, h.Name)
	default:
		return nil, fmt.Errorf("its run for pod %s is %s, so there is nothing to try again", pod, phase)
	}
}

// completeHeld completes the pods for which a hook can try again.
func (o commands) completeHeld(ctx context.Context, name, typed string) ([]string, cobra.ShellCompDirective) {
	return o.Complete(ctx, typed, func(ctx context.Context, c *cli.Connection) ([]string, error) {
		found := &v1alpha1.EvacuationHook{}
		if err := get(ctx, c, found, "EvacuationHook", name); err != nil {
			return nil, err
		}
		pods, err := retryRuns(found, "", "", c.ServerTime())
		if err != nil {
			return nil, nil //nolint:nilerr // There is nothing to try again, so nothing to offer.
		}
		return pods, nil
	})
}
