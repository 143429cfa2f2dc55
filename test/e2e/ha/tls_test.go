//go:build unix

package ha

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dial makes a TLS connection of at most that version.
func dial(ctx context.Context, addr string, most uint16) (*tls.Conn, error) {
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: most,
		InsecureSkipVerify: true, // Who it is does not matter here.
	}}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

func pool(authority []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return pool
}

// Webhook and metrics speak TLS 1.2 and later; the metrics only to those who may read
// them.
func TestWhoIsSpokenTo(t *testing.T) {
	inst := installed(t, nil)
	p := start(t, inst, "--metrics-protected=true")
	metricsAddr := strings.TrimSuffix(strings.TrimPrefix(p.MetricsURL, "http://"), "/metrics")
	for what, addr := range map[string]string{"webhook": net.JoinHostPort("127.0.0.1", strconv.Itoa(inst.WebhookPort)), "metrics": metricsAddr} {
		if conn, err := dial(t.Context(), addr, tls.VersionTLS11); err == nil {
			t.Errorf("%s: TLS 1.1 is accepted", what)
			_ = conn.Close()
		} else if !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("%s: TLS 1.1 fails for another reason: %v", what, err)
		}
		conn, err := dial(t.Context(), addr, tls.VersionTLS12)
		if err != nil {
			t.Errorf("%s: TLS 1.2: %v", what, err)
			continue
		}
		_ = conn.Close()
	}

	namespace := kube.Namespace(t)
	token := func(name string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := admin.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		request := &authenticationv1.TokenRequest{}
		if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
	visitor, scraper := token("visitor"), token("scraper")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "scraper-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drawbridge-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "scraper"}},
	}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), binding) })

	secret := &corev1.Secret{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: inst.Namespace, Name: "drawbridge-webhook-cert"}, secret); err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, token string) (int, string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+metricsAddr+"/metrics", nil)
		if err != nil {
			return 0, "", err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		// As Prometheus does: with the authority of the Secret, under the Service's name.
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(secret.Data["ca.crt"]), ServerName: "localhost", MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return 0, "", err
		}
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), errors.Join(err, response.Body.Close())
	}
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"nobody":                {"", http.StatusUnauthorized},
		"a stranger":            {"abc", http.StatusUnauthorized},
		"somebody without role": {visitor, http.StatusForbidden},
	} {
		code, _, err := get(t.Context(), tc.token)
		if err != nil || code != tc.want {
			t.Errorf("%s: code %d, error %v, want %d", name, code, err, tc.want)
		}
	}
	eventually(t, "the role to count", func(ctx context.Context) error {
		code, body, err := get(ctx, scraper)
		if err == nil && (code != http.StatusOK || !strings.Contains(body, "drawbridge_webhook_certificate_expiry_timestamp_seconds")) {
			err = errors.New(http.StatusText(code))
		}
		return err
	})
}

// The log level follows the chart's ConfigMap while the manager runs.
func TestTheLogLevelCanBeChanged(t *testing.T) {
	inst := installed(t, nil)
	p := start(t, inst, "--log-level=info", "--log-level-config=drawbridge-log")
	held := intercepted(t, kube.Namespace(t), "held")
	// At level 0 only the first of many equal answers is told.
	told := func() int {
		return strings.Count(string(must(os.ReadFile(p.LogFile))(t)), "Eviction call")
	}
	for range 3 {
		_ = evict(t.Context(), held, false)
	}
	if diff := cmp.Diff(1, told()); diff != "" {
		t.Errorf("calls told at level info (-want +got):\n%s", diff)
	}
	level := &corev1.ConfigMap{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: inst.Namespace, Name: "drawbridge-log"}, level); err != nil {
		t.Fatal(err)
	}
	level.Data["level"] = "debug"
	if err := admin.Update(t.Context(), level); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls to be told", func(ctx context.Context) error {
		_ = evict(ctx, held, false)
		if told() < 3 {
			return errors.New("not yet")
		}
		return nil
	})
}
