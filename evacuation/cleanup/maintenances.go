package cleanup

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func maintenances() *v1alpha1.NodeMaintenanceList { return &v1alpha1.NodeMaintenanceList{} }

// endMaintenances deletes all NodeMaintenances and waits until the manager has given
// their nodes back, which is what their finalizer is for. Only the manager knows which
// nodes it cordoned, so without a manager the maintenances stay, and that is an error.
func (c *Cleaner) endMaintenances(ctx context.Context) error {
	deleted := 0
	err := each(ctx, c, maintenances, func(ctx context.Context, list *v1alpha1.NodeMaintenanceList) error {
		var errs []error
		for i := range list.Items {
			nm := &list.Items[i]
			err := c.call(ctx, func(ctx context.Context) error {
				return c.Client.Delete(ctx, nm, client.Preconditions{UID: &nm.UID})
			})
			if err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("delete maintenance %s: %w", nm.Name, err))
				continue
			}
			deleted++
			c.changedf("NodeMaintenance %s: deleted", nm.Name)
		}
		return errors.Join(errs...)
	})
	if noKind(err) {
		return nil // The CustomResourceDefinition is gone.
	}
	if err != nil || deleted == 0 {
		return err
	}
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	most := c.Wait
	if leader == "" {
		most = 0 // No manager would release the nodes, however long we wait.
	}
	var left []string
	all, err := c.until(ctx, most, func(ctx context.Context) (bool, error) {
		left = nil
		err := each(ctx, c, maintenances, func(_ context.Context, list *v1alpha1.NodeMaintenanceList) error {
			for i := range list.Items {
				left = append(left, list.Items[i].Name)
			}
			return nil
		})
		return len(left) == 0, err
	})
	if err != nil || all {
		return err
	}
	return fmt.Errorf("%d maintenances still hold their nodes, %s the first: start the manager again, or uncordon the nodes and remove the finalizer %s",
		len(left), left[0], v1alpha1.MaintenanceFinalizer)
}
