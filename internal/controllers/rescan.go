package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/internal/informers"
)

// RescanDelay batches changes of registrations.
const RescanDelay = time.Second

// Rescan visits all pods in the cache after each change of what decisions about pods
// depend on, once for all changes within RescanDelay, and once at the start. All fields
// but AtOnce are required.
type Rescan struct {
	// Pods is the manager's cache, which copies no pod; another reader lists them. What it
	// has is shared and must not be changed.
	Pods  client.Reader
	Clock clock.Clock
	// OnChange calls its argument after each change.
	OnChange func(func())
	// Synced reports whether everything that decisions depend on is known. Until then
	// no pod is visited.
	Synced func() bool
	// AtOnce says that the first pass does not wait for RescanDelay.
	AtOnce bool
	// Each is called for each pod.
	Each func(ctx context.Context, pod *corev1.Pod, queue Queue)
}

// Source starts and stops the rescan together with a controller.
func (r Rescan) Source() source.Source {
	return source.Func(func(ctx context.Context, queue Queue) error {
		changed := make(chan struct{}, 1)
		changed <- struct{}{} // For changes before we listened.
		r.OnChange(func() {
			select {
			case changed <- struct{}{}:
			default: // A rescan is already pending.
			}
		})
		go r.run(ctx, changed, queue)
		return nil
	})
}

func (r Rescan) run(ctx context.Context, changed <-chan struct{}, queue Queue) {
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		for waited := first && r.AtOnce; !waited || !r.Synced(); waited = true {
			select {
			case <-ctx.Done():
				return
			case <-r.Clock.After(RescanDelay):
			}
		}
		if err := informers.EachPod(ctx, r.Pods, func(pod *corev1.Pod) { r.Each(ctx, pod, queue) }); err != nil {
			log.FromContext(ctx).Error(err, "Could not visit the pods after a change of the registrations")
		}
	}
}
