package app

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// setupSurge adds the interceptor surge.drawbridge.dev, if enabled.
func setupSurge(ctx context.Context, mgr ctrl.Manager, o Options, writes *refused.Tracker) error {
	if !o.Surge {
		return nil
	}
	live, err := liveClient(mgr, writes)
	if err != nil {
		return err
	}
	return surge.Add(ctx, mgr, surge.Options{
		Live:     live,
		Clock:    o.Clock,
		Policy:   surge.Policy{ProgressDeadline: o.SurgeProgressDeadline, ClusterLimit: o.SurgeClusterLimit},
		Recorder: mgr.GetEventRecorder(recorderName),
		Metrics:  metrics.NewSurge(o.Registerer),
	})
}

// surgeKinds are the kinds that the interceptor needs informers of.
func surgeKinds(o Options) []client.Object {
	if !o.Surge {
		return nil
	}
	return surge.Kinds()
}
