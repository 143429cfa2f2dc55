package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/pdb/preemption"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// PreemptionOptions configure budgets that the scheduler may not violate.
type PreemptionOptions struct {
	// Enabled: without it none of this runs.
	Enabled bool
	// Host is the address the scheduler extender listens on; all addresses when empty.
	Host string
	// Port is its port, 1 to 65535, not the webhook's.
	Port int
	// ClientCA is the ConfigMap, namespace/name, with the authorities of client
	// certificates; empty to accept none.
	ClientCA string
	// Users are the names that client certificates may have.
	Users []string
	// TokenFile has a token that is also accepted; empty for none.
	TokenFile string
	// Timeout is how long an answer may take.
	Timeout time.Duration
	// Stamped: the API server copies the value of the class to pods.
	Stamped bool
	// GuardDeletes remembers decisions and serves the webhook for deletions.
	GuardDeletes bool
}

// defaultPreemptionOptions are the flags' defaults.
func defaultPreemptionOptions() PreemptionOptions {
	return PreemptionOptions{
		Host: "127.0.0.1", Port: 9444,
		ClientCA: "kube-system/extension-apiserver-authentication", Users: []string{"system:kube-scheduler"},
		Timeout: 4 * time.Second,
	}
}

// addFlags adds the flags to fs. Their defaults are the current values.
func (p *PreemptionOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&p.Enabled, "preemption", p.Enabled, "Serve a scheduler extender that keeps preemptors of a low priority from violating the budgets of some PriorityClasses.")
	fs.StringVar(&p.Host, "preemption-host", p.Host, "Address that the scheduler extender listens on; all addresses when empty.")
	fs.IntVar(&p.Port, "preemption-port", p.Port, "Port that the scheduler extender listens on.")
	fs.StringVar(&p.ClientCA, "preemption-client-ca", p.ClientCA, "ConfigMap, namespace/name, whose key client-ca-file has the authorities of the scheduler's client certificate; empty to accept none.")
	fs.StringSliceVar(&p.Users, "preemption-user", p.Users, "Name that the scheduler's client certificate may have; may be repeated.")
	fs.StringVar(&p.TokenFile, "preemption-token-file", p.TokenFile, "File with a token that the scheduler may send as the password in its urlPrefix; empty for none.")
	fs.DurationVar(&p.Timeout, "preemption-timeout", p.Timeout, "How long an answer to the scheduler may take; shorter than the scheduler's httpTimeout.")
	fs.BoolVar(&p.Stamped, "preemption-stamped", p.Stamped, "Use the annotation that the chart's MutatingAdmissionPolicy wrote to the pod at creation, not the pod's current PriorityClass.")
	fs.BoolVar(&p.GuardDeletes, "preemption-guard-deletes", p.GuardDeletes, "Refuse deletions by the scheduler if a budget has changed since the decision. Needs the chart's webhook for deletions.")
}

// validate calls check for everything that must hold.
func (p *PreemptionOptions) validate(webhookPort int, check func(ok bool, format string, args ...any)) {
	check(p.Port >= 1 && p.Port <= 65535, "--preemption-port must be between 1 and 65535, not %d", p.Port)
	check(!p.Enabled || p.Port != webhookPort, "--preemption-port must not be --webhook-port (%d)", webhookPort)
	check(p.Timeout > 0, "--preemption-timeout must be positive, not %s", p.Timeout)
	check(!p.Enabled || p.ClientCA != "" || p.TokenFile != "", "--preemption needs --preemption-client-ca or --preemption-token-file: without, the scheduler could not be told from anybody else")
	check(!p.GuardDeletes || p.Enabled, "--preemption-guard-deletes needs --preemption")
	if p.ClientCA != "" {
		name := p.clientCA()
		check(len(validation.IsDNS1123Label(name.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(name.Name)) == 0,
			"--preemption-client-ca: %q is not the namespace/name of a ConfigMap", p.ClientCA)
		check(len(p.Users) > 0, "--preemption-user: client certificates are accepted, but in nobody's name")
	}
	for _, user := range p.Users {
		check(user != "", "--preemption-user: a name is empty")
	}
}

// clientCA is the name of the ConfigMap; the namespace is empty if there is none in
// it.
func (p *PreemptionOptions) clientCA() types.NamespacedName {
	return namespacedName(p.ClientCA)
}

// preemptionCache adds what preemption needs to the options of the informers.
func preemptionCache(o Options, byObject map[client.Object]cache.ByObject) {
	if !o.Preemption.Enabled {
		return
	}
	byObject[&schedulingv1.PriorityClass{}] = cache.ByObject{Transform: cache.TransformStripManagedFields()}
}

// preemptionKinds are the kinds that need informers.
func preemptionKinds(o Options) []client.Object {
	if !o.Preemption.Enabled {
		return nil
	}
	return []client.Object{&schedulingv1.PriorityClass{}}
}

// setupPreemption adds the scheduler extender and the webhook for deletions by the
// scheduler, if enabled. The replica is ready when it can answer the scheduler.
func setupPreemption(ctx context.Context, mgr ctrl.Manager, o Options, authn *webhook.Authenticator, bodies *webhook.BodyLimit, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	p := o.Preemption
	if !p.Enabled {
		return nil
	}
	log := mgr.GetLogger().WithName("preemption")
	measure := metrics.NewPreemption(o.Registerer)
	view := preemption.NewView(p.Stamped, o.Clock, log)
	authenticator := &preemption.Authenticator{
		ClientCA: p.clientCA(), Users: p.Users, TokenFile: p.TokenFile, Cache: mgr.GetCache(),
		Clock: clock.RealClock{}, // Certificates are valid by their issuer's clock.
	}
	handler := &preemption.Handler{
		View: view, Synced: view.Synced, Authenticate: authenticator.Check,
		Alternatives: preemption.NewAlternatives(view, mgr.GetAPIReader(), o.Clock, log),
		Emitter:      preemption.NewEmitter(mgr.GetEventRecorder(recorderName), o.Clock),
		Metrics:      measure, Clock: o.Clock, Log: log, Timeout: p.Timeout,
	}
	if p.GuardDeletes {
		handler.Recent = preemption.NewRecentDecisions(o.Clock)
		deletes := &webhook.PodDeleteHandler{
			Deletions: &preemption.Deletes{View: view, Recent: handler.Recent, Live: mgr.GetAPIReader()},
			Metrics:   measure, Log: log,
		}
		if err := webhook.RegisterPodDeletes(mgr.GetWebhookServer(), authn, bodies, deletes); err != nil {
			return fmt.Errorf("set up the scheduler extender: %w", err)
		}
	}
	server := &preemption.Server{
		Address: net.JoinHostPort(p.Host, strconv.Itoa(p.Port)), Handler: handler,
		GetCertificate: certificate, ShutdownTimeout: o.ShutdownTimeout,
	}
	ready := func(*http.Request) error {
		if !view.Synced() {
			return preemption.ErrNotSynced
		}
		return authenticator.Ready()
	}
	if err := errors.Join(
		view.Setup(ctx, mgr.GetCache()),
		mgr.Add(authenticator),
		mgr.Add(server),
		mgr.AddReadyzCheck("preemption", ready),
	); err != nil {
		return fmt.Errorf("set up the scheduler extender: %w", err)
	}
	return nil
}
