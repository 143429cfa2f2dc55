package certs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var config = Config{
	Secret:               types.NamespacedName{Namespace: "drawbridge-system", Name: "drawbridge-webhook-cert"},
	WebhookConfiguration: "drawbridge",
	Paths:                map[string]string{"a.drawbridge.dev": "/validate-eviction"},
	DNSNames:             names,
}

func webhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "drawbridge"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a.drawbridge.dev"}, {Name: "b.drawbridge.dev"}},
	}
}

// rig is a rotator over a fake client that counts writes.
type rig struct {
	*Rotator
	clock  *testingclock.FakeClock
	writes int
}

func newRig(objs ...client.Object) *rig {
	r := &rig{clock: testingclock.NewFakeClock(start)}
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objs...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			r.writes++
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			r.writes++
			return c.Update(ctx, obj, opts...)
		},
	}).Build()
	r.Rotator = &Rotator{Config: config, Client: c, Clock: r.clock}
	return r
}

// settles reconciles until nothing is written any more, pauses included, and returns the result.
func (r *rig) settles(t *testing.T) reconcile.Result {
	t.Helper()
	for range 10 {
		before := r.writes
		res, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if r.writes == before && (res.RequeueAfter != r.pause() || r.limiter.TokensAt(r.clock.Now()) >= 1) {
			return res
		}
		if r.writes == before {
			r.clock.Step(r.pause())
		}
	}
	t.Fatal("still writing after ten rounds")
	return reconcile.Result{}
}

func (r *rig) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := r.Client.Get(t.Context(), config.Secret, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestRotator(t *testing.T) {
	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.Secret.Namespace, Name: config.Secret.Name}}
	cases := map[string]struct {
		objs       []client.Object
		wantWrites int
		wantReady  string
	}{
		"creates the secret and injects":            {objs: []client.Object{webhooks()}, wantWrites: 2},
		"fills a secret that was shipped empty":     {objs: []client.Object{webhooks(), empty}, wantWrites: 2},
		"waits for a missing webhook configuration": {wantWrites: 1, wantReady: `there is no ValidatingWebhookConfiguration "drawbridge"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(tc.objs...)
			// It looks again when the authorities of before are not needed any more.
			if diff := cmp.Diff(reconcile.Result{RequeueAfter: overlap - backdate}, r.settles(t)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if r.writes != tc.wantWrites {
				t.Errorf("%d writes, want %d", r.writes, tc.wantWrites)
			}
			s := r.server()
			if _, _, err := s.observe(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := s.Ready(t.Context()); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantReady, got); diff != "" {
				t.Errorf("readiness (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRotatorInjectsAgainWhenTheBundleWasLost(t *testing.T) {
	r := newRig(webhooks())
	r.settles(t)
	conf := webhooks()
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(conf), conf); err != nil {
		t.Fatal(err)
	}
	conf.Webhooks[1].ClientConfig.CABundle = nil
	if err := r.Client.Update(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	s := r.server()
	if _, _, err := s.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "webhook b.drawbridge.dev would not trust our certificate") {
		t.Errorf("readiness says %v before the repair", err)
	}
	r.settles(t)
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("readiness says %v after the repair", err)
	}
}

// unannounced is near the authority's end, when both it and the certificate are renewed: the
// new authority is written, and then nobody was there for an hour.
func unannounced(t *testing.T) *rig {
	t.Helper()
	r := newRig(webhooks())
	r.settles(t)
	r.clock.SetTime(start.Add(caValidity - renewBefore))
	for len(r.secret(t).Data[keyPreviousCA]) == 0 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	return r
}

// TestANewAuthorityIsAnnouncedBeforeItIsUsed: a certificate of an authority that
// an API server has not been told of fails every call.
func TestANewAuthorityIsAnnouncedBeforeItIsUsed(t *testing.T) {
	r := unannounced(t)
	before := r.secret(t).Data[keyCert]

	working := r.Client
	r.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if _, ok := obj.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok {
				return apierrors.NewConflict(admissionregistrationv1.Resource("validatingwebhookconfigurations"), obj.GetName(), errors.New("changed"))
			}
			return c.Update(ctx, obj, opts...)
		},
	})
	for _, at := range []string{"the injection lost a race", "it was announced just now"} {
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reconcile.Result{RequeueAfter: DefaultSettle}, result); diff != "" {
			t.Errorf("%s: result (-want +got):\n%s", at, diff)
		}
		if !bytes.Equal(before, r.secret(t).Data[keyCert]) {
			t.Errorf("%s, and a certificate of the new authority is served already", at)
		}
		r.Client = working
	}
	// The injection's own event brings us back at once.
	if result, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil || result.RequeueAfter != DefaultSettle {
		t.Errorf("right after the announcement: result %v, error %v", result, err)
	}
	r.clock.SetTime(r.clock.Now().Add(DefaultSettle))
	r.settles(t)
	if bytes.Equal(before, r.secret(t).Data[keyCert]) {
		t.Error("the certificate was never renewed")
	}
}

func TestWithoutAWebhookConfigurationThereIsNothingToInject(t *testing.T) {
	conf := webhooks()
	r := newRig(conf)
	r.WebhookConfiguration = ""
	r.settles(t)
	if r.writes != 1 {
		t.Errorf("%d writes, want only the secret", r.writes)
	}
	s := r.server()
	s.WebhookConfiguration = ""
	if _, _, err := s.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestRotatorReportsWhatItCannotDo(t *testing.T) {
	r := newRig(webhooks())
	boom := errors.New("boom")
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return boom },
	})
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, boom) {
		t.Errorf("error %v, want boom", err)
	}
}

// cert-manager, for one, fills the secret: nothing is written but the authority, and the
// token beside what is there.
func TestAnExternalIssuerKeepsTheSecret(t *testing.T) {
	data := must(t, bootstrap, nil, start)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.Secret.Namespace, Name: config.Secret.Name},
		Data:       map[string][]byte{keyCA: data[keyCA], keyCert: data[keyCert], keyCertKey: data[keyCertKey]},
	}
	r := newRig(webhooks(), secret)
	r.External = true
	r.settles(t)
	if r.writes != 2 {
		t.Errorf("%d writes, want only the token and the injection", r.writes)
	}
	if diff := cmp.Diff(secret.Data, without(r.secret(t).Data, keyToken, keyTokenCreated)); diff != "" {
		t.Errorf("secret (-want +got):\n%s", diff)
	}
	s := r.server()
	if _, _, err := s.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	// Not issued yet: nothing is put in, and nothing taken away.
	empty := newRig(webhooks())
	empty.External = true
	empty.settles(t)
	if empty.writes != 0 {
		t.Errorf("%d writes for a secret that is not there", empty.writes)
	}
}

func TestValidateDNSNames(t *testing.T) {
	cases := map[string]struct {
		names []string
		ok    bool
	}{
		"service and localhost": {names: names, ok: true},
		"none":                  {},
		"an empty name":         {names: []string{"localhost", ""}},
		"an address":            {names: []string{"127.0.0.1"}},
		"a wildcard":            {names: []string{"*.example.com"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := ValidateDNSNames(tc.names); (err == nil) != tc.ok {
				t.Errorf("error %v", err)
			}
		})
	}
}
