//go:build unix

package karpenter

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// worker is an interceptor of the SDK that works for some time, and notes when it is done.
type worker struct {
	// needs is how long it works for a pod.
	needs time.Duration

	mu       sync.Mutex
	told     map[types.UID]time.Duration // By pod: how long it was told to have, in its first call.
	finished map[types.UID]time.Time     // By pod.
	canceled map[types.UID]bool          // By pod.
}

var (
	_ interceptor.Interceptor = &worker{}
	_ interceptor.Canceler    = &worker{}
)

func newWorker(needs time.Duration) *worker {
	return &worker{
		needs: needs,
		told:  map[types.UID]time.Duration{}, finished: map[types.UID]time.Time{}, canceled: map[types.UID]bool{},
	}
}

// startWorker runs one as an interceptor of that name until the test ends.
func startWorker(t *testing.T, name string, needs time.Duration) *worker {
	t.Helper()
	w := newWorker(needs)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	if err := w.start(ctx, name); err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs it as an interceptor of that name until the context ends. It may have several
// names. Error: it cannot start.
func (w *worker) start(ctx context.Context, name string) error {
	m, err := ctrl.NewManager(kube.Config(), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return err
	}
	if err := interceptor.Add(m, w, interceptor.Options{Name: name}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	synced, cancel := context.WithTimeout(ctx, cluster.Patience)
	defer cancel()
	if !m.GetCache().WaitForCacheSync(synced) {
		select {
		case err = <-ended:
		default:
		}
		return fmt.Errorf("interceptor %s does not start: %w", name, err)
	}
	return nil
}

// Evacuate is done when it has worked long enough.
func (w *worker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.told[t.PodUID]; !known {
		w.told[t.PodUID] = 0
		if !t.Deadline.IsZero() {
			w.told[t.PodUID] = time.Until(t.Deadline)
		}
	}
	if t.StartedAt.IsZero() {
		return interceptor.Progress{Message: "working", CheckAfter: time.Millisecond}, nil
	}
	if left := w.needs - time.Since(t.StartedAt); left > 0 {
		return interceptor.Progress{Message: "working", CheckAfter: left}, nil
	}
	if _, known := w.finished[t.PodUID]; !known {
		w.finished[t.PodUID] = time.Now()
	}
	return interceptor.Progress{Done: true, Message: "done"}, nil
}

// Cancel has nothing to undo.
func (w *worker) Cancel(_ context.Context, t interceptor.Target) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.canceled[t.PodUID] = true
	return nil
}

// doneWith is when it was done with a pod; zero if it is not.
func (w *worker) doneWith(pod types.UID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished[pod]
}

// toldFor is how long it was told to have for a pod; 0 if it was not called, or not told.
func (w *worker) toldFor(pod types.UID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told[pod]
}

// wasCanceled says that it was called off.
func (w *worker) wasCanceled(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.canceled[pod]
}
