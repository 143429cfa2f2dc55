package app

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/execcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/native/charge"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// setupHooks adds the interceptors of EvacuationHooks, if enabled.
func setupHooks(mgr ctrl.Manager, o Options, status *registration.StatusReconciler, native hook.NativeEvictions) error {
	if !o.Hooks.Enabled {
		return nil
	}
	requests, err := httpcall.New(httpcall.Options{
		Services: httpcall.NewServices(mgr.GetAPIReader()), Denied: deniedAddresses(mgr.GetAPIReader(), mgr.GetConfig().Host),
		Clock: o.Clock, Allow: o.Hooks.Reachable,
	})
	if err != nil {
		return fmt.Errorf("set up the requests of hooks: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make dynamic client: %w", err)
	}
	options := hook.Options{
		Clock: o.Clock, Metrics: metrics.NewHooks(o.Registerer),
		Bounds:        hook.Bounds{MaxTotal: o.Hooks.MaxTotal, Exec: o.Hooks.Exec, HTTP: o.Hooks.HTTP},
		MaxConcurrent: o.Hooks.MaxConcurrent, MaxPerNamespace: o.Hooks.MaxPerNamespace,
		HTTP: requests, Watches: waitfor.New(dynamicClient, mgr.GetRESTMapper(), mgr.GetLogger().WithName("hooks"), "chart value hooks.wait.rules"),
		Coverage:   func(key types.NamespacedName) (hook.Coverage, bool) { return coverageOf(status, key) },
		OnCoverage: status.OnHook,
	}
	if charge.Mode(o.Native.Controllers) != charge.Off {
		options.Native = native
	}
	if o.Hooks.Exec {
		if options.Exec, err = execcall.New(mgr.GetConfig()); err != nil {
			return fmt.Errorf("set up the commands of hooks: %w", err)
		}
	}
	return hook.Add(mgr, options)
}

// coverageOf is what the registry knows of a hook.
func coverageOf(status *registration.StatusReconciler, key types.NamespacedName) (hook.Coverage, bool) {
	found, counted := status.Report(v1alpha1.HookInterceptor(key))
	coverage := hook.Coverage{UID: found.UID, Generation: found.Generation, Pods: found.MatchingPods, Failing: found.Failing, Example: found.Example}
	if found.Refused != nil {
		coverage.Reason, coverage.Refused = found.Refused.Reason, found.Refused.Message
	}
	return coverage, counted
}

// deniedAddresses are those of the API server and of this machine, which no hook may ask.
func deniedAddresses(live client.Reader, apiServer string) func(ctx context.Context) ([]netip.Addr, error) {
	return func(ctx context.Context) ([]netip.Addr, error) {
		denied, err := httpcall.APIServer(ctx, live)
		if err != nil {
			return nil, fmt.Errorf("look up the API server's addresses: %w", err)
		}
		if parsed, err := url.Parse(apiServer); err == nil {
			if address, err := netip.ParseAddr(parsed.Hostname()); err == nil {
				denied = append(denied, address.Unmap())
			}
		}
		local, err := net.InterfaceAddrs()
		if err != nil {
			return nil, fmt.Errorf("list our own addresses: %w", err)
		}
		for _, address := range local {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				denied = append(denied, prefix.Addr().Unmap())
			}
		}
		return denied, nil
	}
}

// hookKinds are the kinds that hooks need informers of.
func hookKinds(o Options) []client.Object {
	if !o.Hooks.Enabled {
		return nil
	}
	return hook.Kinds()
}

// hookCache keeps only the Jobs of hooks.
func hookCache(o Options, byObject map[client.Object]cache.ByObject) {
	if o.Hooks.Enabled {
		for object, options := range hook.CacheOptions() {
			byObject[object] = options
		}
	}
}
