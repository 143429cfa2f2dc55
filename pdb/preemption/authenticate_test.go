package preemption

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathbig "math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
)

// issuer makes certificates.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t}
	template := &x509.Certificate{
		SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: t0.Add(-time.Hour), NotAfter: t0.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	made := i.make(template)
	i.cert, i.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	i.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
	return i
}

// issue returns a certificate of that name.
func (i *issuer) issue(name string, usage x509.ExtKeyUsage) tls.Certificate {
	i.t.Helper()
	return i.make(&x509.Certificate{
		SerialNumber: mathbig.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: t0.Add(-time.Hour), NotAfter: t0.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
}

func (i *issuer) make(template *x509.Certificate) tls.Certificate {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		i.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

var clientCA = types.NamespacedName{Namespace: "kube-system", Name: "extension-apiserver-authentication"}

func configMap(pem string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clientCA.Namespace, Name: clientCA.Name}, Data: map[string]string{ClientCAKey: pem}}
}

func TestWhoIsTheScheduler(t *testing.T) {
	const secret = "0123456789abcdef"
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, short := write("good", secret+"\n"), write("short", "123456789\n")
	authority, stranger := newIssuer(t), newIssuer(t)
	scheduler := authority.issue("system:kube-scheduler", x509.ExtKeyUsageClientAuth)

	cases := map[string]struct {
		tokenFile   string
		at          time.Duration
		certificate *tls.Certificate
		header      string
		password    string
		want        string
	}{
		"the scheduler's certificate":       {certificate: &scheduler},
		"the token as a password":           {tokenFile: good, password: secret},
		"the token as a bearer token":       {tokenFile: good, header: "Bearer " + secret},
		"nothing":                           {tokenFile: good, want: "no client certificate and no token"},
		"another header":                    {tokenFile: good, header: "Digest x", want: "wrong token"},
		"the wrong token":                   {tokenFile: good, password: secret + "0", want: "wrong token"},
		"the token where there is none":     {password: secret, want: "tokens are not accepted"},
		"a token that is too short":         {tokenFile: short, password: "123456789", want: "shorter than 16 characters"},
		"a token whose file is gone":        {tokenFile: good + "-gone", password: secret, want: "read the token"},
		"a wrong token and the certificate": {tokenFile: good, password: "x", certificate: &scheduler},
		"somebody else's certificate": {
			certificate: new(authority.issue("admin", x509.ExtKeyUsageClientAuth)), want: `user "admin" is not one of system:kube-scheduler`,
		},
		"a certificate of another authority": {
			certificate: new(stranger.issue("system:kube-scheduler", x509.ExtKeyUsageClientAuth)), want: "unknown authority",
		},
		"a server's certificate": {
			certificate: new(authority.issue("system:kube-scheduler", x509.ExtKeyUsageServerAuth)), want: "incompatible key usage",
		},
		"a certificate that has ended": {certificate: &scheduler, at: 2 * time.Hour, want: "expired"},
		"a certificate that has ended, and the token": {
			certificate: &scheduler, at: 2 * time.Hour, tokenFile: good, password: secret,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &Authenticator{ClientCA: clientCA, Users: []string{"system:kube-scheduler"}, TokenFile: tc.tokenFile, Clock: testingclock.NewFakePassiveClock(t0.Add(tc.at))}
			if err := a.load(configMap(string(authority.pem))); err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, PreemptPath, nil)
			if tc.certificate != nil {
				r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{tc.certificate.Leaf}}
			}
			if tc.header != "" {
				r.Header.Set("Authorization", tc.header)
			}
			if tc.password != "" {
				r.SetBasicAuth("scheduler", tc.password)
			}
			err := a.Check(r)
			if tc.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want: %s", err, tc.want)
			}
		})
	}
}

func TestTheAuthoritiesOfClients(t *testing.T) {
	authority := newIssuer(t)
	a := &Authenticator{ClientCA: clientCA, Users: []string{"u"}, Clock: testingclock.NewFakePassiveClock(t0)}
	if err := a.Ready(); err == nil {
		t.Error("it is ready without authorities")
	}
	if err := a.load(configMap("")); err == nil {
		t.Error("an empty ConfigMap is taken")
	}
	if err := a.load(configMap(string(authority.pem))); err != nil {
		t.Error(err)
	}
	if err := a.load(configMap("rubbish")); err == nil {
		t.Error("rubbish is taken")
	}
	if err := a.Ready(); err != nil {
		t.Errorf("authorities from before are forgotten: %v", err)
	}
	if err := (&Authenticator{}).Ready(); err != nil {
		t.Errorf("without certificates there is nothing to wait for: %v", err)
	}
}

// The server over TLS: with a certificate, without one, on another path, and at the
// end.
func TestTheServer(t *testing.T) {
	authority := newIssuer(t)
	// TLS goes by the real clock.
	now := time.Now()
	authority.cert = nil
	made := authority.make(&x509.Certificate{
		SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign, DNSNames: []string{"localhost"},
	})
	b := newBench()
	b.Authenticate = func(r *http.Request) error {
		if len(r.TLS.PeerCertificates) == 0 {
			return errNoCredentials
		}
		return nil
	}
	port := freePort(t)
	server := &Server{
		Address: port, Handler: b.Handler, ShutdownTimeout: 10 * time.Second,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &made, nil },
	}
	server.Handler.Log = logr.Discard()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Start(ctx) }()

	roots := x509.NewCertPool()
	roots.AddCert(made.Leaf)
	ask := func(path string, certificates ...tls.Certificate) (int, string, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: certificates, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+port+path, strings.NewReader(`{"Pod":{"metadata":{"uid":"u"}}}`))
		if err != nil {
			return 0, "", err
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, "", err
		}
		content, err := io.ReadAll(response.Body)
		return response.StatusCode, string(content), errors.Join(err, response.Body.Close())
	}
	for {
		_, _, err := ask(PreemptPath, made)
		if err == nil {
			break
		}
		var refused *net.OpError
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		path         string
		certificates []tls.Certificate
		want         string
	}{
		"with a certificate":    {PreemptPath, []tls.Certificate{made}, "200 {\"NodeNameToMetaVictims\":{}}\n"},
		"without a certificate": {PreemptPath, nil, "401 " + errNoCredentials.Error() + "\n"},
		"another path":          {"/filter", []tls.Certificate{made}, "404 404 page not found\n"},
	} {
		code, body, err := ask(tc.path, tc.certificates...)
		if got := fmt.Sprintf("%d %s", code, body); got != tc.want || err != nil {
			t.Errorf("%s: %q, want %q; error %v", name, got, tc.want, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	occupied := &Server{Address: "127.0.0.1:-1", Handler: b.Handler}
	if err := occupied.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "listen for the scheduler") {
		t.Errorf("an address that cannot be: %v", err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
