package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// RescanDelay gathers the changes of registrations that come together.
const RescanDelay = time.Second

// Rescan looks at all pods in the cache after each change of what the pods are judged
// by, once for all changes of RescanDelay, and once at the start. All fields but
// AtOnce are required.
type Rescan struct {
	// Pods is the cache. What it lists is shared and must not be changed.
	Pods  client.Reader
	Clock clock.Clock
	// OnChange calls its argument after each change.
	OnChange func(func())
	// Synced reports whether everything is known that pods are judged by. Until then
	// no pod is looked at.
	Synced func() bool
	// AtOnce says that the first pass does not wait for RescanDelay.
	AtOnce bool
	// Each is called for each pod.
	Each func(ctx context.Context, pod *corev1.Pod, queue Queue)
}

// Source starts the rescan with a controller and ends it with that one.
func (r Rescan) Source() source.Source {
	return source.Func(func(ctx context.Context, queue Queue) error {
		changed := make(chan struct{}, 1)
		changed <- struct{}{} // What was there before we listened.
		r.OnChange(func() {
			select {
			case changed <- struct{}{}:
			default: // It will be looked at anyway.
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
		pods := &corev1.PodList{}
		if err := r.Pods.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Could not list the pods after a change of the registrations")
			continue
		}
		for i := range pods.Items {
			r.Each(ctx, &pods.Items[i], queue)
		}
	}
}
