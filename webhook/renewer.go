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
	"sigs.k8s.io/controller-runtime/pkg/manager"

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

// Renewer renews the leases of legacy requesters outside of their calls, on every
// replica. However often a requester calls, its lease is written once per third of its
// duration.
type Renewer struct {
	leases  *leases
	metrics *metrics.Webhook
	queue   chan renewal

	mu sync.Mutex
	// heard maps the renewals that are queued to the last call.
	heard map[renewal]lastCall
	// paused maps leases whose renewal failed to when they may be tried again.
	paused map[string]time.Time
}

// renewal is the lease that is to be renewed, and the kind of tool that called.
type renewal struct {
	lease string
	class translate.CallerClass
}

// lastCall is when a caller last called.
type lastCall struct {
	at     time.Time
	caller translate.Caller
}

func newRenewer(l *leases, m *metrics.Webhook) *Renewer {
	return &Renewer{
		leases: l, metrics: m, queue: make(chan renewal, maxQueued),
		heard: map[renewal]lastCall{}, paused: map[string]time.Time{},
	}
}

var _ manager.LeaderElectionRunnable = &Renewer{}

// NeedLeaderElection is false: every replica answers calls.
func (r *Renewer) NeedLeaderElection() bool { return false }

// Start renews what is queued until the context ends.
func (r *Renewer) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logf.FromContext(ctx).WithName("lease-renewer"))
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-r.queue:
			r.renewQueued(ctx, next)
		}
	}
}

// enqueue asks for a renewal. It never blocks.
func (r *Renewer) enqueue(name string, caller translate.Caller) {
	now := r.leases.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.paused[name]; ok {
		if now.Before(until) {
			return
		}
		delete(r.paused, name)
	}
	next, last := renewal{lease: name, class: caller.Class}, lastCall{at: now, caller: caller}
	if _, queued := r.heard[next]; queued {
		r.heard[next] = last
		return
	}
	select {
	case r.queue <- next:
		r.heard[next] = last
	default: // Full; see maxQueued.
	}
}

func (r *Renewer) renewQueued(ctx context.Context, next renewal) {
	name := next.lease
	r.mu.Lock()
	heard := r.heard[next]
	delete(r.heard, next)
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
func (r *Renewer) renew(ctx context.Context, name string, last lastCall) (result string, err error) {
	alive, due := r.leases.alive(ctx, name, last.caller)
	if !alive || !due {
		// Renewed by another replica meanwhile, or run out: then the next call makes a
		// new one (see leases.create).
		return "", nil
	}
	known := r.leases.index.known(name)
	if known == nil {
		return "", nil
	}
	if known.err != nil {
		return renewalFailed, known.err
	}
	lease, class := known.lease, last.caller.Class
	rec := known.rec.Hear(translate.Voice{Class: class, TTL: last.caller.TTL, HeardAt: last.at}, last.caller.Display)
	rec.Markers = translate.MergeMarkers(rec.Markers, r.leases.cachedNode(ctx, rec.Node).Markers)
	version := ""
	if class != known.rec.Class {
		version = lease.ResourceVersion // What is known of the other tools must not be lost.
	}
	patch, err := renewalPatch(lease, rec, version)
	if err != nil {
		return renewalFailed, err
	}
	target := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
	switch err := r.leases.writer.Patch(ctx, target, patch); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		r.leases.written.Remove(writtenKey(name, class))
		return renewalGone, nil // Withdrawn, or changed; the next call looks again.
	case err != nil:
		return renewalFailed, fmt.Errorf("patch lease %s: %w", name, err)
	}
	r.leases.remember(name, class, last.at)
	return renewalSucceeded, nil
}

// renewalPatch sets what is new: time and markers, as a rule. The UID makes the API
// server refuse it on a Lease that has taken the place of the one we know, and the
// version, if there is one, on a Lease that has changed.
func renewalPatch(lease *coordinationv1.Lease, rec translate.LeaseRecord, version string) (client.Patch, error) {
	after := translate.EncodeLease(rec, lease.Namespace)
	metadata := map[string]any{"uid": lease.UID}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	annotations := map[string]string{}
	for key, value := range after.Annotations {
		if lease.Annotations[key] != value {
			annotations[key] = value
		}
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	spec := map[string]any{"renewTime": after.Spec.RenewTime}
	if deref(after.Spec.LeaseDurationSeconds) != deref(lease.Spec.LeaseDurationSeconds) {
		spec["leaseDurationSeconds"] = after.Spec.LeaseDurationSeconds
	}
	if version != "" {
		spec["holderIdentity"] = after.Spec.HolderIdentity
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("encode renewal: %w", err)
	}
	return client.RawPatch(types.MergePatchType, patch), nil
}
