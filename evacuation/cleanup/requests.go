package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
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
	if leads, err := c.hasLeader(ctx); err != nil || !leads {
		if !leads {
			c.sayf("no manager runs that could tell the interceptors: they see the requests go")
		}
		return err
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
	patch, err := json.Marshal([]op{sameUID(er.UID), {Op: "remove", Path: "/spec/requesters"}})
	if err != nil {
		return false, fmt.Errorf("encode patch: %w", err)
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
	c.sayf("EvictionRequest %s/%s: withdrawn", er.Namespace, er.Name)
	return true, nil
}

// ended reports whether nobody acts on the request any more. One that is being deleted
// and held by a finalizer is as good as that.
func ended(er *v1alpha1.EvictionRequest) bool {
	return er.DeletionTimestamp != nil || meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled) ||
		meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted)
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

// hasLeader reports whether a manager leads.
func (c *Cleaner) hasLeader(ctx context.Context) (bool, error) {
	lease := &coordinationv1.Lease{}
	err := c.call(ctx, func(ctx context.Context) error {
		return c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.LeaderLease}, lease)
	})
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	spec := lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false, nil
	}
	lasts := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	return c.Clock.Now().Before(spec.RenewTime.Add(lasts)), nil
}

// deleteRequests deletes all requests: nobody will ever look at them again.
func (c *Cleaner) deleteRequests(ctx context.Context) error {
	if c.Keep {
		return nil
	}
	deleted := 0
	err := each(ctx, c, requests, func(ctx context.Context, list *v1alpha1.EvictionRequestList) error {
		var errs []error
		for i := range list.Items {
			er := &list.Items[i]
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
		c.sayf("EvictionRequests: %d deleted", deleted)
	}
	return err
}

// deleteLeases deletes the leader's Lease, and those of legacy requesters.
func (c *Cleaner) deleteLeases(ctx context.Context) error {
	var errs []error
	remove := func(lease *coordinationv1.Lease) {
		err := c.call(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, lease) })
		switch {
		case err == nil:
			c.sayf("Lease %s/%s: deleted", lease.Namespace, lease.Name)
		case !gone(err):
			errs = append(errs, fmt.Errorf("delete lease %s: %w", lease.Name, err))
		}
	}
	if c.LeaderLease != "" {
		remove(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.LeaderLease}})
	}
	if c.Keep {
		return errors.Join(errs...)
	}
	leases := func() *coordinationv1.LeaseList { return &coordinationv1.LeaseList{} }
	err := each(ctx, c, leases, func(_ context.Context, list *coordinationv1.LeaseList) error {
		for i := range list.Items {
			remove(&list.Items[i])
		}
		return nil
	}, client.InNamespace(c.Namespace), client.MatchingLabels{translate.LeaseLabel: translate.LeaseLabelValue})
	return errors.Join(append(errs, err)...)
}

// noKind reports whether the API server does not know the kind (any more).
func noKind(err error) bool {
	return err != nil && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err))
}
