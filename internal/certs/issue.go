package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// carry returns the Secret's data after the action. The data given is not
// changed; keys that are not ours stay.
func carry(act action, data map[string][]byte, dnsNames []string, now time.Time) (map[string][]byte, error) {
	next := maps.Clone(data)
	if next == nil {
		next = map[string][]byte{}
	}
	issuer := issuerFor(dnsNames)
	begin := now.Add(-backdate)

	if act == bootstrap || act == renewCA {
		ca, err := issuer.CreateCACert(begin, now.Add(caValidity))
		if err != nil {
			return nil, fmt.Errorf("create authority: %w", err)
		}
		delete(next, keyPreviousCA)
		if act == renewCA {
			next[keyPreviousCA] = data[keyCA]
		}
		next[keyCA], next[keyCAKey] = ca.CertPEM, ca.KeyPEM
	}
	if act == bootstrap || act == renewCert {
		ca, key, err := authority(next)
		if err != nil {
			return nil, err
		}
		next[keyCert], next[keyCertKey], err = Serving(ca, key, dnsNames, begin)
		if err != nil {
			return nil, fmt.Errorf("create certificate: %w", err)
		}
	}
	return next, nil
}

// issuerFor returns cert-controller's maker of keys and certificates.
func issuerFor(dnsNames []string) *rotator.CertRotator {
	return &rotator.CertRotator{
		CAName:         "drawbridge-ca",
		CAOrganization: "drawbridge.dev",
		DNSName:        dnsNames[0],
		ExtraDNSNames:  dnsNames[1:],
		ExtKeyUsages:   &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
}

// authority returns that of the data, and its key.
func authority(data map[string][]byte) (*x509.Certificate, crypto.Signer, error) {
	ca, err := readCA(data)
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(data[keyCA], data[keyCAKey])
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("authority: the key cannot sign")
	}
	return ca, key, nil
}

// maxSerial: serial numbers have at most 20 octets (RFC 5280, 4.1.2.2).
var maxSerial = new(big.Int).Lsh(big.NewInt(1), 158)

// Serving makes a certificate of the server and its key, signed by the authority. cert-controller's own has an RSA key,
// with which a handshake takes the server many times as long, and a busy API server begins
// connections again and again: it keeps at most 25 that are idle.
func Serving(ca *x509.Certificate, signer crypto.Signer, dnsNames []string, begin time.Time) (certPEM, keyPEM []byte, err error) {
	serial, err := rand.Int(rand.Reader, maxSerial)
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: dnsNames[0]}, DNSNames: dnsNames,
		NotBefore: begin, NotAfter: begin.Add(backdate + certValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), keyPEM, nil
}
