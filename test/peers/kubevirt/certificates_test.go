//go:build unix

package kubevirt

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
	"os"
	"path/filepath"
	"time"
)

// certificates are files: an authority, and what it has signed.
type certificates struct {
	dir       string
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
}

// newCertificates makes the certificates by which KubeVirt's programs serve, and the
// one by which the API server proves to virt-api for whom it asks.
func newCertificates() (*certificates, error) {
	dir, err := os.MkdirTemp("", "drawbridge-kubevirt-")
	if err != nil {
		return nil, fmt.Errorf("create folder for certificates: %w", err)
	}
	c := &certificates{dir: dir}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "drawbridge-test-kubevirt"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := c.sign("ca", template); err != nil {
		return nil, err
	}
	serving := &x509.Certificate{
		Subject: pkix.Name{CommonName: "virt-api"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost", apiService + "." + systemNamespace + ".svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if err := c.sign("serving", serving); err != nil {
		return nil, err
	}
	return c, c.sign("aggregator", &x509.Certificate{
		Subject: pkix.Name{CommonName: "aggregator"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// sign writes NAME.crt and NAME.key; the first one is the authority, signed by itself.
func (c *certificates) sign(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return fmt.Errorf("make serial number: %w", err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	if c.authority == nil {
		c.authority, c.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.authority, key.Public(), c.key)
	if err != nil {
		return fmt.Errorf("sign certificate %s: %w", name, err)
	}
	if c.key == key {
		if c.authority, err = x509.ParseCertificate(der); err != nil {
			return fmt.Errorf("read certificate %s: %w", name, err)
		}
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	for file, block := range map[string]*pem.Block{
		c.cert(name):    {Type: "CERTIFICATE", Bytes: der},
		c.private(name): {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	return nil
}

func (c *certificates) cert(name string) string    { return filepath.Join(c.dir, name+".crt") }
func (c *certificates) private(name string) string { return filepath.Join(c.dir, name+".key") }

// bundle is the authority.
func (c *certificates) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.authority.Raw})
}

// aggregatorArgs let kube-apiserver pass on who asks, which virt-api insists on.
func (c *certificates) aggregatorArgs() []string {
	return []string{
		"--requestheader-client-ca-file=" + c.cert("ca"),
		"--requestheader-allowed-names=aggregator",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.cert("aggregator"),
		"--proxy-client-key-file=" + c.private("aggregator"),
	}
}
