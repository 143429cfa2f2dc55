package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/vm"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// setupVM adds the interceptors of EvacuationPolicies. It returns the store of the
// policies, which runs on every replica and is used by the webhook and the guard. The
// replica is ready when they are loaded.
func setupVM(mgr ctrl.Manager, o Options, resolver registration.Resolver, writes *refused.Tracker) (*vm.Store, error) {
	dynamicClient, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make dynamic client: %w", err)
	}
	plain, err := rest.UnversionedRESTClientForConfigAndClient(withCodec(mgr.GetConfig()), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make client of subresources: %w", err)
	}
	store := vm.NewStore(vm.StoreOptions{
		Put: func(ctx context.Context, path string, body []byte) error {
			return plain.Put().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		},
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Dynamic: dynamicClient, Mapper: mgr.GetRESTMapper(), Resolver: resolver,
		Clock: o.Clock, Writes: writes, Log: mgr.GetLogger().WithName("evacuation-policies"),
	})
	ready := func(*http.Request) error {
		if !store.Loaded() {
			return vm.ErrNotLoaded
		}
		return nil
	}
	if err := errors.Join(
		store.Setup(mgr, vm.Options{
			Clock: o.Clock, Metrics: metrics.NewVM(o.Registerer), Callers: callersOf(mgr.GetClient(), o.Namespace),
		}),
		mgr.AddReadyzCheck("evacuation-policies", ready),
	); err != nil {
		return nil, fmt.Errorf("set up the evacuation policies: %w", err)
	}
	return store, nil
}

// withCodec returns a copy of a config for a client of any path.
func withCodec(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	return config
}

// preflights returns, by name, the interceptors that may allow or deny before a request
// exists: those of the options first, then those of EvacuationPolicies.
func (o *Options) preflights(ofPolicies func(name string) preflight.Interceptor) func(name string) preflight.Interceptor {
	return func(name string) preflight.Interceptor {
		if preflight := o.Preflights[name]; preflight != nil {
			return preflight
		}
		return ofPolicies(name)
	}
}

// callersOf returns the classes of the legacy callers among a request's requesters,
// from their leases. Other requesters have no class.
func callersOf(cached client.Reader, namespace string) vm.Callers {
	return func(ctx context.Context, request types.NamespacedName) []string {
		er := &v1alpha1.EvictionRequest{}
		if err := cached.Get(ctx, request, er); err != nil {
			return nil
		}
		var classes []string
		for _, r := range er.Spec.Requesters {
			class := "native"
			if r.LeaseName != "" {
				class = string(translate.ClassUnknown)
				lease := &coordinationv1.Lease{}
				if err := cached.Get(ctx, types.NamespacedName{Namespace: namespace, Name: r.LeaseName}, lease); err == nil {
					if record, err := translate.DecodeLease(lease); err == nil {
						class = string(record.Class)
					}
				}
			}
			if !slices.Contains(classes, class) {
				classes = append(classes, class)
			}
		}
		slices.Sort(classes)
		return classes
	}
}
