//go:build unix

package dashboard

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// never is the work that does not end by itself.
const never = "never"

// workLabel says how long an interceptor works for a pod, such as "90s"; it is done at once
// without it.
func workLabel(name string) string {
	first, _, _ := strings.Cut(name, ".")
	return "work.test.drawbridge.dev/" + first
}

// working are the interceptors of a pod with how long each works.
func working(w *builder.PodWrapper, work map[string]string) *builder.PodWrapper {
	names := slices.Sorted(maps.Keys(work))
	for _, name := range names {
		w.Label(workLabel(name), work[name])
	}
	return w.Interceptors(names...)
}

// worker is an interceptor that the test plays, with the real SDK.
type worker struct {
	name  string
	clock clock.WithTicker
	says  string

	mu       sync.Mutex
	released map[types.NamespacedName]bool
}

var _ interceptor.Interceptor = &worker{}

// Evacuate is done when the work of the pod's label has passed, or the test releases it.
func (w *worker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	w.mu.Lock()
	released := w.released[t.Pod]
	w.mu.Unlock()
	label := t.Labels[workLabel(w.name)]
	if released || label == "" {
		return interceptor.Progress{Done: true, Message: "done"}, nil
	}
	progress := interceptor.Progress{Message: w.says, CheckAfter: 500 * time.Millisecond}
	if label == never {
		return progress, nil
	}
	work, err := time.ParseDuration(label)
	if err != nil {
		return progress, err
	}
	began := t.StartedAt
	if began.IsZero() {
		began = w.clock.Now()
	}
	progress.ExpectedFinishTime = began.Add(work)
	if left := progress.ExpectedFinishTime.Sub(w.clock.Now()); left <= 0 {
		return interceptor.Progress{Done: true, Message: "done"}, nil
	}
	return progress, nil
}

// release ends the work for a pod.
func (w *worker) release(pod types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released == nil {
		w.released = map[types.NamespacedName]bool{}
	}
	w.released[pod] = true
}

// play runs interceptors for the pods of one namespace until the end of the test. says has
// what each tells people.
func play(t *testing.T, namespace string, c clock.WithTicker, says map[string]string) map[string]*worker {
	t.Helper()
	mgr := must(ctrl.NewManager(kube.Config(), ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: new(true)},
	}))(t)
	workers := map[string]*worker{}
	for name, text := range says {
		w := &worker{name: name, clock: c, says: text}
		if err := interceptor.Add(mgr, w, interceptor.Options{Name: name, Clock: c, HeartbeatInterval: time.Minute}); err != nil {
			t.Fatal(err)
		}
		workers[name] = w
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the interceptors' manager: %v", err)
		}
	})
	return workers
}
