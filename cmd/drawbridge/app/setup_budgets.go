package app

import (
	"fmt"
	"reflect"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/scale"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/evacuation/budget"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

// setupBudgets adds the interceptor of EvictionBudgets, if enabled, and returns what answers the
// evictor about them; nil if not.
func setupBudgets(mgr ctrl.Manager, o Options) (evictor.Exhausted, error) {
	if !o.Budgets.Enabled {
		return nil, nil //nolint:nilnil // Nobody answers.
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make dynamic client: %w", err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make discovery client: %w", err)
	}
	scales, err := scale.NewForConfig(mgr.GetConfig(), mgr.GetRESTMapper(), dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(discoverer))
	if err != nil {
		return nil, fmt.Errorf("make client of scales: %w", err)
	}
	return budget.Add(mgr, budget.Options{
		Clock: o.Clock, Metrics: metrics.NewBudgets(o.Registerer), Scales: scales, Deletes: o.Budgets.Exhausted,
		Watches: waitfor.New(dynamicClient, mgr.GetRESTMapper(), mgr.GetLogger().WithName("budgets"), `by a ClusterRole with the label drawbridge.dev/aggregate-to-budgets: "true"`),
	})
}

// budgetKinds are the kinds that budgets need informers of.
func budgetKinds(o Options) []client.Object {
	if !o.Budgets.Enabled {
		return nil
	}
	return budget.Kinds()
}

// budgetCache adds the options of these informers, but for kinds that have some: each has
// one informer, and what the others keep is enough.
func budgetCache(o Options, byObject map[client.Object]cache.ByObject) {
	if !o.Budgets.Enabled {
		return
	}
	taken := map[reflect.Type]bool{}
	for object := range byObject {
		taken[reflect.TypeOf(object)] = true
	}
	for object, options := range budget.CacheOptions() {
		if !taken[reflect.TypeOf(object)] {
			byObject[object] = options
		}
	}
}
