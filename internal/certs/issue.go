package certs

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
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
		ca, err := signer(next)
		if err != nil {
			return nil, err
		}
		next[keyCert], next[keyCertKey], err = issuer.CreateCertPEM(ca, begin, now.Add(certValidity))
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

// signer returns the authority in the form in which cert-controller signs.
func signer(data map[string][]byte) (*rotator.KeyPairArtifacts, error) {
	ca, err := readCA(data)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(data[keyCA], data[keyCAKey])
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("authority: the key is not RSA")
	}
	return &rotator.KeyPairArtifacts{Cert: ca, CertPEM: data[keyCA], KeyPEM: data[keyCAKey], Key: key}, nil
}
