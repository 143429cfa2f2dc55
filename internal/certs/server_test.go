package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

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
