package app

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/internal/features"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/ownership"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// newServer returns the server of the webhook's certificate. It needs a cache before it
// can start.
func newServer(o Options) *certs.Server {
	return &certs.Server{
		Config: certs.Config{
			Secret:               o.key(o.WebhookCertSecret),
			WebhookConfiguration: o.WebhookConfiguration,
			Paths:                webhook.Paths(),
			DNSNames:             o.dnsNames(),
			External:             o.Operations.CertManagerCertificate != "",
			Settle:               o.Operations.CertificateSettle,
		},
		Clock:   clock.RealClock{},
		Metrics: metrics.NewCertificates(o.Registerer),
	}
}

// setupCertificates adds the runnables that renew the certificate and update the
// webhook configuration. They use the real clock, because API servers do.
func setupCertificates(mgr ctrl.Manager, o Options, server *certs.Server, clients kubernetes.Interface, self string) error {
	server.Cache = mgr.GetCache()
	rotator := &certs.Rotator{Config: server.Config, Client: mgr.GetClient(), Clock: clock.RealClock{}, Replicas: oldReplicas(mgr.GetClient(), o.Namespace, self)}
	errs := []error{mgr.Add(server), rotator.SetupWithManager(mgr)}
	if name := o.Operations.CertManagerCertificate; name != "" {
		errs = append(errs, mgr.Add(&certs.CertManager{
			Reader: mgr.GetAPIReader(), Clock: clock.RealClock{}, Certificate: o.key(name), Metrics: server.Metrics,
		}))
	}
	if o.WebhookConfiguration != "" {
		owner := &ownership.Controller{Client: mgr.GetClient(), Name: o.WebhookConfiguration}
		errs = append(errs, owner.SetupWithManager(mgr))
	}
	if o.WebhookConfiguration != "" && o.Operations.Gates.Enabled(features.ManagedFailurePolicy) {
		policy := &failurepolicy.Controller{
			Client:  mgr.GetClient(),
			Clock:   clock.RealClock{},
			Name:    o.WebhookConfiguration,
			Trusted: server.Ready,
			Prove: func(ctx context.Context) error {
				return failurepolicy.Prove(ctx, clients.PolicyV1(), o.Namespace)
			},
			Metrics: metrics.NewFailurePolicy(o.Registerer),
		}
		errs = append(errs, policy.SetupWithManager(mgr))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set up the webhook's certificate: %w", err)
	}
	return nil
}
