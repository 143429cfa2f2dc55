package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// renewalDeadline bounds one write of a lease.
	renewalDeadline = 5 * time.Second
	// renewalPause is how long a lease is left alone after a failed attempt: the
	// next call would otherwise bring the next failure.
	renewalPause = 5 * time.Second
	// maxQueued bounds the queue. A lease that does not fit is queued again by its
	// requester's next call.
	maxQueued = 4096
)

// Results of a renewal, for the metric.
const (
	renewalSucceeded = "success"
	renewalGone      = "gone"
	renewalFailed    = "error"
)

// Renewer renews the leases of legacy requesters off the path of their calls, on
// every replica. However often a requester calls, its lease is written once per
// third of its duration.
type Renewer struct {
	leases  *leases
	metrics *metrics.Webhook
	queue   chan string

	mu sync.Mutex
	// heard maps the leases that are queued to when their requester last called.
	heard map[string]time.Time
	// paused maps leases whose renewal failed to when they may be tried again.
	paused map[string]time.Time
}

func newRenewer(l *leases, m *metrics.Webhook) *Renewer {
	return &Renewer{
		leases: l, metrics: m, queue: make(chan string, maxQueued),
		heard: map[string]time.Time{}, paused: map[string]time.Time{},
	}
}

// NeedLeaderElection is false: every replica answers calls.
func (r *Renewer) NeedLeaderElection() bool { return false }

// Start renews what is queued until the context ends.
func (r *Renewer) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logf.FromContext(ctx).WithName("lease-renewer"))
	for {
		select {
		case <-ctx.Done():
			return nil
		case name := <-r.queue:
			r.renewQueued(ctx, name)
		}
	}
}

// enqueue asks for a renewal. It never blocks.
func (r *Renewer) enqueue(name string) {
	now := r.leases.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.paused[name]; ok {
		if now.Before(until) {
			return
		}
		delete(r.paused, name)
	}
	if _, queued := r.heard[name]; queued {
		r.heard[name] = now
		return
	}
	select {
	case r.queue <- name:
		r.heard[name] = now
	default: // Full; see maxQueued.
	}
}

func (r *Renewer) renewQueued(ctx context.Context, name string) {
	r.mu.Lock()
	heard := r.heard[name]
	delete(r.heard, name)
	r.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, renewalDeadline)
	defer cancel()
	result, err := r.renew(ctx, name, heard)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Renew lease", "lease", name)
		r.pause(name)
	}
	if result != "" {
		r.metrics.Renewal(result)
	}
}

// pause keeps a lease out of the queue for a moment, and forgets the pauses that
// are over, so that the map stays as small as the trouble.
func (r *Renewer) pause(name string) {
	now := r.leases.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, until := range r.paused {
		if !now.Before(until) {
			delete(r.paused, other)
		}
	}
	r.paused[name] = now.Add(renewalPause)
}

// renew writes the time its requester was heard, and the markers the node has
// got since. It returns an empty result if there was nothing to do.
func (r *Renewer) renew(ctx context.Context, name string, heard time.Time) (result string, err error) {
	alive, due, err := r.leases.alive(ctx, name)
	if err != nil {
		return renewalFailed, err
	}
	if !alive || !due {
		// Renewed by another replica meanwhile, or run out: then the next call makes a
		// new one (see leases.create).
		return "", nil
	}
	lease, err := r.leases.lookup(ctx, name)
	if err != nil || lease == nil {
		return "", err
	}
	rec, err := translate.DecodeLease(lease)
	if err != nil {
		return renewalFailed, err
	}
	rec.Markers = translate.MergeMarkers(rec.Markers, r.leases.cachedNode(ctx, rec.Node).Markers)
	patch, err := renewalPatch(lease.UID, heard, rec.Markers)
	if err != nil {
		return renewalFailed, err
	}
	target := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
	switch err := r.leases.writer.Patch(ctx, target, patch); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		r.leases.written.Remove(name)
		return renewalGone, nil // Withdrawn, or replaced by a new one.
	case err != nil:
		return renewalFailed, fmt.Errorf("patch lease %s: %w", name, err)
	}
	r.leases.remember(name, heard)
	return renewalSucceeded, nil
}

// renewalPatch sets time and markers. The UID makes the API server refuse it on
// a Lease that has taken the place of the one we know.
func renewalPatch(uid types.UID, renewed time.Time, markers []string) (client.Patch, error) {
	metadata := map[string]any{"uid": uid}
	if len(markers) > 0 {
		metadata["annotations"] = map[string]string{translate.LeaseMarkersAnnotation: translate.EncodeMarkers(markers)}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"spec":     map[string]any{"renewTime": metav1.NewMicroTime(renewed)},
	})
	if err != nil {
		return nil, fmt.Errorf("encode renewal: %w", err)
	}
	return client.RawPatch(types.MergePatchType, patch), nil
}
