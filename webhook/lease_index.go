package webhook

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// LeaseIndex has the leases of the informer by their names. A cache that is limited
// to a namespace looks up on every read how its kind is called by the API server,
// which is a third of all the work of a repeated denial.
type LeaseIndex struct {
	byName sync.Map // Name -> *knownLease.
	handed toolscache.ResourceEventHandlerRegistration
}

// NewLeaseIndex follows the informer of leases, which must be limited to one
// namespace. An error means that there is no such informer.
func NewLeaseIndex(ctx context.Context, informers cache.Informers) (*LeaseIndex, error) {
	informer, err := informers.GetInformer(ctx, &coordinationv1.Lease{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("get informer of leases: %w", err)
	}
	x := &LeaseIndex{}
	x.handed, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    x.put,
		UpdateFunc: func(_, lease any) { x.put(lease) },
		DeleteFunc: x.drop,
	})
	if err != nil {
		return nil, fmt.Errorf("follow leases: %w", err)
	}
	return x, nil
}

// Synced reports whether all leases that were there at the start are known.
func (x *LeaseIndex) Synced() bool { return x.handed.HasSynced() }

// Lease returns the lease of that name, nil if there is none. It is shared and must
// not be changed.
func (x *LeaseIndex) Lease(name string) *coordinationv1.Lease {
	if lease, ok := x.byName.Load(name); ok {
		return lease.(*knownLease).lease
	}
	return nil
}

// known returns the lease of that name and its record, nil if there is none.
func (x *LeaseIndex) known(name string) *knownLease {
	if lease, ok := x.byName.Load(name); ok {
		return lease.(*knownLease)
	}
	return nil
}

// knownLease is a lease and what it says, decoded once. Both are shared and must not be
// changed.
type knownLease struct {
	lease *coordinationv1.Lease
	rec   translate.LeaseRecord
	// err: it cannot be decoded.
	err error
}

// damaged reports whether there is a lease that cannot be decoded.
func (k *knownLease) damaged() bool { return k != nil && k.err != nil }

func newKnownLease(lease *coordinationv1.Lease) *knownLease {
	rec, err := translate.DecodeLease(lease)
	return &knownLease{lease: lease, rec: rec, err: err}
}

func (x *LeaseIndex) put(obj any) {
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		x.byName.Store(lease.Name, newKnownLease(lease))
	}
}

func (x *LeaseIndex) drop(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		x.byName.Delete(lease.Name)
	}
}
