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
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// bridge is how long our own memory replaces an informer that does not show our write
	// yet. Informers lag by milliseconds; the bound is for what is deleted in between,
	// which memory does not notice.
	bridge = 10 * time.Second
	// maxRemembered bounds every memory of the handler, in entries.
	maxRemembered = 10_000
)

// leases manages the Leases of legacy requesters: whether they are valid, how they are
// created, and when they are due for renewal.
type leases struct {
	index     *LeaseIndex
	cached    client.Reader
	live      client.Reader
	writer    client.Client
	namespace string
	clock     clock.PassiveClock
	// markerLimit is how long a marker keeps the lease of a silent controller.
	markerLimit time.Duration
	// written maps a lease's name and the class of a caller to the renewal (time.Time)
	// that its informer has to show before it is believed again.
	written  *cache.LRUExpireCache
	ensuring group[struct{}]
}

func newLeases(c Config) *leases {
	return &leases{
		index: c.Leases, cached: c.Cached, live: c.Live, writer: c.Writer, namespace: c.Namespace, clock: c.Clock, markerLimit: c.MarkerLimit,
		written: cache.NewLRUExpireCacheWithClock(maxRemembered, c.Clock),
	}
}

// writtenKey is the key of what we wrote of a kind of tool to a lease.
func writtenKey(name string, class translate.CallerClass) string { return name + "/" + string(class) }

// alive reports whether the lease exists and speaks for this caller's kind of tool, from
// memory alone, and whether it is due for a renewal. What other tools under the same name
// want does not matter: each has its own patience.
func (l *leases) alive(ctx context.Context, name string, caller translate.Caller) (alive, due bool) {
	// Memory first: the informer's view is then the younger of the two.
	at, remembered := l.written.Get(writtenKey(name, caller.Class))
	known := l.index.known(name)
	if known.damaged() {
		// Only its renewal counts; the controller tells of it.
		return l.clock.Now().Before(plainExpiry(known.lease)), false
	}
	var voice translate.Voice
	heard := false
	if known != nil {
		voice, heard = known.rec.Voice(caller.Class)
	}
	if remembered {
		if !heard || voice.HeardAt.Before(at.(time.Time)) {
			return true, false
		}
		// The informer has caught up. From now on it also tells of the lease's end,
		// which memory would not notice.
		l.written.Remove(writtenKey(name, caller.Class))
	}
	if !heard {
		return false, false
	}
	now, node := l.clock.Now(), l.cachedNode(ctx, known.rec.Node)
	state, _ := translate.JudgeVoice(known.rec, voice, node, now, l.markerLimit)
	if state == translate.LeaseExpired {
		return false, false
	}
	return true, l.due(known.rec, voice, caller, node, state, now)
}

// markersGonePause is how often calls renew a lease whose markers are all gone: the
// controller must see within its debounce that the caller still calls.
const markersGonePause = 20 * time.Second

// due reports whether a third of the lease's duration has passed, or the node
// has a drain marker that is not recorded: some callers cordon after the first
// eviction. Until the first marker is recorded an uncordon means nothing, and
// until the others are, the end of the first would be taken for one.
func (l *leases) due(rec translate.LeaseRecord, voice translate.Voice, caller translate.Caller, node translate.NodeView, state translate.LeaseState, now time.Time) bool {
	pause := translate.RenewEvery(voice.TTL)
	if state == translate.LeaseMarkersGone {
		pause = min(pause, markersGonePause)
	}
	if !now.Before(voice.HeardAt.Add(pause)) || voice.TTL != caller.TTL {
		return true
	}
	return slices.ContainsFunc(node.Markers, func(marker string) bool { return !slices.Contains(rec.Markers, marker) })
}

// left is what is known of the lease of a requester's entry, from memory alone.
func (l *leases) left(ctx context.Context, entry v1alpha1.Requester) LeftLease {
	if entry.LeaseName == "" {
		return LeftLease{}
	}
	known := l.index.known(entry.LeaseName)
	if known == nil || known.err != nil {
		return LeftLease{} // One that is damaged says nothing; the controller tells of it.
	}
	rec := known.rec
	state, _ := translate.JudgeLease(rec, l.cachedNode(ctx, rec.Node), l.clock.Now(), l.markerLimit)
	return LeftLease{Stands: state != translate.LeaseExpired, HeardAt: rec.LastHeard(), RenewEvery: translate.RenewEvery(rec.TTL)}
}

// plainExpiry is when a damaged lease runs out; the zero time if it does not say.
func plainExpiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(translate.Granted(time.Duration(deref(lease.Spec.LeaseDurationSeconds)) * time.Second))
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

// liveNode reads the node live.
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
func (l *leases) ensure(ctx context.Context, node string, caller translate.Caller) error {
	name := translate.LeaseName(caller.Requester, node)
	if alive, _ := l.alive(ctx, name, caller); alive {
		return nil
	}
	_, err := l.ensuring.do(ctx, writtenKey(name, caller.Class), func(ctx context.Context) (struct{}, error) {
		if alive, _ := l.alive(ctx, name, caller); alive {
			return struct{}{}, nil
		}
		return struct{}{}, l.create(ctx, name, node, caller)
	})
	return err
}

// create writes a new Lease, or makes one that is there speak for the caller. The latter
// is never deleted: the lease controller withdraws requesters that name a missing Lease.
// It deletes expired ones itself, in the version it saw, so either our update or its
// deletion fails.
func (l *leases) create(ctx context.Context, name, node string, caller translate.Caller) error {
	rec := translate.LeaseRecord{
		Requester: caller.Requester, Node: node, Display: caller.Display, Class: caller.Class, TTL: caller.TTL,
	}
	var view translate.NodeView
	if node != "" {
		var err error
		if view, err = l.liveNode(ctx, node); err != nil {
			return err
		}
		rec.Markers = view.Markers
	}
	rec.RenewedAt = l.clock.Now()
	// Another replica may do the same at this moment. Whoever was slower looks again.
	overtaken := func(err error) bool {
		return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
	}
	return retry.OnError(retry.DefaultRetry, overtaken, func() error { return l.createOrRevive(ctx, name, rec, view) })
}

// createOrRevive returns a conflict, that there is one already, or that there is none, if
// somebody else has written or deleted the lease meanwhile.
func (l *leases) createOrRevive(ctx context.Context, name string, rec translate.LeaseRecord, view translate.NodeView) error {
	err := l.writer.Create(ctx, translate.EncodeLease(rec, l.namespace))
	if apierrors.IsAlreadyExists(err) {
		var other coordinationv1.Lease
		switch got := l.live.Get(ctx, types.NamespacedName{Namespace: l.namespace, Name: name}, &other); {
		case got == nil:
			return l.revive(ctx, name, rec, view, &other)
		case !apierrors.IsNotFound(got):
			return fmt.Errorf("get lease %s: %w", name, got)
		}
	}
	if err != nil {
		return fmt.Errorf("create lease %s: %w", name, err)
	}
	l.remember(name, rec.Class, rec.RenewedAt)
	return nil
}

// revive makes an existing lease speak for the caller. If no other tool uses it, the
// earlier drain's markers and tools are forgotten.
func (l *leases) revive(ctx context.Context, name string, rec translate.LeaseRecord, node translate.NodeView, other *coordinationv1.Lease) error {
	if there, err := translate.DecodeLease(other); err == nil {
		voice, heard := there.Voice(rec.Class)
		now := l.clock.Now()
		if heard {
			if state, _ := translate.JudgeVoice(there, voice, node, now, l.markerLimit); state != translate.LeaseExpired {
				l.remember(name, rec.Class, voice.HeardAt) // Another replica was faster.
				return nil
			}
		}
		if state, _ := translate.JudgeLease(there, node, now, l.markerLimit); state != translate.LeaseExpired {
			markers := translate.MergeMarkers(there.Markers, rec.Markers)
			rec = there.Hear(rec.Voices()[0], rec.Display)
			rec.Markers = markers
		}
	}
	lease := translate.EncodeLease(rec, l.namespace)
	lease.UID, lease.ResourceVersion = other.UID, other.ResourceVersion
	if err := l.writer.Update(ctx, lease); err != nil {
		return fmt.Errorf("renew lease %s: %w", name, err)
	}
	l.remember(name, rec.Class, rec.RenewedAt)
	return nil
}

// remember bridges the time until the informer shows this renewal, which the API
// keeps in microseconds.
func (l *leases) remember(name string, class translate.CallerClass, renewed time.Time) {
	l.written.Add(writtenKey(name, class), renewed.Truncate(time.Microsecond), bridge)
}
