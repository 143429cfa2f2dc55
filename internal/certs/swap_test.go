package certs

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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
	condition := func(status, reason string) map[string]any {
		return map[string]any{"type": "Ready", "status": status, "reason": reason, "message": "m"}
	}
	type want struct {
		Ready bool
		Why   string
	}
	cases := map[string]struct {
		status map[string]any
		want   want
	}{
		"is that of its condition":                 {map[string]any{"conditions": []any{condition("True", "Ready")}}, want{Ready: true}},
		"is explained when it lacks":               {map[string]any{"conditions": []any{map[string]any{"type": "Issuing"}, condition("False", "DoesNotExist")}}, want{Why: "DoesNotExist: m"}},
		"is unknown before cert-manager looked":    {nil, want{Why: "cert-manager has not looked at it yet"}},
		"is nothing when there is no such object":  {map[string]any{"none": true}, want{Why: "there is no such Certificate"}},
		"is nothing when the conditions are wrong": {map[string]any{"conditions": "x"}, want{Why: "error"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{}}
			object.SetGroupVersionKind(CertificateKind)
			object.SetNamespace("drawbridge-system")
			object.SetName("drawbridge")
			if tc.status != nil {
				object.Object["status"] = maps.Clone(tc.status)
			}
			scheme := runtime.NewScheme()
			if err := corev1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			scheme.AddKnownTypeWithName(CertificateKind, &unstructured.Unstructured{})
			builder := fake.NewClientBuilder().WithScheme(scheme)
			if tc.status["none"] == nil {
				builder = builder.WithObjects(object)
			}
			c := &CertManager{Reader: builder.Build(), Certificate: types.NamespacedName{Namespace: "drawbridge-system", Name: "drawbridge"}}
			ready, why, err := c.ready(t.Context())
			if err != nil {
				why = "error"
			}
			if diff := cmp.Diff(tc.want, want{ready, why}); diff != "" {
				t.Errorf("readiness (-want +got):\n%s", diff)
			}
		})
	}
}
