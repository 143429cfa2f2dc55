package ownership

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	controllerName = "webhook-ownership"
	// releaser is the field manager of these writes. It owns nothing, and distinguishes
	// them from the manager's other writes.
	releaser = "drawbridge-ownership"
	timeout  = time.Minute
)

// Controller gives up the ownership, on the leader. It reads the configuration, so it
// also finds writes of a manager that died right after them.
//
// Permissions: get, list, watch and update of the configuration by name.
type Controller struct {
	// Client reads from a cache that has the configuration with its managedFields.
	Client client.Client
	// Name of the ValidatingWebhookConfiguration.
	Name string
}

var _ reconcile.Reconciler = &Controller{}

// SetupWithManager adds the controller to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&admissionregistrationv1.ValidatingWebhookConfiguration{}).
		WithOptions(controller.Options{NeedLeaderElection: new(true), ReconciliationTimeout: timeout}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("set up controller %s: %w", controllerName, err)
	}
	return nil
}

// Reconcile handles the configuration once. A conflict is no error: the other write's
// event enqueues us again.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name != c.Name {
		return reconcile.Result{}, nil
	}
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: c.Name}, conf); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // Its creation is an event.
		}
		return reconcile.Result{}, fmt.Errorf("get webhook configuration: %w", err)
	}
	entries, changed, err := release(conf.ManagedFields)
	if err != nil || !changed {
		return reconcile.Result{}, err
	}
	conf = conf.DeepCopy()
	conf.ManagedFields = entries
	err = c.Client.Update(ctx, conf, client.FieldOwner(releaser))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("give up fields of the webhook configuration: %w", err)
	}
	return reconcile.Result{}, nil
}
