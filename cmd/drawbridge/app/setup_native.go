package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/native"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/features"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// maxNativePriority is the largest that the API server accepts.
const maxNativePriority = 100000

// NativeOptions configure what is done with lifecycle.k8s.io.
type NativeOptions struct {
	// Controllers says who moves its Evictions, one of charge.Modes.
	Controllers string
	// Priority of v1alpha1.NativeResponder, from 1000 to 100000.
	Priority int32
	// State is the name of the ConfigMap in our namespace with who is in charge.
	State string
}

// defaultNative are the defaults of the chart.
func defaultNative() NativeOptions {
	return NativeOptions{Controllers: string(charge.Auto), Priority: v1alpha1.DefaultNativePriority, State: "drawbridge-native"}
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (o *NativeOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Controllers, "native-controllers", o.Controllers, "Who moves the Evictions of lifecycle.k8s.io, where it is served: Auto, Drawbridge, Cluster or Off.")
	fs.Int32Var(&o.Priority, "native-priority", o.Priority, "Priority of the responder "+v1alpha1.NativeResponder+" in native Evictions, from 1000 to 100000.")
	fs.StringVar(&o.State, "native-state", o.State, "Name of the ConfigMap in the manager's namespace that says who moves native Evictions.")
}

// validate calls check for each rule.
func (o *NativeOptions) validate(check func(ok bool, format string, args ...any)) {
	check(slices.Contains(charge.Modes(), charge.Mode(o.Controllers)), "--native-controllers must be one of %v, not %q", charge.Modes(), o.Controllers)
	check(o.Priority >= v1alpha1.DefaultNativePriority && o.Priority <= maxNativePriority,
		"--native-priority must be from %d to %d, not %d", v1alpha1.DefaultNativePriority, maxNativePriority, o.Priority)
	check(o.State != "", "--native-state must not be empty")
}

// nativeMode is Off without the feature gate.
func (o *Options) nativeMode() charge.Mode {
	if !o.Operations.Gates.Enabled(features.NativeAPI) {
		return charge.Off
	}
	return charge.Mode(o.Native.Controllers)
}

// newNative returns the view of the native API and what knows who is in charge of it.
func newNative(mgr ctrl.Manager, o Options, known discovered) (*native.View, *charge.Charge, error) {
	found, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for discovery: %w", err)
	}
	live, err := liveClient(mgr, known.writes)
	if err != nil {
		return nil, nil, err
	}
	c := &charge.Charge{
		Mode: o.nativeMode(), Discovery: found, Client: live,
		ConfigMap: types.NamespacedName{Namespace: o.Namespace, Name: o.Native.State},
		Clock:     o.Clock, Recorder: mgr.GetEventRecorder(recorderName), Metrics: metrics.NewNative(o.Registerer),
		Log: mgr.GetLogger().WithName("native"),
	}
	view := native.NewView(mgr.GetConfig(), mgr.GetScheme(), c.InCharge, c.Known, c.Saw, c.Recheck)
	c.Serve, c.Taken = view.Run, view.Replay
	return view, c, nil
}

// setupNative adds what moves native Evictions, and joins them to our requests. It does nothing
// as long as the API server does not serve them.
func setupNative(mgr ctrl.Manager, o Options, known discovered, view *native.View, inCharge *charge.Charge, registry *registration.Registry) error {
	live, err := liveClient(mgr, known.writes)
	if err != nil {
		return err
	}
	if o.nativeMode() == charge.Off {
		return mgr.Add(&native.Leftovers{Client: mgr.GetClient(), Live: live, Clock: o.Clock})
	}
	view.OnChange(registry.NativeChanged)
	return errors.Join(
		(&native.Reconciler{
			View: view, Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Live: live, Clock: o.Clock, Policy: nativePolicy(o),
			Resolver: registry, Recorder: mgr.GetEventRecorder(recorderName), Priority: o.Native.Priority, May: inCharge.InCharge,
		}).SetupWithManager(mgr),
		mgr.Add(inCharge),
		mgr.Add(charge.Leader{Charge: inCharge}),
	)
}

// nativePolicy has the constants. An interceptor that stands for native responders reports at least
// three times within its deadline, as all others do, if our API lets it.
func nativePolicy(o Options) native.Policy {
	policy := native.DefaultPolicy()
	policy.Process.StartupGrace, policy.Retention = o.Policy.StartupGrace, o.Retention
	policy.HeartbeatInterval = max(policy.ReportMin, min(policy.HeartbeatInterval, o.Policy.HeartbeatDeadline/3))
	return policy
}

// nativeTurn is what the webhook asks the view.
func nativeTurn(view *native.View) func(context.Context, types.NamespacedName, *v1alpha1.EvictionRequest) (webhook.NativeTurn, error) {
	return func(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (webhook.NativeTurn, error) {
		turn, err := view.Waiting(ctx, pod, er)
		return webhook.NativeTurn(turn), err
	}
}
