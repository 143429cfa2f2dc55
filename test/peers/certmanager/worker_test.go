//go:build unix

package certmanager

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// worker is an interceptor of the SDK that works for a moment, and notes when it is done.
type worker struct {
	name string

	mu       sync.Mutex
	finished map[types.UID]time.Time // By pod.
}

// workFor is how long it works at least.
const workFor = time.Second

var _ interceptor.Interceptor = &worker{}

// startWorker runs it until the test ends.
func startWorker(t *testing.T) *worker {
	t.Helper()
	w := &worker{name: "worker.example.com", finished: map[types.UID]time.Time{}}
	m := must(ctrl.NewManager(kube.Config(), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	}))(t)
	if err := interceptor.Add(m, w, interceptor.Options{Name: w.name}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the interceptor: %v", err)
		}
	})
	if !m.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the interceptor does not start")
	}
	return w
}

// Evacuate is done a moment after its start is on record.
func (w *worker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	if t.StartedAt.IsZero() {
		return interceptor.Progress{Message: "working", CheckAfter: time.Millisecond}, nil
	}
	if left := workFor - time.Since(t.StartedAt); left > 0 {
		return interceptor.Progress{Message: "working", CheckAfter: left}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.finished[t.PodUID]; !known {
		w.finished[t.PodUID] = time.Now()
	}
	return interceptor.Progress{Done: true, Message: "done"}, nil
}

func (w *worker) read() map[types.UID]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.finished)
}

// doneWith is when it was done with a pod; zero if it is not.
func (w *worker) doneWith(pod types.UID) time.Time { return w.read()[pod] }
