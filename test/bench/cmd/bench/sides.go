//go:build unix

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// makeCertificate writes one for localhost, made as the manager's own is.
func (e *env) makeCertificate() error {
	issuer := &rotator.CertRotator{CAName: "bench", CAOrganization: "bench", DNSName: "localhost", ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	ca, err := issuer.CreateCACert(begin, end)
	if err != nil {
		return fmt.Errorf("create authority: %w", err)
	}
	cert, key, err := certs.Serving(ca.Cert, ca.Key, []string{"localhost"}, begin)
	if err != nil {
		return fmt.Errorf("create certificate: %w", err)
	}
	e.caBundle = ca.CertPEM
	e.certFile, e.keyFile = filepath.Join(e.cluster.Dir(), "bench.crt"), filepath.Join(e.cluster.Dir(), "bench.key")
	if err := errors.Join(os.WriteFile(e.certFile, cert, 0o600), os.WriteFile(e.keyFile, key, 0o600)); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}

// newURL is an address for one of our own webhooks.
func newURL(ctx context.Context) (string, error) {
	port, err := manager.FreePort(ctx)
	return "https://localhost:" + strconv.Itoa(port) + "/validate-eviction", err
}

// callFor makes the API server ask a webhook about the evictions of a namespace, at the
// address it returns.
func (e *env) callFor(ctx context.Context, namespace, name string) (string, error) {
	address, err := newURL(ctx)
	if err != nil {
		return "", err
	}
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    name,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &address, CABundle: e.caBundle},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(10)),
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
		}},
	}
	if err := e.crs.Create(ctx, conf); err != nil {
		return "", fmt.Errorf("create webhook configuration: %w", err)
	}
	return address, nil
}

// serve runs this program in the part of a webhook and returns when it listens at the
// address; stop ends it. The arguments come after those that all webhooks have.
func (e *env) serve(ctx context.Context, role, address string, args ...string) (pid int, stop func(), err error) {
	program, err := e.as(role)
	if err != nil {
		return 0, func() {}, err
	}
	at, err := url.Parse(address)
	if err != nil {
		return 0, func() {}, fmt.Errorf("read address: %w", err)
	}
	server := exec.CommandContext(context.WithoutCancel(ctx), program, append([]string{"127.0.0.1:" + at.Port(), e.certFile, e.keyFile}, args...)...)
	server.Stderr = io.Discard // Probes without a handshake.
	if err := server.Start(); err != nil {
		return 0, func() {}, fmt.Errorf("start %s: %w", role, err)
	}
	stop = func() {
		_ = server.Process.Kill() // It has nothing to lose.
		_ = server.Wait()
	}
	if err := eventually(ctx, role, func(ctx context.Context) (bool, error) { return listens(ctx, at.Host), nil }); err != nil {
		stop()
		return 0, func() {}, err
	}
	return server.Process.Pid, stop, nil
}

// serveForUser is serve for those that ask the API server, as anybody who may do everything.
func (e *env) serveForUser(ctx context.Context, role, address string) (pid int, stop func(), err error) {
	kubeconfig, err := e.cluster.KubeconfigFile(role, "system:masters")
	if err != nil {
		return 0, func() {}, err
	}
	return e.serve(ctx, role, address, kubeconfig)
}

func listens(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close() // Nothing was sent.
	return true
}

// as is the program under another name.
func (e *env) as(role string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	path := filepath.Join(e.cluster.Dir(), "bin", role)
	if err := os.Symlink(self, path); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("link own program: %w", err)
	}
	return path, nil
}
