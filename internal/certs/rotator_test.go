package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
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
		if r.writes == before && (res.RequeueAfter != r.pause() || r.pace.TokensAt(r.clock.Now()) >= 1) {
			return res
		}
		if r.writes == before {
			r.clock.Step(r.pause())
		}
	}
	t.Fatal("still writing after ten rounds")
	return reconcile.Result{}
}

// cached reads through the fake client what a real cache would hold.
type cached struct {
	cache.Cache
	client.Reader
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.Reader.Get(ctx, key, obj, opts...)
}

func (c cached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.Reader.List(ctx, list, opts...)
}

func (r *rig) server() *Server {
	return &Server{Config: config, Cache: cached{Reader: r.Client}, Clock: r.clock, Metrics: metrics.NewCertificates(prometheus.NewRegistry())}
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

// Somebody who overwrites the bundle as soon as we have written it, as cert-manager's injector
// does, is not fought without a pause.
func TestABundleThatSomebodyOverwritesIsRepairedWithAPause(t *testing.T) {
	r := newRig(webhooks())
	r.settles(t)
	bundle := r.conf(t).Webhooks[0].ClientConfig.CABundle
	overwritten := func() reconcile.Result {
		conf := r.conf(t)
		conf.Webhooks[0].ClientConfig.CABundle = nil
		if err := r.Client.Update(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
		r.writes = 0
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	r.clock.Step(time.Minute)
	for range writesAtOnce {
		if overwritten(); r.writes != 1 {
			t.Fatalf("%d writes, want the repair at once", r.writes)
		}
	}
	for range 5 {
		if result := overwritten(); r.writes != 0 || result.RequeueAfter != time.Second {
			t.Fatalf("%d writes, the next after %s, want a pause of a second", r.writes, result.RequeueAfter)
		}
	}
	r.clock.Step(time.Second)
	r.settles(t)
	if diff := cmp.Diff(bundle, r.conf(t).Webhooks[0].ClientConfig.CABundle); diff != "" {
		t.Errorf("bundle after the pause (-want +got):\n%s", diff)
	}
}

// TestANewAuthorityIsAnnouncedBeforeItIsUsed: a certificate of an authority that
// an API server has not been told of fails every call.
func TestANewAuthorityIsAnnouncedBeforeItIsUsed(t *testing.T) {
	r := newRig(webhooks())
	r.settles(t)
	// Near the authority's end, and both it and the certificate are renewed. The
	// new authority is written, and then nobody is there for a while.
	r.clock.SetTime(start.Add(caValidity - renewBefore))
	for len(r.secret(t).Data[keyPreviousCA]) == 0 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
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

func TestServer(t *testing.T) {
	conf := webhooks()
	r := newRig(conf)
	s := r.server()
	looks := func(what string, wantSwitched bool, wantAgain time.Duration) {
		t.Helper()
		switched, again, err := s.observe(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if switched != wantSwitched || again != wantAgain {
			t.Errorf("%s: switched %t, again in %v, want %t, %v", what, switched, again, wantSwitched, wantAgain)
		}
	}
	if _, err := s.GetCertificate(&tls.ClientHelloInfo{}); err == nil {
		t.Error("a certificate was served before there was one")
	}
	if err := s.Ready(t.Context()); err == nil {
		t.Error("ready without a certificate")
	}
	looks("without a secret", false, 0)

	r.settles(t)
	looks("the first secret", true, 0)
	looks("the same secret again", false, 0)
	served, err := s.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}

	good := r.secret(t)
	damaged := good.DeepCopy()
	damaged.Data[keyCert] = []byte("x")
	if err := r.Client.Update(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.observe(t.Context()); err == nil {
		t.Error("a damaged secret was no error")
	}
	if still, err := s.GetCertificate(nil); err != nil || still != served {
		t.Error("a damaged secret changed what is served")
	}
	damaged.Data = good.Data
	if err := r.Client.Update(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}

	r.clock.SetTime(start.Add(300 * 24 * time.Hour))
	r.settles(t)
	looks("the renewed secret", true, 0)
	if renewed, err := s.GetCertificate(nil); err != nil || bytes.Equal(renewed.Leaf.Raw, served.Leaf.Raw) {
		t.Error("the renewed certificate is not served")
	}
}

// Whoever empties the secret gets a new authority and a certificate of it in one step.
// Callers trust both authorities until every replica has changed over.
func TestALostSecretIsReplacedWithoutAGap(t *testing.T) {
	r := newRig(webhooks())
	r.settles(t)
	s := r.server()
	if _, _, err := s.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, _ := s.GetCertificate(nil)
	r.clock.SetTime(start.Add(24 * time.Hour))
	if _, _, err := s.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	emptied := r.secret(t)
	emptied.Data = nil
	if err := r.Client.Update(t.Context(), emptied); err != nil {
		t.Fatal(err)
	}
	// Written, and not injected yet.
	if _, err := r.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"before callers are told", func() {}, true},
		{"when they are told just now", func() { r.settles(t) }, true},
		{"a moment before it has settled", func() { r.clock.SetTime(r.clock.Now().Add(DefaultSettle - time.Second)) }, true},
		{"when it has settled", func() { r.clock.SetTime(r.clock.Now().Add(time.Second)) }, false},
	} {
		step.do()
		if _, _, err := s.observe(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := s.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if same := now == before; same != step.want {
			t.Errorf("%s: the certificate of before is served: %t, want %t", step.name, same, step.want)
		}
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("%s: callers fail: %v", step.name, err)
		}
	}
	bundle := func() int {
		conf := webhooks()
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(conf), conf); err != nil {
			t.Fatal(err)
		}
		return len(pemBlocks(conf.Webhooks[0].ClientConfig.CABundle))
	}
	if got := bundle(); got != 2 {
		t.Errorf("callers trust %d authorities, want both", got)
	}
	r.clock.SetTime(r.clock.Now().Add(overlap))
	r.settles(t)
	if got := bundle(); got != 1 {
		t.Errorf("some hours later callers trust %d authorities, want the new one alone", got)
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
