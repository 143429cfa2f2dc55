package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// Names of the controllers and of their queues.
const (
	loaderName   = "evacuation-policies"
	reporterName = "evacuation-policy-status"
	dispatchName = "evacuation-interceptors"
	migratorName = "evacuation-migrations"
)

// dispatchTimeout limits the reconciliation of one pod, timeout everything else. The
// SDK limits each call of an interceptor within it.
const (
	dispatchTimeout = 2 * time.Minute
	timeout         = time.Minute
)

// Options say how the interceptors run. Clock, Metrics and Callers are required.
type Options struct {
	Clock clock.WithTicker
	// Recorder makes the recorder of an interceptor's events. Default: the manager's.
	Recorder func(name string) eventsclient.EventRecorder
	Metrics  *metrics.VM
	Callers  Callers
	// HeartbeatInterval is the SDK's default if zero.
	HeartbeatInterval time.Duration
	// MaxConcurrent is how many pods are handled at the same time. Default 10.
	MaxConcurrent int
}

// validate fails if something is missing, naming all of it.
func (s *Store) validate(o Options) error {
	return controllers.Require("interceptors of EvacuationPolicies", map[string]bool{
		"StoreOptions.Client": s.Client != nil, "StoreOptions.Live": s.Live != nil, "StoreOptions.Dynamic": s.Dynamic != nil,
		"StoreOptions.Mapper": s.Mapper != nil, "StoreOptions.Resolver": s.Resolver != nil, "StoreOptions.Put": s.Put != nil,
		"StoreOptions.Clock": s.Clock != nil, "Options.Clock": o.Clock != nil, "Options.Metrics": o.Metrics != nil, "Options.Callers": o.Callers != nil,
	})
}

// Setup adds the store to a manager, on every replica, and the controllers, on the
// leader. It fails if something of the store's options or of these is missing.
func (s *Store) Setup(mgr ctrl.Manager, o Options) error {
	if err := s.validate(o); err != nil {
		return err
	}
	if o.Recorder == nil {
		o.Recorder = func(name string) eventsclient.EventRecorder { return mgr.GetEventRecorder(reporterOf(name)) }
	}
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = 10
	}
	report := &reporter{store: s, client: mgr.GetClient(), clock: o.Clock, recorder: o.Recorder(reporterName), metrics: o.Metrics}
	dispatch := &dispatcher{
		store: s, client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: o.Clock,
		recorder: o.Recorder, metrics: o.Metrics, callers: o.Callers, beat: o.HeartbeatInterval,
	}
	migrate := &migrator{
		store: s, client: mgr.GetClient(), clock: o.Clock, recorder: o.Recorder(migratorName), metrics: o.Metrics, callers: o.Callers,
	}
	s.mu.Lock()
	s.wakers = append(s.wakers, dispatch.wake)
	s.policies = append(s.policies, report.wakeAll, migrate.wakeAll, func() {
		if err := dispatch.wakeAll(context.Background()); err != nil {
			s.Log.Info("Looking at all evacuations failed", "reason", err.Error())
		}
	})
	s.changes = append(s.changes, report.wake, migrate.wake)
	s.mu.Unlock()
	return errors.Join(
		s.watchPods(mgr.GetCache()),
		s.setupLoader(mgr, o),
		setupReporter(mgr, report, o),
		setupDispatcher(mgr, dispatch, migrate, o),
		setupMigrator(mgr, migrate, o),
	)
}

// reporterOf cuts a name to what an event may have as its reportingController.
func reporterOf(name string) string {
	const most = 63
	if len(name) > most {
		name = name[:most]
	}
	for name != "" && (name[len(name)-1] == '-' || name[len(name)-1] == '.') {
		name = name[:len(name)-1]
	}
	return name
}

// one is the only request of the loader's queue: all policies are loaded at once.
var one = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// setupLoader keeps the store up to date, on every replica.
func (s *Store) setupLoader(mgr ctrl.Manager, o Options) error {
	process := make(chan context.Context, 1)
	// The informers of the kinds live as long as the process.
	if err := mgr.Add(everywhere(func(ctx context.Context) error {
		process <- ctx
		<-ctx.Done()
		return nil
	})); err != nil {
		return fmt.Errorf("add %s: %w", loaderName, err)
	}
	var lives context.Context
	load := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		if lives == nil {
			select {
			case lives = <-process:
			case <-ctx.Done():
				return reconcile.Result{}, ctx.Err()
			}
		}
		var list v1alpha1.EvacuationPolicyList
		if err := mgr.GetClient().List(ctx, &list); err != nil {
			return reconcile.Result{}, fmt.Errorf("list EvacuationPolicies: %w", err)
		}
		return reconcile.Result{RequeueAfter: s.load(lives, list.Items)}, nil
	})
	var queue controllers.Waker
	s.mu.Lock()
	s.reload = func() { queue.Wake(one.NamespacedName, time.Second) }
	s.mu.Unlock()
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{one} })
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&v1alpha1.EvacuationPolicy{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(func(ctx context.Context, to controllers.Queue) error {
			to.Add(one) // There may be no policy at all, which must be noted as well.
			return queue.Start(ctx, to)
		}))
	return controllers.Complete(b, loaderName, load, controllers.Options{Clock: o.Clock, Timeout: timeout, Limiter: controllers.SlowBackoff(), Everywhere: true})
}

// everywhere runs on every replica.
type everywhere manager.RunnableFunc

var _ manager.LeaderElectionRunnable = everywhere(nil)

func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

func (everywhere) NeedLeaderElection() bool { return false }

func setupReporter(mgr ctrl.Manager, r *reporter, o Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvacuationPolicy{}).
		WatchesRawSource(source.Func(r.queue.Start))
	return controllers.Complete(b, reporterName, r, controllers.Options{Clock: o.Clock, Timeout: timeout, Limiter: controllers.SlowBackoff()})
}

func setupDispatcher(mgr ctrl.Manager, d *dispatcher, m *migrator, o Options) error {
	// When a request changes, there may be room for a migration, or one migration less
	// to create.
	migrations := predicate.NewPredicateFuncs(func(client.Object) bool {
		for _, p := range d.store.all() {
			if p.migration != nil && p.migration.template != nil {
				m.wake(p.name)
			}
		}
		return true
	})
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvictionRequest{}, builder.WithPredicates(interceptor.TurnChanged(), migrations)).
		WatchesRawSource(source.Func(d.queue.Start))
	return controllers.Complete(b, dispatchName, d, controllers.Options{Clock: o.Clock, Timeout: dispatchTimeout, Workers: o.MaxConcurrent, Limiter: controllers.SlowBackoff()})
}

// watchPods forwards events of pods that were asked about; all others cost a map
// lookup. It runs on every replica, because all of them are asked.
func (s *Store) watchPods(cached cache.Informers) error {
	handlers := informers.Handlers(func(pod *corev1.Pod) { s.podChanged(pod, false) }, func(pod *corev1.Pod) { s.podChanged(pod, true) })
	handlers.AddFunc = nil
	_, err := informers.Follow(context.Background(), cached, &corev1.Pod{}, handlers)
	return err
}

func setupMigrator(mgr ctrl.Manager, m *migrator, o Options) error {
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.EvacuationPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(m.queue.Start))
	return controllers.Complete(b, migratorName, m, controllers.Options{Clock: o.Clock, Timeout: timeout, Limiter: controllers.SlowBackoff()})
}

// logger is a logger even if none was given.
func logger(l logr.Logger) logr.Logger {
	if l.GetSink() == nil {
		return logr.Discard()
	}
	return l
}
