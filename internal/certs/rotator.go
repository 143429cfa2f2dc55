package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/ownership"
)

// controllerName of the rotator.
const controllerName = "webhook-certificate"

// Config names the objects this package works on.
type Config struct {
	// Secret holds authority, certificate and keys.
	Secret types.NamespacedName
	// WebhookConfiguration is the name of the ValidatingWebhookConfiguration whose
	// webhooks get the bundle. If empty, there is none.
	WebhookConfiguration string
	// Paths are the paths of the webhooks by their names, for a configuration that has a
	// Service without a path.
	Paths map[string]string
	// DNSNames are all names under which the webhook is called, at least one.
	DNSNames []string
	// External: another component, such as cert-manager, fills the Secret. Then nothing is
	// issued, and the Secret is only read: tls.crt, tls.key, and ca.crt, which callers
	// will trust.
	External bool
	// Settle is how long a new authority is announced before a certificate of it is
	// served: every API server has its own watch on the webhook configuration.
	// Default: DefaultSettle.
	Settle time.Duration
}

// TokenAnnotation with the value TokenInPath is on webhook configurations whose paths may
// have the token, and on pods whose manager supports it. Those of older releases lack it.
const (
	TokenAnnotation = "drawbridge.dev/webhook-token" //nolint:gosec // The name of an annotation, no credential.
	TokenInPath     = "path"
)

// Somebody else who writes the bundle, such as cert-manager's injector, answers each write
// with one of its own. So after the first ones there is a pause before each.
const (
	writesAtOnce  = 2
	betweenWrites = time.Second
)

// DefaultSettle is the default of Config.Settle.
const DefaultSettle = time.Minute

func (c *Config) settle() time.Duration {
	if c.Settle > 0 {
		return c.Settle
	}
	return DefaultSettle
}

// pause is shorter than the time in which replicas still serve a certificate that callers
// trust.
func (c *Config) pause() time.Duration { return min(betweenWrites, c.settle()/2) }

// ValidateDNSNames returns an error unless a certificate can be issued for all of
// the names. Addresses cannot: cert-controller issues names only.
func ValidateDNSNames(names []string) error {
	if len(names) == 0 {
		return errors.New("the webhook certificate needs a DNS name")
	}
	for _, name := range names {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || net.ParseIP(name) != nil {
			return fmt.Errorf("%q is not a DNS name for the webhook certificate", name)
		}
	}
	return nil
}

// Rotator creates and renews the certificate and injects the authority. It runs
// on the leader only.
//
// Permissions: get, list, watch and update of the Secret and of the webhook
// configuration, both by name; create secrets in the Secret's namespace, unless
// it is shipped empty.
type Rotator struct {
	Config
	// Client reads from a cache that has nothing but the two objects.
	Client client.Client
	// Clock is the clock of API servers, also in tests: they check certificates against
	// their own.
	Clock clock.PassiveClock
	// Replicas returns an error as long as a replica runs that does not know of tokens,
	// and would answer that there is no such path. It is nil for a manager that is run by
	// hand: then there are no others.
	Replicas func(ctx context.Context) error

	// injectedAt is when we last found the bundle missing. There is one worker.
	injectedAt time.Time
	// limiter of our writes to the webhook configuration; made by the first.
	limiter *rate.Limiter
	// tokenSince is since when the configuration has tokenSeen and no other.
	tokenSince time.Time
	tokenSeen  string
}

var _ reconcile.Reconciler = &Rotator{}

// SetupWithManager adds the rotator to the manager.
func (r *Rotator) SetupWithManager(mgr ctrl.Manager) error {
	if err := ValidateDNSNames(r.DNSNames); err != nil {
		return err
	}
	// All events have the same key.
	key := reconcile.Request{NamespacedName: r.Secret}
	toKey := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{key}
	})
	b := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		Watches(&corev1.Secret{}, toKey).
		// Neither object has to exist at the start.
		WatchesRawSource(source.Func(func(_ context.Context, q controllers.Queue) error {
			q.Add(key)
			return nil
		}))
	if r.WebhookConfiguration != "" {
		b = b.Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, toKey)
	}
	return b.Complete(controllers.Patient(r.Clock, r))
}

// Reconcile synchronizes the Secret and the webhook configuration.
func (r *Rotator) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := r.Client.Get(ctx, r.Secret, secret); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get secret: %w", err)
	}
	conf, err := r.configuration(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Clock.Now()
	if r.External {
		if len(secret.Data[keyCert]) == 0 {
			return reconcile.Result{RequeueAfter: checkEvery}, nil // Another component fills it, which is an event.
		}
		return r.announce(ctx, secret, conf, now, now.Add(checkEvery))
	}
	p := decide(secret.Data, r.DNSNames, now, r.settle())
	if p.action != keep && !p.afterInjection {
		// The write's own event brings us back to inject.
		return reconcile.Result{}, r.write(ctx, secret, conf, p, now)
	}
	result, err := r.announce(ctx, secret, conf, now, p.next)
	if err != nil || p.action == keep {
		return result, err
	}
	// The leader may have been away when the new authority was to be announced.
	if wait := r.injectedAt.Add(r.settle()).Sub(now); wait > 0 {
		if result.RequeueAfter > 0 { // The announcement may have been put off.
			wait = min(wait, result.RequeueAfter)
		}
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, r.write(ctx, secret, conf, p, now)
}

// configuration is the webhook configuration; nil if there is none.
func (r *Rotator) configuration(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	if r.WebhookConfiguration == "" {
		return nil, nil
	}
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	switch err := r.Client.Get(ctx, types.NamespacedName{Name: r.WebhookConfiguration}, conf); {
	case apierrors.IsNotFound(err):
		return nil, nil // Then we are not called, and its creation is an event.
	case err != nil:
		return nil, fmt.Errorf("get webhook configuration: %w", err)
	}
	return conf, nil
}

// announce synchronizes the token of the Secret and the webhook configuration. The result
// is when to check again, at next at the latest.
func (r *Rotator) announce(ctx context.Context, secret *corev1.Secret, conf *admissionregistrationv1.ValidatingWebhookConfiguration, now, next time.Time) (reconcile.Result, error) {
	plan := r.planToken(ctx, secret.Data, conf, now)
	if plan.Make || plan.Drop {
		return reconcile.Result{}, r.store(ctx, secret, carryToken(plan, secret.Data, now))
	}
	switch done, err := r.inject(ctx, secret.Data, conf, plan.Put, now); {
	case err != nil:
		return reconcile.Result{}, err
	case !done:
		return reconcile.Result{RequeueAfter: r.pause()}, nil
	}
	if !plan.Again.IsZero() && plan.Again.Before(next) {
		next = plan.Again
	}
	return reconcile.Result{RequeueAfter: untilNext(now, next, secret.Data)}, nil
}

// untilNext is the time until the next check, or until the previous authorities are
// removed if that is sooner.
func untilNext(now, next time.Time, data map[string][]byte) time.Duration {
	if end := overlapEnd(data); now.Before(end) && end.Before(next) {
		next = end
	}
	return max(next.Sub(now), time.Second)
}

// write applies the plan to the Secret, which gets a token with its first certificate.
func (r *Rotator) write(ctx context.Context, secret *corev1.Secret, conf *admissionregistrationv1.ValidatingWebhookConfiguration, p plan, now time.Time) error {
	data, err := carry(p.action, secret.Data, r.DNSNames, now)
	if err != nil {
		return err
	}
	if plan := r.planToken(ctx, data, conf, now); plan.Make {
		data = carryToken(plan, data, now)
	}
	ctrl.LoggerFrom(ctx).Info("Writing webhook certificate", "action", p.action.String(), "reason", p.reason)
	return r.store(ctx, secret, data)
}

// store writes the data of the Secret. A conflict is no error: the other write's event
// enqueues us again.
func (r *Rotator) store(ctx context.Context, secret *corev1.Secret, data map[string][]byte) (err error) {
	if secret.ResourceVersion == "" {
		err = r.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: r.Secret.Namespace,
				Name:      r.Secret.Name,
				Labels:    map[string]string{"app.kubernetes.io/name": "drawbridge"},
			},
			Data: data,
		})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
	} else {
		secret = secret.DeepCopy()
		secret.Data = data
		err = r.Client.Update(ctx, secret)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	return nil
}

// inject puts the authorities, and the token if it is time, into every webhook of the
// configuration, in one write, so that callers that trust us also authenticate. A conflict
// is no error: the other write's event enqueues us again. It is put off, and not done, if it is
// too soon after other writes.
func (r *Rotator) inject(ctx context.Context, data map[string][]byte, conf *admissionregistrationv1.ValidatingWebhookConfiguration, token bool, now time.Time) (done bool, err error) {
	if conf == nil || len(caBundle(data)) == 0 {
		return true, nil
	}
	conf = conf.DeepCopy()
	changed := false
	for i := range conf.Webhooks {
		c := &conf.Webhooks[i].ClientConfig
		if bundle := mergeBundle(c.CABundle, data, now); !bytes.Equal(c.CABundle, bundle) {
			c.CABundle = bundle
			r.injectedAt, changed = now, true
		}
		if path, ok := r.pathOf(&conf.Webhooks[i]); token && ok {
			base, present := splitToken(path)
			if wanted := readTokens(data).in(base).current; present != wanted {
				setPath(&conf.Webhooks[i], strings.TrimSuffix(base, "/")+"/"+wanted)
				changed = true
			}
		}
	}
	if !changed {
		return true, nil
	}
	if r.limiter == nil {
		r.limiter = rate.NewLimiter(rate.Every(r.pause()), writesAtOnce)
	}
	if !r.limiter.AllowN(now, 1) {
		return false, nil
	}
	if err := r.Client.Update(ctx, conf, client.FieldOwner(ownership.FieldManager)); err != nil && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("inject authority and token into webhook configuration: %w", err)
	}
	return true, nil
}
