package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Server serves the certificate of the Secret on every replica.
type Server struct {
	Config
	// Cache has nothing but the Secret and the webhook configuration of Config.
	Cache cache.Cache
	// Clock is the one API servers go by.
	Clock clock.PassiveClock

	current atomic.Pointer[tls.Certificate]
}

// GetCertificate is the hook of a tls.Config. It fails, and with it the
// handshake, as long as there is no certificate.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no webhook certificate yet")
}

// NeedLeaderElection is false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start follows the Secret until the context ends. A Secret that is deleted or
// damaged changes nothing here: what was served last is served on.
func (s *Server) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("certificate")
	informer, err := s.Cache.GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watch secret: %w", err)
	}
	load := func(obj any) {
		secret, ok := obj.(*corev1.Secret)
		if !ok || secret.Namespace != s.Secret.Namespace || secret.Name != s.Secret.Name {
			return
		}
		switch changed, err := s.load(secret); {
		case err != nil:
			log.Error(err, "Cannot serve the certificate of the secret")
		case changed:
			log.Info("Serving the certificate of the secret")
		}
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    load,
		UpdateFunc: func(_, obj any) { load(obj) },
	})
	if err != nil {
		return fmt.Errorf("watch secret: %w", err)
	}
	<-ctx.Done()
	if err := informer.RemoveEventHandler(handle); err != nil {
		return fmt.Errorf("stop watching secret: %w", err)
	}
	return nil
}

// load swaps the certificate and reports whether it is another one.
func (s *Server) load(secret *corev1.Secret) (bool, error) {
	if len(secret.Data[keyCert]) == 0 {
		// Shipped empty, the rotator fills it.
		return false, nil
	}
	pair, err := tls.X509KeyPair(secret.Data[keyCert], secret.Data[keyCertKey])
	if err != nil {
		return false, fmt.Errorf("read certificate: %w", err)
	}
	before := s.current.Swap(&pair)
	return before == nil || !before.Leaf.Equal(pair.Leaf), nil
}

// Ready returns nil when a call through the webhook configuration would trust
// the certificate we serve, and otherwise says what is missing.
func (s *Server) Ready(ctx context.Context) error {
	current := s.current.Load()
	if current == nil {
		return errors.New("there is no webhook certificate yet")
	}
	if s.WebhookConfiguration == "" {
		return nil
	}
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := s.Cache.Get(ctx, types.NamespacedName{Name: s.WebhookConfiguration}, conf); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return fmt.Errorf("there is no ValidatingWebhookConfiguration %q", s.WebhookConfiguration)
		}
		return fmt.Errorf("get webhook configuration: %w", err)
	}
	for i := range conf.Webhooks {
		if err := verify(current.Leaf, conf.Webhooks[i].ClientConfig.CABundle, s.DNSNames, s.Clock.Now()); err != nil {
			return fmt.Errorf("webhook %s would not trust our certificate: %w", conf.Webhooks[i].Name, err)
		}
	}
	return nil
}
