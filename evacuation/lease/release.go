package lease

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// patchTries is how often a patch is tried on a request that keeps changing
// before the queue's own backoff takes over.
const patchTries = 4

// release removes, from every live request, the requesters that name the lease, whose
// last known UID is gone. It stops when there is a newer lease of that name: the caller
// has come back and wants the rest. A failed write of one request does not stop the
// others.
func (l *Reconciler) release(ctx context.Context, lease string, gone types.UID, why withdrawal) error {
	list := &v1alpha1.EvictionRequestList{}
	if err := l.Client.List(ctx, list, client.MatchingFields{index.RequestsByLease: lease}); err != nil {
		return fmt.Errorf("list the requests of lease %s: %w", lease, err)
	}
	var errs []error
	for i := range list.Items {
		// This check costs nothing, and the patch before it took a while.
		if back, err := l.cameBack(ctx, lease, gone); err != nil {
			return errors.Join(append(errs, err)...)
		} else if back {
			log.FromContext(ctx).Info("The requester came back, its other requests are kept", "lease", lease)
			break
		}
		if err := l.releaseOne(ctx, &list.Items[i], lease, why); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// cameBack reports whether the cache shows a newer lease of that name than the one that
// is gone. Its event enqueues the lease.
func (l *Reconciler) cameBack(ctx context.Context, name string, gone types.UID) (bool, error) {
	lease := &coordinationv1.Lease{}
	err := l.Client.Get(ctx, types.NamespacedName{Namespace: l.Namespace, Name: name}, lease)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return lease.UID != gone, nil
}

// releaseOne removes the requesters that name the lease from one request.
func (l *Reconciler) releaseOne(ctx context.Context, er *v1alpha1.EvictionRequest, lease string, why withdrawal) error {
	key := client.ObjectKeyFromObject(er)
	for range patchTries {
		names := requestersOfLease(er, lease)
		if len(names) == 0 {
			return nil
		}
		patch, err := removeRequestersPatch(er, lease)
		if err != nil {
			return err
		}
		err = l.Client.Patch(ctx, er, client.RawPatch(types.JSONPatchType, patch))
		switch {
		case err == nil:
			log.FromContext(ctx).Info("Removed requesters", "request", key, "requesters", names)
			for _, name := range names {
				events.Emit(l.Recorder, er, events.PodReference(er), why(name))
			}
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !refused.Changed(err):
			return fmt.Errorf("remove requesters %q from %s: %w", names, key, err)
		}
		// A test of the patch failed: the request is newer than what we saw.
		er = &v1alpha1.EvictionRequest{}
		if err := l.APIReader.Get(ctx, key, er); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("get eviction request %s: %w", key, err)
		}
	}
	return fmt.Errorf("remove the requesters of lease %s from %s: it kept changing", lease, key)
}

// requestersOfLease returns the names of the requesters that name the lease, in a
// request that can still be canceled. A finished one keeps its requesters: they say who
// wanted the eviction, which matters for the replacement of the pod.
func requestersOfLease(er *v1alpha1.EvictionRequest, lease string) []string {
	if er.DeletionTimestamp != nil ||
		v1alpha1.IsFinished(er) {
		return nil
	}
	var names []string
	for _, r := range er.Spec.Requesters {
		if r.LeaseName == lease {
			names = append(names, r.Name)
		}
	}
	return names
}

// removeRequestersPatch removes the requesters that name the lease, from last to first
// so that no index shifts. Test operations ensure that they are where we saw them, in
// the version we saw.
func removeRequestersPatch(er *v1alpha1.EvictionRequest, lease string) ([]byte, error) {
	ops := []jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion", er.ResourceVersion)}
	for i := len(er.Spec.Requesters) - 1; i >= 0; i-- {
		r := er.Spec.Requesters[i]
		if r.LeaseName != lease {
			continue
		}
		path := fmt.Sprintf("/spec/requesters/%d", i)
		ops = append(ops,
			jsonpatch.Test(path+"/name", r.Name),
			jsonpatch.Test(path+"/leaseName", lease),
			jsonpatch.Remove(path))
	}
	return jsonpatch.Encode(ops)
}
