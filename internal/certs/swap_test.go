package certs

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmetav1 "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestWhenACertificateIsServed(t *testing.T) {
	first, second := must(t, bootstrap, nil, start), must(t, bootstrap, nil, start)
	leaf := func(data map[string][]byte) *x509.Certificate {
		cert, err := readCertificate(data[keyCert])
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	both := append(append([]byte{}, first[keyCA]...), second[keyCA]...)
	type want struct {
		Swap  bool
		Again time.Duration
	}
	cases := map[string]struct {
		in   swapInput
		want want
	}{
		"the first one at once":                        {swapInput{Bundle: first[keyCA]}, want{Swap: true}},
		"the same one is no other":                     {swapInput{Served: leaf(second), Bundle: both}, want{}},
		"at once when nobody calls":                    {swapInput{Served: leaf(first)}, want{Swap: true}},
		"at once when callers refuse the present one":  {swapInput{Served: leaf(first), Bundle: second[keyCA], BundleSince: start}, want{Swap: true}},
		"not while callers would refuse it":            {swapInput{Served: leaf(first), Bundle: first[keyCA]}, want{Again: certValidity - time.Minute + time.Second}},
		"not before callers have had the time to know": {swapInput{Served: leaf(first), Bundle: both, BundleSince: start.Add(30 * time.Second)}, want{Again: 30 * time.Second}},
		"when they have had it":                        {swapInput{Served: leaf(first), Bundle: both, BundleSince: start}, want{Swap: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := tc.in
			in.Offered, in.DNSNames, in.Now, in.Settle = leaf(second), names, start.Add(time.Minute), time.Minute
			swap, again := decideSwap(in)
			if diff := cmp.Diff(tc.want, want{swap, again}); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMergeBundle(t *testing.T) {
	var generations []map[string][]byte
	for range maxBundle + 1 {
		generations = append(generations, must(t, bootstrap, nil, start))
	}
	now := generations[1]
	all := []byte{}
	for _, g := range generations {
		all = append(all, g[keyCA]...)
	}
	concat := func(parts ...map[string][]byte) string {
		text := ""
		for _, p := range parts {
			text += string(p[keyCA])
		}
		return text
	}
	cases := map[string]struct {
		present []byte
		at      time.Duration
		want    string
	}{
		"callers who trust nothing get the authority": {want: concat(now)},
		"callers keep the authority of before":        {present: generations[0][keyCA], want: concat(now, generations[0])},
		"but only for some hours":                     {present: generations[0][keyCA], at: overlap, want: concat(now)},
		"nothing is there twice":                      {present: []byte(concat(now, generations[0])), want: concat(now, generations[0])},
		"what cannot be read goes":                    {present: []byte("x"), want: concat(now)},
		"there is a limit":                            {present: all, want: concat(now, generations[0], generations[2], generations[3])},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			at := start.Add(tc.at)
			got := mergeBundle(tc.present, now, at)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("bundle (-want +got):\n%s", diff)
			}
			if again := mergeBundle(got, now, at); string(again) != string(got) {
				t.Error("merging again changes the bundle, so it would be written for ever")
			}
		})
	}
}

func TestTheReadinessOfACertificate(t *testing.T) {
	key := types.NamespacedName{Namespace: "drawbridge-system", Name: "drawbridge"}
	condition := func(status cmmetav1.ConditionStatus, reason string) certmanagerv1.CertificateCondition {
		return certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionReady, Status: status, Reason: reason, Message: "m"}
	}
	with := func(conditions ...certmanagerv1.CertificateCondition) *certmanagerv1.Certificate {
		return &certmanagerv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Status: certmanagerv1.CertificateStatus{Conditions: conditions},
		}
	}
	issuing := certmanagerv1.CertificateCondition{Type: certmanagerv1.CertificateConditionIssuing, Status: cmmetav1.ConditionTrue}
	absent := &meta.NoKindMatchError{GroupKind: certmanagerv1.SchemeGroupVersion.WithKind(certmanagerv1.CertificateKind).GroupKind()}
	type want struct {
		Ready bool
		Why   string
		Err   error
	}
	cases := map[string]struct {
		certificate *certmanagerv1.Certificate
		err         error
		want        want
	}{
		"is that of its condition":                {certificate: with(condition(cmmetav1.ConditionTrue, "Ready")), want: want{Ready: true}},
		"is explained when it lacks":              {certificate: with(issuing, condition(cmmetav1.ConditionFalse, "DoesNotExist")), want: want{Why: "DoesNotExist: m"}},
		"is unknown before cert-manager looked":   {certificate: with(), want: want{Why: "cert-manager has not looked at it yet"}},
		"is nothing when there is no such object": {want: want{Why: "there is no such Certificate"}},
		"is an error without cert-manager's kind": {err: absent, want: want{Err: absent}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := certmanagerv1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if tc.certificate != nil {
				builder = builder.WithObjects(tc.certificate)
			}
			if tc.err != nil {
				builder = builder.WithInterceptorFuncs(interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						return tc.err
					},
				})
			}
			c := &CertManager{Reader: builder.Build(), Certificate: key}
			ready, why, err := c.ready(t.Context())
			if diff := cmp.Diff(tc.want, want{ready, why, err}, cmpopts.EquateErrors()); diff != "" {
				t.Errorf("readiness (-want +got):\n%s", diff)
			}
		})
	}
}
