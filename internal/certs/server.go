package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// Server serves the certificate of the Secret on every replica. Cache, Clock and Metrics
// are required.
type Server struct {
	Config
	// Cache has nothing but the Secret and the webhook configuration of Config.
	Cache cache.Cache
	// Clock is the one API servers go by.
	Clock   clock.WithTicker
	Metrics *metrics.Certificates

	current atomic.Pointer[tls.Certificate]
	// tokens are the last ones of the Secret.
	tokens atomic.Pointer[tokens]
	// bundle is what callers trust, and since when. One goroutine uses them.
	bundle      []byte
	bundleSince time.Time
}

// GetCertificate is the hook of a tls.Config. It fails, and with it the
// handshake, as long as there is no certificate.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no webhook certificate yet")
}

var _ manager.LeaderElectionRunnable = &Server{}

// NeedLeaderElection is false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start follows the Secret and the webhook configuration until the context ends. If the
// Secret is deleted or damaged, the last certificate is still served.
func (s *Server) Start(ctx context.Context) (err error) {
	err = controllers.Require("server of the certificate", map[string]bool{"Cache": s.Cache != nil, "Clock": s.Clock != nil, "Metrics": s.Metrics != nil})
	if err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithName("certificate")
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	kinds := []client.Object{&corev1.Secret{}}
	if s.WebhookConfiguration != "" {
		kinds = append(kinds, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	}
	for _, kind := range kinds {
		stop, failed := s.watch(ctx, kind, changed)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	timer := s.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C():
		}
		switched, again, err := s.observe(ctx)
		switch {
		case err != nil:
			log.Error(err, "Cannot serve the certificate of the secret")
		case switched:
			log.Info("Serving the certificate of the secret")
		case again > 0:
			log.Info("The certificate of the secret is served when every caller trusts it", "lookAgainIn", again.String())
		}
		if again <= 0 {
			again = checkEvery
		}
		timer.Reset(again)
	}
}

// watch signals every change of the objects of a kind.
func (s *Server) watch(ctx context.Context, kind client.Object, changed chan<- struct{}) (stop func() error, err error) {
	informer, err := s.Cache.GetInformer(ctx, kind)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	wake := func() {
		select {
		case changed <- struct{}{}:
		default: // Told already.
		}
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { wake() },
		UpdateFunc: func(any, any) { wake() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	return func() error {
		if err := informer.RemoveEventHandler(handle); err != nil {
			return fmt.Errorf("stop watching %T: %w", kind, err)
		}
		return nil
	}, nil
}

// observe serves the certificate of the Secret, if it is time. It reports whether it is
// a different one, and when to check again if nothing changes.
func (s *Server) observe(ctx context.Context) (switched bool, again time.Duration, err error) {
	secret := &corev1.Secret{}
	if err := s.Cache.Get(ctx, s.Secret, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return false, 0, nil
		}
		return false, 0, fmt.Errorf("get secret: %w", err)
	}
	s.observeTokens(secret.Data)
	if err := s.observeBundle(ctx); err != nil {
		return false, 0, err
	}
	if len(secret.Data[keyCert]) == 0 {
		// Shipped empty, the rotator fills it.
		return false, 0, nil
	}
	pair, err := tls.X509KeyPair(secret.Data[keyCert], secret.Data[keyCertKey])
	if err != nil {
		return false, 0, fmt.Errorf("read certificate: %w", err)
	}
	in := swapInput{
		Offered: pair.Leaf, Bundle: s.bundle, BundleSince: s.bundleSince,
		DNSNames: s.DNSNames, Now: s.Clock.Now(), Settle: s.settle(),
	}
	if served := s.current.Load(); served != nil {
		in.Served = served.Leaf
	}
	if ca, err := readCertificate(secret.Data[keyCA]); err == nil {
		s.Metrics.Expires(metrics.CertificateAuthority, ca.NotAfter)
	}
	swap, again := decideSwap(in)
	if !swap {
		return false, again, nil
	}
	s.current.Store(&pair)
	s.Metrics.Expires(metrics.CertificateServing, pair.Leaf.NotAfter)
	return true, 0, nil
}

// Errors about the token of a call, for errors.Is.
var (
	// ErrNoToken says that a call has none at all.
	ErrNoToken = errors.New("the call has no token")
	// ErrWrongToken says that it has one that is not, or no longer, ours.
	ErrWrongToken = errors.New("the call has a wrong token")
)

// Token returns nil if a call of a path with this token, empty for none, is from an API
// server. While the Secret has a certificate but no token, it is from an older release
// without tokens: then all calls are accepted.
func (s *Server) Token(path, given string) error {
	switch known := s.tokens.Load(); {
	case known == nil, known.in(path).accepts(given):
		return nil
	case given == "":
		return ErrNoToken
	default:
		return ErrWrongToken
	}
}

// observeTokens notes the valid tokens. If they are removed, the known ones stay valid.
func (s *Server) observeTokens(data map[string][]byte) {
	if read := readTokens(data); read.current != "" {
		s.tokens.Store(&read)
	}
	s.Metrics.TokenRequired(s.Token("", "") != nil)
}

// observeBundle notes the bundle of the webhook for evictions. All webhooks of the
// configuration get the same.
func (s *Server) observeBundle(ctx context.Context) error {
	var bundle []byte
	if s.WebhookConfiguration != "" {
		conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		err := s.Cache.Get(ctx, types.NamespacedName{Name: s.WebhookConfiguration}, conf)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get webhook configuration: %w", err)
		}
		if len(conf.Webhooks) > 0 {
			bundle = conf.Webhooks[0].ClientConfig.CABundle
		}
	}
	if !bytes.Equal(s.bundle, bundle) {
		s.bundle, s.bundleSince = bundle, s.Clock.Now()
	}
	return nil
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
