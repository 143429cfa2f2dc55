//go:build unix

package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Worker is an interceptor of the SDK that works for some time, and notes when it is done.
type Worker struct {
	// needs is how long it works for a pod.
	needs time.Duration

	mu       sync.Mutex
	told     map[types.UID]time.Duration // By pod: how long it was told to have, in its first call.
	finished map[types.UID]time.Time     // By pod.
	canceled map[types.UID]bool          // By pod.
}

var (
	_ interceptor.Interceptor = &Worker{}
	_ interceptor.Canceler    = &Worker{}
)

// NewWorker makes one that works that long for a pod.
func NewWorker(needs time.Duration) *Worker {
	return &Worker{
		needs: needs,
		told:  map[types.UID]time.Duration{}, finished: map[types.UID]time.Time{}, canceled: map[types.UID]bool{},
	}
}

// Start runs it as an interceptor of that name until the context ends. It may have several
// names. Error: it cannot start.
func (w *Worker) Start(ctx context.Context, kube *cluster.Cluster, name string) error {
	m, err := ctrl.NewManager(kube.Config(), ctrl.Options{
		Scheme: cluster.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
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
func (w *Worker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
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
func (w *Worker) Cancel(_ context.Context, t interceptor.Target) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.canceled[t.PodUID] = true
	return nil
}

// DoneWith is when it was done with a pod; zero if it is not.
func (w *Worker) DoneWith(pod types.UID) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished[pod]
}

// ToldFor is how long it was told to have for a pod; 0 if it was not called, or not told.
func (w *Worker) ToldFor(pod types.UID) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told[pod]
}

// WasCanceled says that it was canceled.
func (w *Worker) WasCanceled(pod types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.canceled[pod]
}
