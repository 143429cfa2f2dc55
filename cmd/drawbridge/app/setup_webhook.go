package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/health"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/pdb/preemption"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// newWebhookServer returns the server of the webhooks.
func newWebhookServer(o Options, measure *metrics.WebhookServer, shutdown *health.Shutdown, tlsOptions func(*tls.Config)) *webhook.Server {
	server := webhook.NewServer(o.WebhookHost, o.WebhookPort)
	server.TLS = func(c *tls.Config) {
		tlsOptions(c)
		if o.WebhookClients.ClientCA != "" {
			c.ClientAuth = tls.RequestClientCert // The authenticator checks it.
		}
	}
	server.Leaving = shutdown.Begun
	server.ShutdownTimeout, server.Dropped, server.Log = o.ShutdownTimeout, measure.Dropped, o.Logger.WithName("webhook")
	return server
}

// setupAuthentication returns the authentication in front of the webhooks, and adds what it
// needs. The replica is ready when it can check client certificates.
func setupAuthentication(mgr ctrl.Manager, o Options, known discovered) (*webhook.Authenticator, error) {
	authn := &webhook.Authenticator{Token: known.token, Metrics: known.calls, Clock: o.Clock, Log: mgr.GetLogger().WithName("webhook")}
	if o.WebhookClients.ClientCA == "" {
		return authn, nil
	}
	certificates := &preemption.Authenticator{
		ClientCA: namespacedName(o.WebhookClients.ClientCA), Users: o.WebhookClients.Users, Cache: mgr.GetCache(),
		Clock: clock.RealClock{}, // Certificates are valid by their issuer's clock.
	}
	authn.Certificate = certificates.Check
	if err := mgr.Add(certificates); err != nil {
		return nil, fmt.Errorf("set up client certificates: %w", err)
	}
	ready := func(*http.Request) error { return certificates.Ready() }
	if err := mgr.AddReadyzCheck("webhook-clients", ready); err != nil {
		return nil, fmt.Errorf("set up client certificates: %w", err)
	}
	return authn, nil
}

// oldReplicas returns a function that finds pods of an older release, which does not
// know tokens and would answer 404 to calls with one: pods with our account in our
// namespace without the chart's annotation.
func oldReplicas(reader client.Reader, namespace, self string) func(context.Context) error {
	account, ok := strings.CutPrefix(self, "system:serviceaccount:"+namespace+":")
	if !ok {
		return nil // If run by hand, there are no other replicas.
	}
	return func(ctx context.Context) error {
		var replicas corev1.PodList
		if err := reader.List(ctx, &replicas, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list the pods of our namespace from cache: %w", err)
		}
		for i := range replicas.Items {
			pod := &replicas.Items[i]
			if pod.Spec.ServiceAccountName == account && !pods.HasEnded(pod) && pod.Annotations[certs.TokenAnnotation] != certs.TokenInPath {
				return fmt.Errorf("pod %s is of an older release", pod.Name)
			}
		}
		return nil
	}
}
