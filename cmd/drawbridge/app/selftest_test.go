package app

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// The self-test trusts nobody whom an API server would not trust.
func TestReach(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // It complains of those who do not trust it.
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	cases := map[string]struct {
		config admissionregistrationv1.WebhookClientConfig
		want   string
	}{
		"any answer will do": {config: admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: authority}},
		"the CA was not put in": {
			config: admissionregistrationv1.WebhookClientConfig{URL: new(server.URL)}, want: "has no CA",
		},
		"the CA is damaged": {
			config: admissionregistrationv1.WebhookClientConfig{URL: new(server.URL), CABundle: []byte("x")}, want: "cannot be read",
		},
		"the certificate is for another name": {
			config: admissionregistrationv1.WebhookClientConfig{URL: new(strings.Replace(server.URL, "127.0.0.1", "localhost", 1)), CABundle: authority},
			want:   "certificate",
		},
		"nobody listens": {
			config: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:9"), CABundle: authority}, want: "connection refused",
		},
		"the configuration names nobody": {
			config: admissionregistrationv1.WebhookClientConfig{CABundle: authority}, want: "neither a Service nor a URL",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := reach(t.Context(), tc.config)
			if tc.want == "" && err != nil {
				t.Error(err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("want an error with %q, have: %v", tc.want, err)
			}
		})
	}
}

func TestTheEndpointOfAService(t *testing.T) {
	got, err := endpoint(admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: "ours", Name: "hook", Path: new("/validate-eviction"), Port: new(int32(8443)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://hook.ours.svc:8443/validate-eviction"; got != want {
		t.Errorf("endpoint is %s, want %s", got, want)
	}
}
