package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// Certificates are valid from an hour ago, for clocks that were set back,
	// and for longer than anybody leaves a cluster running.
	certBackdate = time.Hour
	certLifetime = 365 * 24 * time.Hour
)

// authority signs the certificates of one cluster: the apiserver's own and those
// of its clients.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	certPEM     []byte
	keyPEM      []byte
}

func newAuthority() (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := newTemplate("drawbridge-test-ca")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	return &authority{certificate: certificate, key: key, certPEM: encodePEM("CERTIFICATE", der), keyPEM: keyPEM}, nil
}

// pool trusts this authority alone.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// serving issues the apiserver's certificate, for the names and addresses it is
// reached by from this machine and, in certificates' eyes, from a pod.
func (a *authority) serving() (certPEM, keyPEM []byte, err error) {
	template := newTemplate("kube-apiserver")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(apiserverServiceIP)}
	return a.issue(template)
}

// client issues the certificate by which the apiserver knows a user and its groups.
func (a *authority) client(user string, groups []string) (certPEM, keyPEM []byte, err error) {
	template := newTemplate(user)
	template.Subject.Organization = groups
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %q: %w", template.Subject.CommonName, err)
	}
	return encodePEM("CERTIFICATE", der), keyPEM, nil
}

func newTemplate(commonName string) *x509.Certificate {
	now := realClock.Now()
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // Never fails, says its documentation.
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-certBackdate),
		NotAfter:     now.Add(certLifetime),
	}
}

// newKey makes a P-256 key: quick to make, and good for certificates and for
// service account tokens.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, encodePEM("EC PRIVATE KEY", der), nil
}

func publicKeyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return encodePEM("PUBLIC KEY", der), nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
