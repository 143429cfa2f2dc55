// Package rollback notices that the API server's store went back in time, as when etcd was
// restored from a snapshot, and ends the manager. Its watches go on from resource versions
// that are in the future of the restored store, so they stay silent, and what the caches hold
// may never have been. Only a process that lists everything anew is right again.
package rollback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

const (
	readTimeout = 10 * time.Second
	// tellTimeout is how long the end waits for the event.
	tellTimeout = 5 * time.Second
)

// ErrRolledBack is why the manager ends.
var ErrRolledBack = errors.New("the API server's store went back in time")

// Kind is a kind of which the cache has an informer.
type Kind struct {
	// Resource is the value of the metric's label.
	Resource string
	// List is the kind of its lists.
	List schema.GroupVersionKind
	// Seen returns the resource version up to which the informer has seen everything.
	Seen func(context.Context) (string, error)
}

// Watcher reads a list of each kind now and then. It is a runnable for all replicas, since
// all of them answer from their caches. All fields but Log are required.
//
// Only resource versions of one resource are compared: events, for example, may be in an
// etcd of their own. The resource version of a list is that of the whole store, whatever
// was deleted or created since. And a list without a resource version is a quorum read,
// which no API server answers from a cache that lags behind.
type Watcher struct {
	// Live reads from the API server.
	Live  client.Reader
	Kinds []Kind
	Clock clock.Clock
	// Events writes the event. The recorder would write it too late.
	Events eventsclient.EventsV1Interface
	// Regarding is the object of the event.
	Regarding func(context.Context) *corev1.ObjectReference
	Metrics   *metrics.Rollback
	Log       logr.Logger

	// newest is the newest resource version of each resource.
	newest map[string]string
	// doubted are the resources of which the last answer was too old.
	doubted map[string]bool
}

var _ manager.LeaderElectionRunnable = &Watcher{}

// NeedLeaderElection is false: every replica has caches.
func (w *Watcher) NeedLeaderElection() bool { return false }

// SetupWithManager adds the watcher to the manager.
func (w *Watcher) SetupWithManager(mgr manager.Manager) error {
	err := controllers.Require("rollback watcher", map[string]bool{
		"Live": w.Live != nil, "Kinds": len(w.Kinds) > 0, "Clock": w.Clock != nil,
		"Events": w.Events != nil, "Regarding": w.Regarding != nil, "Metrics": w.Metrics != nil,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(w); err != nil {
		return fmt.Errorf("set up the rollback watcher: %w", err)
	}
	return nil
}

// Start reads until the context ends. It fails with ErrRolledBack, which ends the manager.
func (w *Watcher) Start(ctx context.Context) error {
	w.newest, w.doubted = map[string]string{}, map[string]bool{}
	for {
		d := decide(w.gather(ctx))
		w.doubted = d.doubted
		for _, r := range d.rolledBack {
			return w.end(ctx, r)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.Clock.After(d.again):
		}
	}
}

// gather reads each kind once. What was seen is asked first: an answer that was begun
// afterwards must not be older.
func (w *Watcher) gather(ctx context.Context) input {
	in := input{doubted: w.doubted}
	for _, kind := range w.Kinds {
		r, err := w.read(ctx, kind)
		if err != nil {
			// Whoever needs the API server says so. This one only waits for its return.
			w.Log.V(1).Info("Could not compare resource versions", "resource", kind.Resource, "error", err.Error())
			in.failed = true
			continue
		}
		if r.older() {
			w.Log.Info("The API server answers with a resource version older than one seen before", "resource", r.resource, "seen", r.seen, "live", r.live)
		}
		in.readings = append(in.readings, r)
		w.newest[kind.Resource] = newer(r.seen, r.live)
		w.Metrics.ResourceVersion(kind.Resource, r.live)
	}
	return in
}

func (w *Watcher) read(ctx context.Context, kind Kind) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	seen, err := kind.Seen(ctx)
	if err != nil {
		return reading{}, fmt.Errorf("learn what the informer has seen: %w", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.List)
	if err := w.Live.List(ctx, list, client.Limit(1)); err != nil {
		return reading{}, fmt.Errorf("list one of %s: %w", kind.Resource, err)
	}
	return reading{resource: kind.Resource, seen: newer(w.newest[kind.Resource], seen), live: list.ResourceVersion}, nil
}

// end says what happened, and returns the error that ends the manager.
func (w *Watcher) end(ctx context.Context, r reading) error {
	err := fmt.Errorf("%w: the list of %s is at resource version %s, and %s was seen before", ErrRolledBack, r.resource, r.live, r.seen)
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if err := events.Write(ctx, w.Events, w.Clock.Now(), w.Regarding(ctx), events.StoreRolledBack(r.resource, r.seen, r.live)); err != nil {
		w.Log.Error(err, "Could not write the event about it")
	}
	return err
}
