package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	apply "github.com/drawbridge-dev/drawbridge/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

// skipTries is how often a skip is retried because the request has changed.
const skipTries = 5

func newSkip(o commands) *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "skip POD INTERCEPTOR --reason=WHY",
		Short: "End the turn of a stuck interceptor for it",
		Long: `Set the completion time of the interceptor whose turn it is, so that the next one
begins. Its report, an event and the audit log say who did it and why.

The interceptor may still be working, or what it protects may not be safe: check
kubectl drawbridge why POD first. You need the verb skip on evictionrequests, which
the ClusterRole drawbridge-operator has.`,
		Example: `  kubectl drawbridge skip db-0 backup.example.com -n shop --reason="the bucket is gone for good"`,
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return o.completeActive(cmd.Context(), strings.TrimPrefix(args[0], "pod/"), prefix)
			}
			return o.CompletePod(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return fmt.Errorf("--reason is required: it is recorded, so that others can see why the interceptor did not run")
			}
			c, err := o.Connect()
			if err != nil {
				return err
			}
			defer func() { o.PrintWarnings(c) }()
			return o.skip(cmd.Context(), c, strings.TrimPrefix(args[0], "pod/"), args[1], strings.TrimSpace(reason))
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for people; required")
	o.AddOutput(cmd, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

// requestOf reads the request for the pod of that name.
func requestOf(ctx context.Context, c *cli.Connection, pod string) (*v1alpha1.EvictionRequest, error) {
	target := &corev1.Pod{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: pod}, target); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no pod %q in namespace %q: see --namespace", pod, c.Namespace)
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", pod, err)
	}
	er := &v1alpha1.EvictionRequest{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: target.Namespace, Name: string(target.UID)}, er); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("nobody has requested the eviction of pod %s, so there is nothing to skip", pod)
	case err != nil:
		return nil, fmt.Errorf("get the request for pod %s: %w", pod, err)
	}
	return er, nil
}

// skippable says why an interceptor of a request cannot be skipped, if it cannot.
func skippable(er *v1alpha1.EvictionRequest, name string) error {
	known := slices.ContainsFunc(er.Status.TargetInterceptors, func(t v1alpha1.Interceptor) bool { return t.Name == name })
	active := strings.Join(er.Status.ActiveInterceptors, "")
	switch {
	case name == v1alpha1.ImperativeEvictionInterceptor:
		return fmt.Errorf("%s cannot be skipped: it is what evicts the pod. To keep the pod, use kubectl drawbridge cancel", name)
	case !known && len(er.Status.TargetInterceptors) > 0:
		var names []string
		for _, t := range er.Status.TargetInterceptors {
			names = append(names, t.Name)
		}
		return fmt.Errorf("%s does not intercept this pod; those who do are %s", name, strings.Join(names, ", "))
	case active == "":
		return fmt.Errorf("it is nobody's turn: the request is %s", strings.ToLower(string(v1alpha1.Summarize(er).State)))
	case active != name:
		return fmt.Errorf("it is not the turn of %s but of %s; only the one whose turn it is can be skipped", name, active)
	}
	return nil
}

func (o commands) skip(ctx context.Context, c *cli.Connection, pod, name, reason string) error {
	user, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	er, err := requestOf(ctx, c, pod)
	if err != nil {
		return err
	}
	uid := er.UID
	for try := 1; ; try++ {
		if err := skippable(er, name); err != nil {
			return err
		}
		err := c.SubResource("status").Apply(ctx, skipping(er, name, user.Username, reason, metav1.NewTime(c.ServerTime())), client.FieldOwner(cli.FieldOwner), client.ForceOwnership)
		if err == nil {
			break
		}
		if !apierrors.IsConflict(err) || try == skipTries {
			return fmt.Errorf("skip interceptor %s: %w", name, err)
		}
		// The interceptor or Drawbridge wrote meanwhile: read it again.
		if err := c.Get(ctx, client.ObjectKeyFromObject(er), er); err != nil {
			return fmt.Errorf("get the request for pod %s: %w", pod, err)
		}
		if er.UID != uid {
			return fmt.Errorf("the request for pod %s was replaced by another one: look again with kubectl drawbridge why %s", pod, pod)
		}
	}
	if o.Output != "" {
		if err := c.Get(ctx, client.ObjectKeyFromObject(er), er); err != nil {
			return fmt.Errorf("get the request for pod %s: %w", pod, err)
		}
		return o.PrintObject(er)
	}
	fmt.Fprintf(o.Out, "interceptor %s is skipped for pod %s\n", name, pod)
	return nil
}

// skipping returns the write that ends the turn, for this version of the request only.
func skipping(er *v1alpha1.EvictionRequest, name, user, reason string, now metav1.Time) *apply.EvictionRequestApplyConfiguration {
	message := []rune(fmt.Sprintf("Skipped by %s: %s", user, reason))
	report := apply.InterceptorStatus().WithName(name).WithCompletionTime(now).WithSkippedBy(user).
		WithMessage(string(message[:min(len(message), v1alpha1.MaxMessageLength)]))
	return apply.EvictionRequest(er.Name, er.Namespace).WithUID(er.UID).WithResourceVersion(er.ResourceVersion).
		WithStatus(apply.EvictionRequestStatus().WithInterceptors(report))
}

// completeActive completes the active interceptor.
func (o commands) completeActive(ctx context.Context, pod, typed string) ([]string, cobra.ShellCompDirective) {
	return o.Complete(ctx, typed, func(ctx context.Context, c *cli.Connection) ([]string, error) {
		er, err := requestOf(ctx, c, pod)
		if err != nil {
			return nil, err
		}
		return er.Status.ActiveInterceptors, nil
	})
}
