package app

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

type served struct {
	view *native.View
	mgr  ctrl.Manager
}

func (s served) NeedLeaderElection() bool { return false }

func (s served) Start(ctx context.Context) error {
	d, err := discovery.NewDiscoveryClientForConfig(s.mgr.GetConfig())
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := d.ServerResourcesForGroupVersion("lifecycle.k8s.io/v1alpha1"); err == nil {
			return s.view.Run(ctx)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func newNativeView(mgr ctrl.Manager) *native.View {
	return native.NewView(mgr.GetConfig(), mgr.GetScheme(), func() bool { return true }, nil, nil)
}

// setupNative adds what moves native Evictions, and joins them to our requests.
func setupNative(mgr ctrl.Manager, o Options, known discovered, view *native.View, registry *registration.Registry) error {
	live, err := liveClient(mgr, known.writes)
	if err != nil {
		return err
	}
	view.OnChange(registry.NativeChanged)
	policy := native.DefaultPolicy()
	policy.Process.StartupGrace, policy.Retention = o.Policy.StartupGrace, o.Retention
	r := &native.Reconciler{
		View: view, Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Live: live, Clock: o.Clock, Policy: policy,
		Resolver: registry, Recorder: mgr.GetEventRecorder(recorderName), Priority: v1alpha1.DefaultNativePriority,
		May: func() bool { return true },
	}
	if err := r.SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Add(served{view, mgr})
}

// nativeTurn is what the webhook asks the view.
func nativeTurn(view *native.View) func(context.Context, types.NamespacedName) (webhook.NativeTurn, error) {
	return func(ctx context.Context, pod types.NamespacedName) (turn webhook.NativeTurn, err error) {
		turn.Responder, turn.Position, turn.Total, turn.Last, err = view.Waiting(ctx, pod)
		return turn, err
	}
}
