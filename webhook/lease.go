package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// bridge is how long our own memory stands in for an informer that does not
	// show our write yet. Informers lag by milliseconds; the bound is for what is
	// deleted in between, which memory does not notice.
	bridge = 10 * time.Second
	// renewalShare is the part of a lease's duration after which it is renewed.
	renewalShare = 3
	// maxRemembered bounds every memory of the handler, in entries.
	maxRemembered = 10_000
)

// leases knows the Leases of legacy requesters: whether they live, how they come
// to be, and when they are due for a renewal.
type leases struct {
	index     *LeaseIndex
	cached    client.Reader
	live      client.Reader
	writer    client.Client
	namespace string
	clock     clock.PassiveClock
	// written maps a lease's name to the renewal (time.Time) that its informer has
	// to show before it is believed again.
	written *cache.LRUExpireCache
	flights flights[struct{}]
}

func newLeases(index *LeaseIndex, cached, live client.Reader, writer client.Client, namespace string, clk clock.PassiveClock) *leases {
	return &leases{
		index: index, cached: cached, live: live, writer: writer, namespace: namespace, clock: clk,
		written: cache.NewLRUExpireCacheWithClock(maxRemembered, clk),
	}
}

// lookup returns the cached Lease, nil if there is none. The object is shared
// with the informer and must not be changed.
func (l *leases) lookup(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	if l.index != nil {
		return l.index.Lease(name), nil
	}
	var lease coordinationv1.Lease
	err := l.cached.Get(ctx, types.NamespacedName{Namespace: l.namespace, Name: name}, &lease, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get lease %s from cache: %w", name, err)
	}
	return &lease, nil
}

// alive reports whether the lease exists and has not run out, from memory alone,
// and whether it is due for a renewal.
func (l *leases) alive(ctx context.Context, name string) (alive, due bool, err error) {
	// Memory first: the informer's view is then the younger of the two.
	at, remembered := l.written.Get(name)
	lease, err := l.lookup(ctx, name)
	if err != nil {
		return false, false, err
	}
	if remembered {
		if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(at.(time.Time)) {
			return true, false, nil
		}
		// The informer has caught up. From now on it also tells of the lease's end,
		// which memory would not notice.
		l.written.Remove(name)
	}
	now := l.clock.Now()
	if lease == nil || !now.Before(expiry(lease)) {
		return false, false, nil
	}
	return true, l.due(ctx, lease, now), nil
}

// due reports whether a third of the lease's duration has passed, or the node
// has a drain marker that is not recorded: some callers cordon after the first
// eviction. Until the first marker is recorded an uncordon means nothing, and
// until the others are, the end of the first would be taken for one.
func (l *leases) due(ctx context.Context, lease *coordinationv1.Lease, now time.Time) bool {
	if !now.Before(lease.Spec.RenewTime.Add(duration(lease) / renewalShare)) {
		return true
	}
	rec, err := translate.DecodeLease(lease)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(l.cachedNode(ctx, rec.Node).Markers, func(marker string) bool {
		return !slices.Contains(rec.Markers, marker)
	})
}

// expiry is when the lease runs out; the zero time if it does not say.
func expiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(duration(lease))
}

func duration(lease *coordinationv1.Lease) time.Duration {
	return time.Duration(deref(lease.Spec.LeaseDurationSeconds)) * time.Second
}

// cachedNode is the informer's view of a node. A node it does not have is
// unknown: the informer may lag.
func (l *leases) cachedNode(ctx context.Context, name string) translate.NodeView {
	var node corev1.Node
	if name == "" || l.cached.Get(ctx, types.NamespacedName{Name: name}, &node, client.UnsafeDisableDeepCopy) != nil {
		return translate.NodeView{}
	}
	return translate.ViewNode(&node)
}

// liveNode looks at the node itself.
func (l *leases) liveNode(ctx context.Context, name string) (translate.NodeView, error) {
	var node corev1.Node
	err := l.live.Get(ctx, types.NamespacedName{Name: name}, &node)
	if apierrors.IsNotFound(err) {
		return translate.ViewNode(nil), nil
	}
	if err != nil {
		return translate.NodeView{}, fmt.Errorf("get node %s: %w", name, err)
	}
	return translate.ViewNode(&node), nil
}

// ensure makes sure that a living lease exists, with the markers the node has
// now, before an EvictionRequest refers to it. Calls for the same lease share
// one attempt: a drain begins with all pods of a node at once.
func (l *leases) ensure(ctx context.Context, rec translate.LeaseRecord) error {
	name := translate.LeaseName(rec.Requester, rec.Node)
	if alive, _, err := l.alive(ctx, name); err != nil || alive {
		return err
	}
	_, err := l.flights.do(ctx, name, func(ctx context.Context) (struct{}, error) {
		if alive, _, err := l.alive(ctx, name); err != nil || alive {
			return struct{}{}, err
		}
		return struct{}{}, l.create(ctx, name, rec)
	})
	return err
}

// create writes a new Lease, or renews one that has run out. The latter is never
// deleted: the lease controller withdraws whoever names a Lease that is not
// there. It deletes expired ones itself, in the version it saw, so either our
// update or its deletion fails.
func (l *leases) create(ctx context.Context, name string, rec translate.LeaseRecord) error {
	if rec.Node != "" {
		node, err := l.liveNode(ctx, rec.Node)
		if err != nil {
			return err
		}
		rec.Markers = node.Markers
	}
	rec.RenewedAt = l.clock.Now()
	err := l.writer.Create(ctx, translate.EncodeLease(rec, l.namespace))
	if apierrors.IsAlreadyExists(err) {
		var other coordinationv1.Lease
		switch err := l.live.Get(ctx, types.NamespacedName{Namespace: l.namespace, Name: name}, &other); {
		case apierrors.IsNotFound(err): // Gone again; create below.
		case err != nil:
			return fmt.Errorf("get lease %s: %w", name, err)
		case l.clock.Now().Before(expiry(&other)): // Another replica was faster.
			l.remember(name, other.Spec.RenewTime.Time)
			return nil
		default:
			return l.revive(ctx, name, rec, &other)
		}
		err = l.writer.Create(ctx, translate.EncodeLease(rec, l.namespace))
	}
	if err != nil {
		return fmt.Errorf("create lease %s: %w", name, err)
	}
	l.remember(name, rec.RenewedAt)
	return nil
}

// revive puts the record in the place of one that has run out.
func (l *leases) revive(ctx context.Context, name string, rec translate.LeaseRecord, expired *coordinationv1.Lease) error {
	lease := translate.EncodeLease(rec, l.namespace)
	lease.UID, lease.ResourceVersion = expired.UID, expired.ResourceVersion
	if err := l.writer.Update(ctx, lease); err != nil {
		return fmt.Errorf("renew expired lease %s: %w", name, err)
	}
	l.remember(name, rec.RenewedAt)
	return nil
}

// remember bridges the time until the informer shows this renewal, which the API
// keeps in microseconds.
func (l *leases) remember(name string, renewed time.Time) {
	l.written.Add(name, renewed.Truncate(time.Microsecond), bridge)
}
