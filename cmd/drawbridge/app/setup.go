package app

import (
	"context"
	"crypto/tls"
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor"
	"github.com/drawbridge-dev/drawbridge/evacuation/lease"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/request"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// recorderName is the reportingController of our events.
const recorderName = events.Reporter

// discovered is what was found out before the manager was created.
type discovered struct {
	// self is our own user name.
	self string
	// workloadRef: the API server is of the one version with spec.workloadRef.
	workloadRef bool
	// synced reports whether the caches are in sync.
	synced func() bool
	// token checks that a call comes from an API server, and calls counts calls.
	token func(path, token string) error
	calls *metrics.WebhookServer
	// certificate is the one to serve.
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// writes tracks the writes that are refused.
	writes *refused.Tracker
}

// setup wires the parts of Drawbridge into the manager: engine, evictor and
// leases on the leader, webhooks and the renewal of leases on every replica.
func setup(ctx context.Context, mgr ctrl.Manager, o Options, known discovered) error {
	view, inCharge, err := newNative(mgr, o, known)
	if err != nil {
		return err
	}
	resolver, err := setupRegistry(mgr, o, known.self, view)
	if err != nil {
		return err
	}
	policies, err := setupVM(mgr, o, resolver, known.writes)
	if err != nil {
		return err
	}
	gate, err := o.Guard.gate(policies)
	if err != nil {
		return err
	}
	leaseIndex, err := webhook.NewLeaseIndex(context.Background(), mgr.GetCache())
	if err != nil {
		return err
	}
	cached := known.synced
	known.synced = func() bool {
		return cached() && resolver.Synced() && policies.Loaded() && leaseIndex.Synced()
	}
	recorder := mgr.GetEventRecorder(recorderName)
	requestMetrics := metrics.NewRequests(o.Registerer, o.MetricsPerRequest)

	engine := &request.Reconciler{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Clock:     o.Clock,
		Policy:    o.Policy,
		Retention: o.Retention,
		Resolver:  resolver,
		Planned:   registration.PlannedOf(resolver),
		ResolveLive: func(ctx context.Context, pod *corev1.Pod) ([]string, func(string) v1alpha1.Interceptor, error) {
			names, live, err := resolver.ResolveLive(ctx, mgr.GetAPIReader(), pod)
			if err != nil {
				return nil, nil, err
			}
			return names, registration.PlannedOf(live), nil
		},
		Recorder: recorder,
		Metrics:  requestMetrics,
	}
	if engine.Deadlines, err = newDeadlines(mgr, o); err != nil {
		return err
	}
	if known.workloadRef {
		engine.WorkloadRef = request.LiveWorkloadRef(mgr.GetAPIReader())
	}

	evictPolicy := evictor.DefaultPolicy()
	evictPolicy.BackoffMin, evictPolicy.BackoffMax = o.EvictionBackoffMin, o.EvictionBackoffMax
	exhausted, err := setupBudgets(mgr, o)
	if err != nil {
		return err
	}
	evictor := &evictor.Reconciler{
		Native:    view,
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Clock:     o.Clock,
		Policy:    evictPolicy,
		Recorder:  recorder,
		Metrics:   metrics.NewEvictor(o.Registerer),
		Failures:  requestMetrics,
		Synced:    known.synced,
		Guarded:   gate.Blocks,
		Exhausted: exhausted,
	}

	leases := &lease.Reconciler{
		Client:    mgr.GetClient(),
		APIReader: mgr.GetAPIReader(),
		Clock:     o.Clock,
		Policy:    lease.Policy{Debounce: o.MarkerDebounce, StartupGrace: o.Policy.StartupGrace, MarkerLimit: o.MarkerLimit},
		Recorder:  recorder,
		Namespace: o.Namespace,
	}

	log := mgr.GetLogger().WithName("webhook")
	answers := webhookConfig(o, known)
	answers.Preflights = o.preflights(policies.Preflight)
	answers.Stalled = policies.Stalled
	// The cache itself: a client would look up the kind of each object once more.
	answers.Cached, answers.Live, answers.Writer = mgr.GetCache(), mgr.GetAPIReader(), mgr.GetClient()
	answers.Leases = leaseIndex
	answers.Resolver, answers.Registrations = resolver, resolver
	answers.Gate = gate
	answers.Native = nativeTurn(view)
	answers.Recorder, answers.Metrics, answers.Log = recorder, metrics.NewWebhook(o.Registerer), log
	evictions, renewer, err := webhook.NewEvictionHandler(answers)
	if err != nil {
		return err
	}
	if err := followPods(ctx, mgr, evictions); err != nil {
		return err
	}
	authn, err := setupAuthentication(mgr, o, known)
	if err != nil {
		return err
	}
	bodies := &webhook.BodyLimit{Metrics: known.calls, Log: log}
	status := &webhook.StatusHandler{
		Registrations: resolver,
		Skippers:      webhook.ReviewedSkippers{Writer: mgr.GetClient()},
		OwnUsername:   known.self,
		Clock:         o.Clock,
		ClockSkew:     o.Policy.ClockSkew,
		Log:           log,
	}

	return errors.Join(
		webhook.Register(mgr.GetWebhookServer(), authn, bodies, evictions, status, &webhook.ProbeHandler{Log: log}),
		engine.SetupWithManager(mgr),
		evictor.SetupWithManager(mgr),
		leases.SetupWithManager(mgr),
		setupPresets(mgr, o),
		setupOrder(mgr, o, resolver),
		setupGuard(mgr, o, known, resolver, policies, view),
		setupDescheduler(mgr, o, known, resolver),
		setupDeletionCost(mgr, o),
		setupMaintenance(mgr, o, known, resolver),
		setupTaints(mgr, o, known, resolver),
		setupNative(mgr, o, known, view, inCharge, resolver),
		setupPreemption(ctx, mgr, o, authn, bodies, known.certificate),
		mgr.Add(renewer),
	)
}

// followPods lets the webhook count the results of its answers.
func followPods(ctx context.Context, mgr ctrl.Manager, evictions *webhook.EvictionHandler) error {
	_, err := informers.Follow(ctx, mgr.GetCache(), &corev1.Pod{}, evictions.Bypassed())
	return err
}

// webhookConfig derives the configuration of the eviction webhook from options and
// account.
func webhookConfig(o Options, known discovered) webhook.Config {
	silence, _ := o.callerSilence() // Validated before.
	return webhook.Config{
		Synced:             known.synced,
		AllowedReserved:    o.AllowedReservedNames,
		Clock:              o.Clock,
		Namespace:          o.Namespace,
		OwnUsername:        known.self,
		GroupsHidden:       known.workloadRef,
		Replacement:        webhook.ReplacementMode(o.ReplacementGuard),
		ReplacementWindow:  o.ReplacementWindow,
		Silence:            silence,
		MarkerLimit:        o.MarkerLimit,
		NewRequestsPerNode: o.NewRequestsPerNode,
		LimitedClasses:     o.limitedClasses(),
	}
}
