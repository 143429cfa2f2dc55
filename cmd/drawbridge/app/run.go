// Package app is the manager of cmd/drawbridge: flags and wiring. Tests run it in their
// own process with another clock.
package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/drawbridge-dev/drawbridge/internal/health"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	drawbridgemetrics "github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/internal/version"
)

// startTimeout limits the calls made before the manager starts.
const startTimeout = 30 * time.Second

// Run runs the manager until ctx ends, and then shuts it down: first it becomes unready
// and keeps serving for the shutdown delay, then the controllers stop, the webhook
// finishes the reviews it has begun, and the leader's lease is released. It fails when
// the options are wrong, the API server cannot be reached at the start, an address
// cannot be listened on, the leadership is lost, the API server went back in time
// (rollback.ErrRolledBack), or the shutdown takes too long.
func Run(ctx context.Context, conf *rest.Config, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Registerer == nil {
		o.Registerer = metrics.Registry
	}
	if err := o.Validate(); err != nil {
		return err
	}
	conf = rest.AddUserAgent(rest.CopyConfig(conf), "drawbridge")
	// API priority and fairness limits us better than our own guess, and a drain must
	// not wait in a client's queue while the webhook's deadline runs.
	conf.QPS = -1
	// As kube-scheduler and kube-controller-manager: to unpack the watch of pods was a
	// quarter of what one of their events cost us.
	conf.DisableCompression = true
	conf.Wrap(eventsLastOf(drawbridgemetrics.NewEvents(o.Registerer).Dropped))

	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	clients, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	self, err := whoAmI(starting, clients.AuthenticationV1())
	if err != nil {
		return err
	}
	workloads, err := servesWorkloadRef(clients.Discovery())
	if err != nil {
		return err
	}

	certificate, calls := newServer(o), drawbridgemetrics.NewWebhookServer(o.Registerer)
	shutdown, tlsOptions := &health.Shutdown{}, serveWith(certificate.GetCertificate)
	writes := refused.NewTracker(o.Clock, drawbridgemetrics.NewRefused(o.Registerer), o.Logger.WithName("writes"))
	mgr, err := newManager(conf, o, newWebhookServer(o, calls, shutdown, tlsOptions), tlsOptions, writes)
	if err != nil {
		return err
	}
	caches := &health.Caches{Cache: mgr.GetCache()}
	if err := errors.Join(
		watchAll(starting, mgr.GetCache(), o),
		index.Setup(starting, mgr.GetFieldIndexer()),
		mgr.Add(caches),
		setupCertificates(mgr, o, certificate, clients, self),
		setupLogLevel(mgr, o),
		setup(starting, mgr, o, discovered{
			self: self, workloadRef: workloads, synced: caches.Synced,
			token: certificate.Token, calls: calls, certificate: certificate.GetCertificate, writes: writes,
		}),
		setupSurge(starting, mgr, o, writes),
		setupRollback(mgr, o, clients),
	); err != nil {
		return fmt.Errorf("set up manager: %w", err)
	}

	if err := errors.Join(
		// A process that answers is alive: losing the API server is no reason to
		// restart the manager.
		health.Checks{"ping": healthz.Ping}.Add(mgr.AddHealthzCheck),
		health.Checks{
			"shutdown":    shutdown.Check,
			"caches":      caches.Check,
			"certificate": health.Check(certificate.Ready),
			// In this order: without a certificate, failed handshakes are only noise.
			"webhook": health.InOrder(health.Check(certificate.Ready), mgr.GetWebhookServer().StartedChecker()),
		}.Add(mgr.AddReadyzCheck),
	); err != nil {
		return fmt.Errorf("set up manager: %w", err)
	}
	o.Logger.Info("Starting", "version", version.Get(), "account", self, "namespace", o.Namespace)
	return start(ctx, mgr, shutdown, o.ShutdownDelay)
}

// start runs the manager, and ends it some time after ctx has ended.
func start(ctx context.Context, mgr manager.Manager, shutdown *health.Shutdown, delay time.Duration) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		defer stop()
		select {
		case <-running.Done():
			return
		case <-ctx.Done():
		}
		shutdown.Begin()
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-running.Done():
		}
	}()
	return mgr.Start(ctrl.LoggerInto(running, mgr.GetLogger()))
}
