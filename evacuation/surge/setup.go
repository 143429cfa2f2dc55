package surge

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// Options of the interceptor in a manager. All but Policy are required.
type Options struct {
	Clock    clock.WithTicker
	Policy   Policy
	Recorder eventsclient.EventRecorder
	Metrics  *metrics.Surge
	// Live has no cache: joining a request must see what was just written.
	Live client.WithWatch
}

// Add adds the interceptor and the controller of orphans to a manager, on the leader
// only. The cache needs informers of Kinds.
func Add(ctx context.Context, mgr ctrl.Manager, o Options) error {
	err := controllers.Require("set up surge", map[string]bool{"Clock": o.Clock != nil, "Recorder": o.Recorder != nil, "Metrics": o.Metrics != nil, "Live": o.Live != nil})
	if err != nil {
		return err
	}
	s := &Surge{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Requester: &requester.Requester{Name: Name, Client: o.Live, Clock: o.Clock},
		Clock:     o.Clock,
		Policy:    o.Policy,
		Recorder:  o.Recorder,
		Metrics:   o.Metrics,
	}
	s.init()
	return errors.Join(
		setupIndexes(ctx, mgr.GetFieldIndexer()),
		interceptor.Add(mgr, s, interceptor.Options{
			Name:     Name,
			Clock:    o.Clock,
			Recorder: o.Recorder,
			Watches: []interceptor.Watch{
				{Object: &corev1.Pod{}, Requests: s.following.of},
				{Object: &appsv1.ReplicaSet{}, Requests: s.following.of},
				{Object: &appsv1.Deployment{}, Requests: s.following.of},
			},
		}),
		(&orphans{surge: s}).setup(mgr),
	)
}
