package certs

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const settle = time.Minute

var (
	tokenA = strings.Repeat("a", 64)
	tokenB = strings.Repeat("b", 64)
)

func TestDecideToken(t *testing.T) {
	data := func(more map[string]string) map[string][]byte {
		all := maps.Clone(must(t, bootstrap, nil, start))
		for key, value := range more {
			all[key] = []byte(value)
		}
		return all
	}
	stamp := func(after time.Duration) string { return start.Add(after).Format(time.RFC3339) }
	plain := data(map[string]string{keyToken: tokenB, keyTokenCreated: stamp(0)})
	rotating := data(map[string]string{keyToken: tokenB, keyTokenBefore: tokenA, keyTokenCreated: stamp(0)})
	upgrading := data(map[string]string{keyToken: tokenB, keyTokenBefore: "", keyTokenCreated: stamp(0)})
	called := func(data map[string][]byte, now time.Duration, paths ...string) tokenInput {
		return tokenInput{Data: data, Called: true, Marked: true, Ready: true, InPaths: paths, Now: start.Add(now), Settle: settle}
	}
	with := func(in tokenInput, change func(*tokenInput)) tokenInput {
		change(&in)
		return in
	}
	cases := map[string]struct {
		in   tokenInput
		want tokenPlan
	}{
		"the first certificate comes with a token":                        {tokenInput{Data: data(nil), Ready: true, InPaths: []string{"", ""}}, tokenPlan{Make: true}},
		"beside an older replica the paths have none, so it is not asked": {tokenInput{Data: data(nil), InPaths: []string{"", ""}}, tokenPlan{Make: true, KeepBefore: true}},
		"no webhook is configured, and nobody gets in":                    {tokenInput{Data: data(nil), Ready: true}, tokenPlan{Make: true}},
		"after an upgrade, calls without a token count on":                {called(data(nil), 0, ""), tokenPlan{Make: true, KeepBefore: true}},
		"a token that is lost counts on as long as it is sent":            {called(data(nil), 0, tokenA), tokenPlan{Make: true, Before: tokenA, KeepBefore: true}},
		"what is no token is replaced":                                    {called(data(map[string]string{keyToken: "guess"}), 0, tokenA), tokenPlan{Make: true, Before: tokenA, KeepBefore: true}},
		"all is well":                                                     {called(plain, 0, tokenB, tokenB), tokenPlan{}},
		"a renewed certificate brings a new token":                        {called(data(map[string]string{keyToken: tokenB, keyTokenCreated: stamp(-2 * time.Hour)}), 0, tokenB), tokenPlan{Make: true, Before: tokenB, KeepBefore: true}},
		"but not while one is being replaced":                             {called(data(map[string]string{keyToken: tokenB, keyTokenBefore: tokenA, keyTokenCreated: stamp(-2 * time.Hour)}), 0, tokenB), tokenPlan{}},
		"every replica learns a new token before it is sent":              {called(rotating, 30*time.Second, tokenA), tokenPlan{Again: start.Add(settle)}},
		"then it is put into the paths":                                   {called(rotating, settle, tokenA), tokenPlan{Put: true}},
		"a path without a token gets it at once":                          {called(rotating, 0, tokenA, ""), tokenPlan{Again: start.Add(settle)}},
		"a path that somebody has reset is put right":                     {called(plain, 0, tokenB, ""), tokenPlan{Put: true}},
		"so is one with a token of nobody's":                              {called(plain, 0, tokenA), tokenPlan{Put: true}},
		"the first one in an upgrade goes in at once":                     {called(upgrading, 0, ""), tokenPlan{Put: true}},
		"not before all replicas know of tokens":                          {with(called(upgrading, 0, ""), func(in *tokenInput) { in.Ready = false }), tokenPlan{Again: start.Add(unreadyPause)}},
		"never into the configuration of an older chart":                  {with(called(upgrading, 0, ""), func(in *tokenInput) { in.Marked = false }), tokenPlan{}},
		"the one before counts while API servers learn":                   {with(called(rotating, settle, tokenB), func(in *tokenInput) { in.CurrentSince = start.Add(settle) }), tokenPlan{Again: start.Add(2 * settle)}},
		"then it does not":                                                {with(called(rotating, 2*settle, tokenB), func(in *tokenInput) { in.CurrentSince = start.Add(settle) }), tokenPlan{Drop: true}},
		"nothing is dropped that was not seen to be replaced everywhere":  {called(rotating, time.Hour, tokenB), tokenPlan{}},
		"old replicas do not keep the one before":                         {with(called(upgrading, 2*settle, tokenB), func(in *tokenInput) { in.Ready, in.CurrentSince = false, start.Add(settle) }), tokenPlan{Drop: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, decideToken(tc.in)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTokensInPaths(t *testing.T) {
	cases := map[string][3]string{
		"a path":                 {"/validate-eviction", "/validate-eviction", ""},
		"a path with a token":    {"/validate-eviction/" + tokenA, "/validate-eviction", tokenA},
		"a URL":                  {"https://localhost:9443/probe", "https://localhost:9443/probe", ""},
		"a URL with a token":     {"https://localhost:9443/probe/" + tokenA, "https://localhost:9443/probe", tokenA},
		"something like a token": {"/probe/" + tokenA[1:], "/probe/" + tokenA[1:], ""},
		"nothing":                {"", "", ""},
	}
	for name, tc := range cases {
		base, token := splitToken(tc[0])
		if diff := cmp.Diff([]string{tc[1], tc[2]}, []string{base, token}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if a, b := newToken(), newToken(); a == b || !tokenFormat.MatchString(a) {
		t.Errorf("tokens %q and %q", a, b)
	}
}

// marked is a webhook configuration of this chart: one webhook by its Service, one by URL.
func marked() *admissionregistrationv1.ValidatingWebhookConfiguration {
	conf := webhooks()
	conf.Annotations = map[string]string{TokenAnnotation: TokenInPath}
	conf.Webhooks[0].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Path: new("/validate-eviction")}
	conf.Webhooks[1].ClientConfig.URL = new("https://localhost:9443/probe")
	return conf
}

// sent returns what API servers send: one token of all paths.
func (r *rig) sent(t *testing.T) string {
	t.Helper()
	conf := r.conf(t)
	_, first := splitToken(*conf.Webhooks[0].ClientConfig.Service.Path)
	_, second := splitToken(*conf.Webhooks[1].ClientConfig.URL)
	if second != ofProbe(first) {
		t.Fatalf("tokens %q and %q, want that of the probe made from the other", first, second)
	}
	return first
}

func (r *rig) conf(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := r.Client.Get(t.Context(), types.NamespacedName{Name: config.WebhookConfiguration}, conf); err != nil {
		t.Fatal(err)
	}
	return conf
}

// answers fails unless a replica answers exactly those calls.
func answers(t *testing.T, s *Server, want map[string]bool) {
	t.Helper()
	if _, _, err := s.observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for token := range want {
		got[token] = s.Token("/validate-eviction", token) == nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("calls that are answered, by their tokens (-want +got):\n%s", diff)
	}
}

// The life of tokens: installed, reset by a tool that renders the chart, lost, renewed.
func TestTheTokenOfAPIServers(t *testing.T) {
	r := newRig(marked())
	r.settles(t)
	first, s := r.sent(t), r.server()
	if !tokenFormat.MatchString(first) || len(r.conf(t).Webhooks[0].ClientConfig.CABundle) == 0 {
		t.Fatalf("token %q, CA %q", first, r.conf(t).Webhooks[0].ClientConfig.CABundle)
	}
	answers(t, s, map[string]bool{first: true, "": false, tokenA: false})
	if err := s.Token("/probe", ""); !errors.Is(err, ErrNoToken) {
		t.Errorf("no token: %v", err)
	}
	if err := s.Token("/probe", tokenA); !errors.Is(err, ErrWrongToken) {
		t.Errorf("a wrong token: %v", err)
	}

	// The probe's token opens the probe, and nothing else.
	probe := ofProbe(first)
	if err := s.Token("/probe", probe); err != nil || s.Token("/validate-eviction", probe) == nil || s.Token("/probe", first) == nil {
		t.Errorf("the token of the probe: %v", err)
	}

	// Somebody renders the chart once more, with the path or without. Calls without a token
	// are not answered.
	for _, rendered := range []*string{new("/validate-eviction"), nil} {
		conf := r.conf(t)
		conf.Webhooks[0].ClientConfig.Service.Path = rendered
		if err := r.Client.Update(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
		answers(t, s, map[string]bool{first: true, "": false})
		r.settles(t)
		if diff := cmp.Diff(first, r.sent(t)); diff != "" {
			t.Fatalf("token (-want +got):\n%s", diff)
		}
	}

	// Somebody takes it out of the Secret: what API servers send counts until they have
	// learnt the new one.
	secret := r.secret(t)
	delete(secret.Data, keyToken)
	if err := r.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	answers(t, s, map[string]bool{first: true, "": false})
	r.settles(t)
	if diff := cmp.Diff(first, r.sent(t)); diff != "" {
		t.Fatalf("token before every replica knows the next (-want +got):\n%s", diff)
	}
	second := string(r.secret(t).Data[keyToken])
	answers(t, s, map[string]bool{first: true, second: true, "": false})
	r.clock.Step(settle)
	r.settles(t)
	if diff := cmp.Diff(second, r.sent(t)); diff != "" {
		t.Fatalf("token (-want +got):\n%s", diff)
	}
	answers(t, s, map[string]bool{first: true, second: true, "": false})
	r.clock.Step(settle)
	r.settles(t)
	answers(t, s, map[string]bool{first: false, second: true, "": false})
}

// An upgrade from a release without tokens: at every moment, what API servers send is
// answered by every replica, and no replica gets a path it does not know.
func TestAnUpgradeBringsTokensWithoutAGap(t *testing.T) {
	old := errors.New("pod drawbridge-1 is of an older release")
	r := newRig(webhooks())
	r.settles(t)
	secret := r.secret(t)
	for _, key := range []string{keyToken, keyTokenCreated} {
		delete(secret.Data, key)
	}
	if err := r.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	conf := r.conf(t)
	upgraded := marked()
	for i := range upgraded.Webhooks {
		upgraded.Webhooks[i].ClientConfig.CABundle = conf.Webhooks[i].ClientConfig.CABundle
	}
	upgraded.ResourceVersion = conf.ResourceVersion
	if err := r.Client.Update(t.Context(), upgraded); err != nil {
		t.Fatal(err)
	}
	s := r.server()
	answers(t, s, map[string]bool{"": true}) // A new replica; the leader is an old one still.

	r.Replicas = func(context.Context) error { return old }
	if result := r.settles(t); result.RequeueAfter != unreadyPause {
		t.Errorf("it looks again after %s", result.RequeueAfter)
	}
	if sent := r.sent(t); sent != "" {
		t.Fatalf("an old replica would be called with token %q", sent)
	}
	r.clock.Step(time.Hour)
	r.settles(t)
	answers(t, s, map[string]bool{"": true, r.sent(t): true})

	r.Replicas = nil
	r.settles(t)
	answers(t, s, map[string]bool{"": true, r.sent(t): true})
	r.clock.Step(settle)
	r.settles(t)
	answers(t, s, map[string]bool{"": false, r.sent(t): true})
}

// The Secret of cert-manager gets the token when there is a certificate.
func TestTheTokenInASecretOfSomebodyElse(t *testing.T) {
	filled := must(t, bootstrap, nil, start)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.Secret.Namespace, Name: config.Secret.Name}}
	r := newRig(marked(), secret)
	r.External = true
	r.settles(t)
	if r.writes != 0 {
		t.Fatalf("%d writes to a Secret that is not filled yet", r.writes)
	}
	secret = r.secret(t)
	secret.Data = without(filled, keyCAKey)
	if err := r.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	r.settles(t)
	sent := r.sent(t)
	got := r.secret(t).Data
	if diff := cmp.Diff(sent, string(got[keyToken])); diff != "" || sent == "" {
		t.Errorf("token in the Secret (-sent +kept):\n%s", diff)
	}
	if diff := cmp.Diff(string(filled[keyCert]), string(got[keyCert])); diff != "" {
		t.Errorf("the certificate of somebody else (-want +got):\n%s", diff)
	}
	answers(t, r.server(), map[string]bool{sent: true, "": false})
}
