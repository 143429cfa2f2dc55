package cleanup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func requests() *v1alpha1.EvictionRequestList { return &v1alpha1.EvictionRequestList{} }

// withdraw removes the requesters of every request that runs, and gives the manager
// and the interceptors the time to undo their work.
func (c *Cleaner) withdraw(ctx context.Context) error {
	if c.Keep {
		return nil
	}
	withdrawn := 0
	err := each(ctx, c, requests, func(ctx context.Context, list *v1alpha1.EvictionRequestList) error {
		var errs []error
		for i := range list.Items {
			ok, err := c.withdrawOne(ctx, &list.Items[i])
			if err != nil {
				errs = append(errs, err)
			} else if ok {
				withdrawn++
			}
		}
		return errors.Join(errs...)
	})
	if noKind(err) {
		return nil // The CustomResourceDefinition is gone, and all requests with it.
	}
	if err != nil || withdrawn == 0 {
		return err
	}
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	if leader == "" {
		c.sayf("no manager runs that could tell the interceptors: they see the requests go")
		return nil
	}
	all, err := c.until(ctx, c.Wait, c.allEnded)
	if err != nil {
		return err
	}
	if !all {
		c.sayf("some requests have not been canceled within %s", c.Wait)
	}
	return c.pause(ctx, undoPause)
}

// withdrawOne removes the requesters of one request, unless it has ended.
func (c *Cleaner) withdrawOne(ctx context.Context, er *v1alpha1.EvictionRequest) (bool, error) {
	if ended(er) || len(er.Spec.Requesters) == 0 {
		return false, nil
	}
	patch, err := jsonpatch.Encode([]jsonpatch.Op{jsonpatch.TestUID(er.UID), jsonpatch.Remove("/spec/requesters")})
	if err != nil {
		return false, err
	}
	err = c.call(ctx, func(ctx context.Context) error {
		return c.Client.Patch(ctx, er, client.RawPatch(types.JSONPatchType, patch))
	})
	switch {
	case gone(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("withdraw request %s/%s: %w", er.Namespace, er.Name, err)
	}
	c.changedf("EvictionRequest %s/%s: withdrawn", er.Namespace, er.Name)
	return true, nil
}

// ended reports whether nothing acts on the request any more. One that is being deleted
// and held by a finalizer counts as ended.
func ended(er *v1alpha1.EvictionRequest) bool {
	return er.DeletionTimestamp != nil || v1alpha1.IsFinished(er)
}

// allEnded reports whether no request runs any more.
func (c *Cleaner) allEnded(ctx context.Context) (bool, error) {
	all := true
	err := each(ctx, c, requests, func(_ context.Context, list *v1alpha1.EvictionRequestList) error {
		for i := range list.Items {
			all = all && ended(&list.Items[i])
		}
		return nil
	})
	return all, err
}

// deleteRequests deletes all requests: nothing will process them any more.
func (c *Cleaner) deleteRequests(ctx context.Context) error {
	if c.Keep {
		return nil
	}
	deleted := 0
	err := each(ctx, c, requests, func(ctx context.Context, list *v1alpha1.EvictionRequestList) error {
		var errs []error
		for i := range list.Items {
			er := &list.Items[i]
			if er.DeletionTimestamp != nil {
				continue // It is up to the owners of its finalizers.
			}
			err := c.call(ctx, func(ctx context.Context) error {
				return c.Client.Delete(ctx, er, client.Preconditions{UID: &er.UID})
			})
			if err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("delete request %s/%s: %w", er.Namespace, er.Name, err))
				continue
			}
			deleted++
			if len(er.Finalizers) > 0 {
				c.sayf("EvictionRequest %s/%s: deleted, but held by the finalizers of others: %s", er.Namespace, er.Name, strings.Join(er.Finalizers, ", "))
			}
		}
		return errors.Join(errs...)
	})
	if noKind(err) {
		return nil
	}
	if deleted > 0 {
		c.changedf("EvictionRequests: %d deleted", deleted)
	}
	return err
}

// deleteLeases deletes the leader's Lease, unless there is a leader, and those of
// legacy requesters.
func (c *Cleaner) deleteLeases(ctx context.Context) error {
	errs := []error{c.deleteLeaderLease(ctx)}
	if c.Keep {
		return errors.Join(errs...)
	}
	leases := func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} }
	err := each(ctx, c, leases, func(ctx context.Context, list *coordinationv1.LeaseList) error {
		for i := range list.Items {
			errs = append(errs, c.deleteLease(ctx, &list.Items[i]))
		}
		return nil
	}, client.InNamespace(c.Namespace), client.MatchingLabels{translate.LeaseLabel: translate.LeaseLabelValue})
	return errors.Join(append(errs, err)...)
}

// deleteLease deletes a Lease as it was read: one that was renewed meanwhile is left to
// the next pass.
func (c *Cleaner) deleteLease(ctx context.Context, lease *coordinationv1.Lease) error {
	err := c.call(ctx, func(ctx context.Context) error {
		return c.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
	})
	switch {
	case err == nil:
		c.changedf("Lease %s/%s: deleted", lease.Namespace, lease.Name)
	case apierrors.IsConflict(err):
		c.changedf("Lease %s/%s: renewed by somebody else meanwhile", lease.Namespace, lease.Name)
	case !gone(err):
		return fmt.Errorf("delete lease %s: %w", lease.Name, err)
	}
	return nil
}

// noKind reports whether the API server does not know the kind (any more).
func noKind(err error) bool {
	return err != nil && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err))
}
