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
	// releaser is our own name as a field manager. It owns nothing, and it tells these
	// writes, one after each of the manager's, from those.
	releaser = "drawbridge-ownership"
	timeout  = time.Minute
)

// Controller gives up the ownership, on the leader. It goes by what the configuration
// says, so a write of a manager that died behind it is found, too.
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

// Reconcile looks at the configuration once. A lost race is no error: the winner's event
// brings us back.
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
