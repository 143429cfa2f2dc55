// Package lease withdraws the requests of callers that have gone away. Callers of the
// eviction API cannot withdraw. Each has a Lease, which its calls renew.
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

// retryDelay is a fallback: after a conflict the watch event normally comes first.
const retryDelay = 5 * time.Second

// defaultTTL is for a lease without a duration: that of an unknown caller (callers.md,
// section 12).
const defaultTTL = 10 * time.Minute

// Policy is the constants of the requester leases.
type Policy struct {
	// Debounce is how long all recorded markers must be gone from the node before the
	// drain counts as canceled. Default 60 s (callers.md, section 13).
	Debounce time.Duration
	// StartupGrace is how long after the controller's start no lease counts as expired:
	// our webhook was down too, so renewals are missing, and our own outage never counts
	// as silence. Default 5 min.
	StartupGrace time.Duration
	// MarkerLimit is how long a drain marker keeps the request of a silent controller, in
	// case the marker is never removed. Default 24 h.
	MarkerLimit time.Duration
}

// DefaultPolicy returns the default constants.
func DefaultPolicy() Policy {
	return Policy{Debounce: time.Minute, StartupGrace: 5 * time.Minute, MarkerLimit: translate.DefaultMarkerLimit}
}

// Reconciler is the controller that withdraws legacy requesters. They cannot withdraw
// themselves, so their lease decides: when it expires, or when the drain markers it
// recorded are gone from the node, the requester is removed from the requests that name
// the lease.
//
// Its keys are leases. A renewal enqueues nothing: a key is requeued for when its lease
// would expire, and only then the renewal is checked. Silence counts from when this
// process saw the renewal, as in leader election, because the writers' clocks differ.
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
	// observed has what the objects do not say, by lease name.
	observed map[string]*observed
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

// decision is what to do about a lease, and when to decide again; a zero wakeAt leaves
// that to events.
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
			// Until then silence does not count, but an uncordon does.
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
			// It still calls, so the markers were those of another drain.
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
		// Keeping the requester forever would be worse than deciding by the fields of
		// every Lease.
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
		// A cache that is behind the cordon looks like an uncordon.
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
		l.remember(lease, func(m *observed) { m.markersGoneSince = decision.markersGoneSince })
		return l.wakeAt(decision.wakeAt), nil
	}
}

// find returns the lease, nil if there is none. A lease that is not in the cache may
// still be on its way, or may be another Lease that a requester named.
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

// withdraw deletes the lease and removes the requesters that name it. The lease goes
// first: a caller that comes back creates a new one of the same name, and release sees
// that.
func (l *Reconciler) withdraw(ctx context.Context, lease *coordinationv1.Lease, why withdrawal) (reconcile.Result, error) {
	if lease.Labels[translate.LeaseLabel] == translate.LeaseLabelValue {
		// With the version, an unseen renewal wins.
		err := l.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
		if apierrors.IsConflict(err) {
			return l.wakeAt(l.Clock.Now().Add(retryDelay)), nil
		}
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("delete lease: %w", err)
		}
	}
	l.remember(lease, func(m *observed) { m.withdrawal = why })
	if err := l.release(ctx, lease.Name, lease.UID, why); err != nil {
		return reconcile.Result{}, err
	}
	l.forget(lease.Name)
	return reconcile.Result{}, nil
}

// leaseIsGone removes requesters that name a missing lease.
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

// viewNode reads a node; without a name it returns an unknown view.
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

// plainLease is the record of a lease without our annotations, from the fields of every
// Lease.
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

// wakeAt requeues for that time; zero leaves it to events.
func (l *Reconciler) wakeAt(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(l.Clock.Now()), time.Millisecond)}
}
