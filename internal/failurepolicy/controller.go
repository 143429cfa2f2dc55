package failurepolicy

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/ownership"
)

const (
	controllerName = "webhook-failure-policy"
	// proveTimeout bounds one call; the API server itself gives the webhook
	// timeoutSeconds, at most 30.
	proveTimeout = 35 * time.Second
	timeout      = time.Minute
)

// Controller manages the failure policy, on the leader. There is one worker.
//
// Permissions: get, list, watch and update of the configuration by name, and create
// of pods/eviction.
type Controller struct {
	// Client reads from a cache that has the configuration.
	Client client.Client
	// Clock is the real one in the product.
	Clock clock.WithTicker
	// Name of the ValidatingWebhookConfiguration.
	Name string
	// Trusted returns nil if the API server would trust our certificate.
	Trusted func(context.Context) error
	// Prove returns nil if the API server has just reached us.
	Prove   func(context.Context) error
	Metrics *metrics.FailurePolicy

	failures int
	// writes in quick succession, and the last of them.
	writes  int
	wroteAt time.Time
}

var _ reconcile.Reconciler = &Controller{}

// SetupWithManager adds the controller to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+controllerName, map[string]bool{
		"Client": c.Client != nil, "Clock": c.Clock != nil, "Name": c.Name != "",
		"Trusted": c.Trusted != nil, "Prove": c.Prove != nil, "Metrics": c.Metrics != nil,
	})
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&admissionregistrationv1.ValidatingWebhookConfiguration{})
	return controllers.Complete(b, controllerName, c, controllers.Options{Clock: c.Clock, Timeout: timeout})
}

// Reconcile handles the configuration once.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name != c.Name {
		return reconcile.Result{}, nil
	}
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: c.Name}, conf); err != nil {
		if apierrors.IsNotFound(err) {
			c.Metrics.Present("")
			return reconcile.Result{}, nil // Its creation is an event.
		}
		return reconcile.Result{}, fmt.Errorf("get webhook configuration: %w", err)
	}
	in := gather(conf)
	in.Failures = c.failures
	in.Pause = pauseAfter(c.writes, c.Clock.Since(c.wroteAt))
	in.Trusted = c.Trusted(ctx) == nil
	c.Metrics.Present(string(in.Present))
	d := decide(in)
	if d.Prove {
		in.Proof, in.Failures = c.prove(ctx), c.failures
		d = decide(in)
	}
	if d.Why != "" {
		log.FromContext(ctx).V(1).Info("The failure policy is left as it is", "policy", in.Present, "wanted", in.Wanted, "reason", d.Why)
	}
	if d.Set != "" {
		return reconcile.Result{RequeueAfter: proveEvery}, c.set(ctx, conf, d.Set)
	}
	return reconcile.Result{RequeueAfter: d.Again}, nil
}

// gather reads the configuration.
func gather(conf *admissionregistrationv1.ValidatingWebhookConfiguration) input {
	in := input{}
	switch wanted := admissionregistrationv1.FailurePolicyType(conf.Annotations[WantedAnnotation]); wanted {
	case admissionregistrationv1.Fail, admissionregistrationv1.Ignore:
		in.Wanted = wanted
	}
	for i := range conf.Webhooks {
		if conf.Webhooks[i].Name == EvictionWebhook {
			in.Present = ptr.Deref(conf.Webhooks[i].FailurePolicy, admissionregistrationv1.Fail)
		}
	}
	return in
}

// prove makes one call through the API server.
func (c *Controller) prove(ctx context.Context) proof {
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	err := c.Prove(ctx)
	c.Metrics.Proved(err == nil)
	if err == nil {
		c.failures = 0
		return reached
	}
	c.failures++
	log.FromContext(ctx).Info("The API server does not reach the webhook", "reason", err.Error(), "failures", c.failures)
	return unreached
}

// set writes the policy into the configuration, in the version that was read. A conflict
// is no error: the other write's event enqueues us again.
func (c *Controller) set(ctx context.Context, conf *admissionregistrationv1.ValidatingWebhookConfiguration, policy admissionregistrationv1.FailurePolicyType) error {
	conf = conf.DeepCopy()
	for i := range conf.Webhooks {
		if conf.Webhooks[i].Name == EvictionWebhook {
			conf.Webhooks[i].FailurePolicy = &policy
		}
	}
	err := c.Client.Update(ctx, conf, client.FieldOwner(ownership.FieldManager))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("set the failure policy of %s: %w", EvictionWebhook, err)
	}
	now := c.Clock.Now()
	if now.Sub(c.wroteAt) >= calmAfter {
		c.writes = 0
	}
	c.writes, c.wroteAt = c.writes+1, now
	c.Metrics.Changed(string(policy))
	c.Metrics.Present(string(policy))
	log.FromContext(ctx).Info("Set the failure policy", "webhook", EvictionWebhook, "policy", policy)
	return nil
}
