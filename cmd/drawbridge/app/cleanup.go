package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/cleanup"
)

// cleanupOptions are the flags of the command cleanup.
type cleanupOptions struct{ cleanup.Options }

func (o *cleanupOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "The manager's namespace.")
	fs.StringVar(&o.WebhookConfiguration, "webhook-configuration", o.WebhookConfiguration, "ValidatingWebhookConfiguration to delete first; empty if there is none.")
	fs.StringVar(&o.Deployment, "deployment", o.Deployment, "Deployment of the manager, to scale to 0; empty if the manager runs elsewhere and has been stopped.")
	fs.BoolVar(&o.Keep, "keep", o.Keep, "Keep the EvictionRequests and the leases of their requesters.")
	fs.DurationVar(&o.Wait, "wait", o.Wait, "How long interceptors get to undo their work after the requests are withdrawn.")
}

func (o *cleanupOptions) validate() error {
	var errs []error
	if len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--namespace: %q is not the name of a namespace", o.Namespace))
	}
	if o.Wait < 0 {
		errs = append(errs, fmt.Errorf("--wait must not be negative, but is %s", o.Wait))
	}
	return errors.Join(errs...)
}

// newCleanupCommand removes what Drawbridge wrote to objects of others.
func newCleanupCommand() *cobra.Command {
	o := cleanupOptions{cleanup.Options{
		Namespace:            DefaultOptions().Namespace,
		WebhookConfiguration: DefaultOptions().WebhookConfiguration,
		LeaderLease:          leaderElectionID,
		Wait:                 time.Minute,
	}}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what Drawbridge wrote to pods, before it is uninstalled",
		Long: "Deletes the webhook configuration, withdraws running requests, stops the manager, gives\n" +
			"handed-up pods back to their ReplicaSets, removes the guard's labels and budgets and\n" +
			"Drawbridge's annotations, and deletes requests and leases. You can run it again at any time.\n" +
			"It prints what it did.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			// Everything that matters is printed.
			ctrl.SetLogger(logr.Discard())
			klog.SetLogger(logr.Discard())
			conf, err := ctrl.GetConfig()
			if err != nil {
				return err
			}
			conf = rest.AddUserAgent(rest.CopyConfig(conf), "drawbridge-cleanup")
			api, err := client.New(conf, client.Options{Scheme: newScheme()})
			if err != nil {
				return fmt.Errorf("make client: %w", err)
			}
			c := &cleanup.Cleaner{Options: o.Options, Client: api, Clock: clock.RealClock{}, Out: cmd.OutOrStdout()}
			return c.Run(cmd.Context())
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}
