package interceptor

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
)

const (
	// nativeCheck is how often it is found out whether the native API is served.
	nativeCheck = 30 * time.Second
	// discoveryTimeout limits one of these questions.
	discoveryTimeout = 10 * time.Second
)

// nativeRunner runs the controller of a responder while the native API is served. It may
// come and go: a feature gate of the API server switches it.
type nativeRunner struct {
	key    string
	clock  clock.WithTicker
	log    logr.Logger
	served func(context.Context) (bool, error)
	// run runs the controller until the context ends.
	run func(context.Context) error
	// forget is called when the API is no longer served.
	forget func(context.Context)
}

var (
	_ manager.Runnable               = &nativeRunner{}
	_ manager.LeaderElectionRunnable = &nativeRunner{}
)

func addNative(mgr ctrl.Manager, api *native, r *reconciler) error {
	if !mgr.GetScheme().Recognizes(api.kind()) {
		return fmt.Errorf("interceptor %q: the manager's scheme does not have k8s.io/api/%s (see its AddToScheme), which a NativeKey needs", api.key, "lifecycle/v1alpha1")
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("interceptor %q: set up the discovery of the native API: %w", api.key, err)
	}
	c := &nativeController{mgr: mgr, api: api, r: r}
	return mgr.Add(&nativeRunner{
		key: api.key, clock: r.Clock, log: mgr.GetLogger().WithValues("responder", api.key), run: c.run, forget: c.forget,
		served: func(ctx context.Context) (bool, error) { return isServed(ctx, d) },
	})
}

// isServed asks the API server itself, as the mapper of the manager remembers what it had.
func isServed(ctx context.Context, d *discovery.DiscoveryClient) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	found, err := d.ServerResourcesForGroupVersionWithContext(ctx, lifecyclev1alpha1.SchemeGroupVersion.String())
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether %s is served: %w", lifecyclev1alpha1.SchemeGroupVersion, err)
	}
	for i := range found.APIResources {
		if found.APIResources[i].Name == "evictions/status" {
			return true, nil
		}
	}
	return false, nil
}

// NeedLeaderElection makes it run on the leader only.
func (*nativeRunner) NeedLeaderElection() bool { return true }

// Start runs until the context ends. That the API is not served is no error, and neither is
// an API server that is away.
func (n *nativeRunner) Start(ctx context.Context) error {
	ticks := n.clock.NewTicker(nativeCheck)
	defer ticks.Stop()
	var stay *stay // nil while it does not run.
	defer func() { stay.end() }()
	for {
		served, err := n.served(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.log.V(1).Info("It is unknown whether the native API is served", "reason", err.Error())
		case served && stay.over():
			n.log.Info("The native API is served, taking part in its evictions")
			stay = n.begin(ctx)
		case !served && stay != nil:
			n.log.Info("The native API is not served any more")
			stay.end()
			stay = nil
			n.forget(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C():
		}
	}
}

// stay is one run of the controller.
type stay struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// begin runs it. It may end by itself: most likely, permissions are missing.
func (n *nativeRunner) begin(ctx context.Context) *stay {
	ctx, cancel := context.WithCancel(ctx)
	s := &stay{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(s.ended)
		if err := n.run(ctx); err != nil && ctx.Err() == nil {
			n.log.Info("Taking part in native evictions failed, trying again", "error", err.Error())
		}
	}()
	return s
}

// end ends it and waits for that.
func (s *stay) end() {
	if s != nil {
		s.cancel()
		<-s.ended
	}
}

// over reports whether it does not run.
func (s *stay) over() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// nativeController makes a controller of a responder, again and again.
type nativeController struct {
	mgr ctrl.Manager
	api *native
	r   *reconciler
	// again: the name of the controller is used already.
	again bool
}

// run runs it, until the context ends or its cache does not get ready.
func (n *nativeController) run(ctx context.Context) error {
	options := controllerOf(n.r.Options).Controller()
	options.Reconciler = controllers.Patient(n.r.Clock, n.r)
	options.DefaultFromConfig(n.mgr.GetControllerOptions())
	if n.again {
		options.SkipNameValidation = new(true)
	}
	c, err := controller.NewUnmanaged(n.api.key, options)
	if err != nil {
		return err
	}
	n.again = true
	n.api.reset()
	sources := []source.Source{
		source.Kind(n.mgr.GetCache(), client.Object(&lifecyclev1alpha1.Eviction{}), n.r.requestEvents()),
		// What was begun before, and whose Eviction may have gone in the meantime.
		source.Func(func(_ context.Context, queue controllers.Queue) error {
			for _, key := range n.r.states.keys() {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
			return nil
		}),
	}
	for _, w := range n.r.Watches {
		sources = append(sources, source.Kind(n.mgr.GetCache(), w.Object, handler.EnqueueRequestsFromMapFunc(w.enqueue), w.Predicates...))
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return err
		}
	}
	return c.Start(ctx)
}

// forget stops the watch of an API that is no longer served, which would try for ever.
func (n *nativeController) forget(ctx context.Context) {
	if err := n.mgr.GetCache().RemoveInformer(ctx, &lifecyclev1alpha1.Eviction{}); err != nil {
		log.FromContext(ctx).V(1).Info("The watch of the native API is not removed", "reason", err.Error())
	}
}
