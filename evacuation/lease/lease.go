// Package lease withdraws the requests of callers that have gone away. Callers of the
// eviction API never say that they have changed their mind; each has a Lease, which its
// calls renew.
package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// retryDelay is when to look again after a conflict, in case the event of the
// newer version is lost.
const retryDelay = 5 * time.Second

// defaultTTL is for a lease that does not say how long it holds: that of an
// unknown caller (callers.md, section 12).
const defaultTTL = 10 * time.Minute

// Policy is the constants of the requester leases.
type Policy struct {
	// Debounce is how long all recorded markers must have been gone from the node
	// before the drain counts as called off. Default 60 s (callers.md, section 13).
	Debounce time.Duration
	// StartupGrace is how long after the controller's start no lease counts as
	// expired: renewals are missing only because our webhook was down too, and our
	// own outage never counts as silence. Default 5 min.
	StartupGrace time.Duration
	// MarkerLimit is how long a drain marker keeps the request of a silent controller,
	// in case nobody takes the marker away. Default 24 h.
	MarkerLimit time.Duration
}

// DefaultPolicy returns the default constants.
func DefaultPolicy() Policy {
	return Policy{Debounce: time.Minute, StartupGrace: 5 * time.Minute, MarkerLimit: translate.DefaultMarkerLimit}
}

// Reconciler is the controller that withdraws legacy requesters. They cannot say
// "never mind", so their lease speaks for them: when it runs out, or when the
// drain markers it recorded are gone from the node, the requester is removed from
// the requests that name the lease.
//
// Its keys are leases. A renewal enqueues nothing: a key comes back when its
// lease would run out and sees then whether it was renewed. How long a requester has been
// silent counts from when this process saw the renewal, as in leader election: the
// clocks of those who wrote it are not ours.
type Reconciler struct {
	// Client reads from the cache and writes. The cache has only our Leases.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock also drives the queue, which SetupWithManager makes.
	Clock    clock.WithTicker
	Policy   Policy
	Recorder eventsclient.EventRecorder
	// Namespace is where the Leases are.
	Namespace string
	// MaxConcurrentReconciles is how many leases are handled at a time. Default 2.
	MaxConcurrentReconciles int

	mu sync.Mutex
	// startedAt is when the controller was started.
	startedAt time.Time
	// memory is what the objects do not say, by lease name.
	memory map[string]*memory
}

// withdrawal says why a requester is removed: its event, given the requester's
// name.
type withdrawal func(requester string) events.Event

// verdict is what step decides.
type verdict int

const (
	keep verdict = iota
	withdrawExpired
	withdrawMarkersGone
)

// decision is what to do about a lease, and when to look again; a zero
// wakeAt leaves that to events.
type decision struct {
	verdict          verdict
	markersGoneSince time.Time
	wakeAt           time.Time
}

// step decides about one lease. MarkersGoneSince is what the last decision
// for the same lease returned.
func step(rec translate.LeaseRecord, node translate.NodeView, markersGoneSince, startedAt, now time.Time, p Policy) decision {
	graceEnd := startedAt.Add(p.StartupGrace)
	excused := rec.With(func(v translate.Voice) time.Time {
		if v.HeardAt.Add(translate.Granted(v.TTL)).Before(graceEnd) {
			// Silence means nothing until then; an uncordon does.
			return graceEnd.Add(-translate.Granted(v.TTL))
		}
		return v.HeardAt
	})
	state, recheckAt := translate.JudgeLease(excused, node, now, p.MarkerLimit)
	switch state {
	case translate.LeaseExpired:
		return decision{verdict: withdrawExpired}
	case translate.LeaseMarkersGone:
		if markersGoneSince.IsZero() || markersGoneSince.After(now) {
			markersGoneSince = now
		}
		due := markersGoneSince.Add(p.Debounce)
		if heard := rec.LastHeard().Add(p.Debounce); heard.After(due) {
			// It goes on asking, so the markers were those of another drain.
			due = heard
		}
		if now.Before(due) {
			if recheckAt.IsZero() || due.Before(recheckAt) {
				recheckAt = due
			}
			return decision{markersGoneSince: markersGoneSince, wakeAt: recheckAt}
		}
		return decision{verdict: withdrawMarkersGone, markersGoneSince: markersGoneSince}
	default:
		return decision{wakeAt: recheckAt}
	}
}

var _ reconcile.Reconciler = &Reconciler{}

// Reconcile gathers, decides and applies for one lease.
func (l *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	lease, err := l.find(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if lease == nil {
		return l.leaseIsGone(ctx, req.Name)
	}
	rec, err := translate.DecodeLease(lease)
	if err != nil {
		// Keeping the requester for ever would be worse than judging by what every
		// Lease says.
		log.FromContext(ctx).Error(err, "A lease is damaged, only its renewal counts")
		rec = plainLease(lease)
	}
	node, err := viewNode(ctx, l.Client, rec.Node)
	if err != nil {
		return reconcile.Result{}, err
	}
	rec = l.see(lease, rec)
	now, since := l.Clock.Now(), l.recall(lease)
	decision := step(rec, node, since, l.started(), now, l.Policy)
	if decision.verdict != keep && len(rec.Markers) > 0 {
		// A cache that lags behind the drainer's cordon looks like an uncordon.
		if node, err = viewNode(ctx, l.APIReader, rec.Node); err != nil {
			return reconcile.Result{}, err
		}
		if decision = step(rec, node, since, l.started(), now, l.Policy); decision.verdict == keep {
			// The cache will show the marker, or the debounce starts again.
			decision.wakeAt = controllers.Earlier(decision.wakeAt, now.Add(l.Policy.Debounce))
		}
	}
	switch decision.verdict {
	case withdrawExpired:
		return l.withdraw(ctx, lease, func(requester string) events.Event {
			return events.RequesterExpired(requester, rec.Display, now.Sub(rec.LastHeard()))
		})
	case withdrawMarkersGone:
		return l.withdraw(ctx, lease, func(requester string) events.Event {
			return events.RequesterWithdrawn(requester, rec.Display, rec.Node, rec.Markers, l.Policy.Debounce)
		})
	default:
		l.remember(lease, func(m *memory) { m.markersGoneSince = decision.markersGoneSince })
		return l.wakeAt(decision.wakeAt), nil
	}
}

// find returns the lease, nil if there is none. What is not in the cache may be
// on its way, or may be somebody else's Lease that a requester named.
func (l *Reconciler) find(ctx context.Context, key types.NamespacedName) (*coordinationv1.Lease, error) {
	for _, reader := range []client.Reader{l.Client, l.APIReader} {
		lease := &coordinationv1.Lease{}
		if err := reader.Get(ctx, key, lease); err == nil {
			return lease, nil
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get lease: %w", err)
		}
	}
	return nil, nil
}

// withdraw deletes the lease and removes whoever names it from the requests. The
// lease goes first: a caller that comes back makes a new one of the same name,
// and release sees that.
func (l *Reconciler) withdraw(ctx context.Context, lease *coordinationv1.Lease, why withdrawal) (reconcile.Result, error) {
	if lease.Labels[translate.LeaseLabel] == translate.LeaseLabelValue {
		// With the version a renewal that we have not seen wins.
		err := l.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
		if apierrors.IsConflict(err) {
			return l.wakeAt(l.Clock.Now().Add(retryDelay)), nil
		}
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("delete lease: %w", err)
		}
	}
	l.remember(lease, func(m *memory) { m.withdrawal = why })
	if err := l.release(ctx, lease.Name, lease.UID, why); err != nil {
		return reconcile.Result{}, err
	}
	l.forget(lease.Name)
	return reconcile.Result{}, nil
}

// leaseIsGone removes those who name a lease that does not exist.
func (l *Reconciler) leaseIsGone(ctx context.Context, name string) (reconcile.Result, error) {
	uid, why := l.recallWithdrawal(name)
	if why == nil {
		why = func(requester string) events.Event { return events.RequesterLeaseMissing(requester, name) }
	}
	if err := l.release(ctx, name, uid, why); err != nil {
		return reconcile.Result{}, err
	}
	l.forget(name)
	return reconcile.Result{}, nil
}

// viewNode looks at a node; no name gives the view of a node nobody looked at.
func viewNode(ctx context.Context, reader client.Reader, name string) (translate.NodeView, error) {
	if name == "" {
		return translate.NodeView{}, nil
	}
	node := &corev1.Node{}
	switch err := reader.Get(ctx, types.NamespacedName{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return translate.ViewNode(nil), nil
	case err != nil:
		return translate.NodeView{}, fmt.Errorf("get node %s: %w", name, err)
	default:
		return translate.ViewNode(node), nil
	}
}

// plainLease is the record of a lease that lost ours: what every Lease says.
func plainLease(lease *coordinationv1.Lease) translate.LeaseRecord {
	rec := translate.LeaseRecord{
		Display:   ptr.Deref(lease.Spec.HolderIdentity, ""),
		Class:     translate.ClassUnknown,
		TTL:       defaultTTL,
		RenewedAt: lease.CreationTimestamp.Time,
	}
	if seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0); seconds > 0 {
		rec.TTL = time.Duration(seconds) * time.Second
	}
	if lease.Spec.RenewTime != nil {
		rec.RenewedAt = lease.Spec.RenewTime.Time
	}
	return rec
}

func (l *Reconciler) started() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.startedAt
}

// wakeAt comes back at that time, which zero leaves to events.
func (l *Reconciler) wakeAt(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(l.Clock.Now()), time.Millisecond)}
}
