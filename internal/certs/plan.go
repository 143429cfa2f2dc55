package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Keys of the Secret's data.
const (
	keyCA         = "ca.crt"
	keyCAKey      = "ca.key"
	keyPreviousCA = "ca-previous.crt"
	keyCert       = "tls.crt"
	keyCertKey    = "tls.key"
)

// Life of what we issue. The same as the defaults of cert-controller v0.16.0
// (pkg/rotator/rotator.go).
const (
	caValidity   = 10 * 365 * 24 * time.Hour
	certValidity = 365 * 24 * time.Hour
	// renewBefore is how long before its end something is replaced.
	renewBefore = 90 * 24 * time.Hour
	// backdate is how far in the past the validity begins, for clocks that are behind.
	backdate = time.Hour
	// overlap is how long after a certificate was issued the previous authorities stay
	// trusted, if their certificates may still be served.
	overlap = 2 * time.Hour
	// maxBundle is the maximum number of authorities in the bundle.
	maxBundle = 4
	// checkEvery limits the time to the next check.
	checkEvery = 12 * time.Hour
)

// action is what the Secret needs.
type action int

const (
	// keep: nothing to do.
	keep action = iota
	// bootstrap: a new authority and a new certificate; nothing usable is lost.
	bootstrap
	// renewCA: a new authority beside the current one, which signed the certificate in
	// use.
	renewCA
	// renewCert: a new certificate from the current authority.
	renewCert
)

func (a action) String() string {
	return [...]string{"keep", "bootstrap", "renew authority", "renew certificate"}[a]
}

// plan is the decision about a Secret.
type plan struct {
	action action
	// reason says why, for the log.
	reason string
	// afterInjection: the action has to wait until the webhook configuration has
	// the bundle.
	afterInjection bool
	// next is when to check again if nothing changes.
	next time.Time
}

// decide says what the data of the Secret needs at that time, for a server with all of
// these DNS names. The first rule that applies wins.
func decide(data map[string][]byte, dnsNames []string, now time.Time, settle time.Duration) plan {
	p := plan{next: now.Add(checkEvery)}

	ca, err := readCA(data)
	if err == nil && (now.Before(ca.NotBefore) || !now.Before(ca.NotAfter)) {
		err = errors.New("authority: not valid at this time")
	}
	if err != nil {
		p.action, p.reason = bootstrap, err.Error()
		return p
	}
	cert, err := readCert(data, dnsNames, now)
	if err != nil {
		p.action, p.reason = renewCert, err.Error()
		return p
	}
	if due := ca.NotAfter.Add(-renewBefore); !now.Before(due) {
		p.action, p.reason = renewCA, fmt.Sprintf("the authority ends at %s", ca.NotAfter.UTC().Format(time.RFC3339))
		return p
	}
	if cert.CheckSignatureFrom(ca) != nil {
		// A certificate of the previous authority. Serve one of the new authority only
		// when all callers know it.
		if settled := ca.NotBefore.Add(backdate + settle); now.Before(settled) {
			p.next = settled
			return p
		}
		p.action, p.afterInjection, p.reason = renewCert, true, "the certificate comes from the authority before"
		return p
	}
	if due := cert.NotAfter.Add(-renewBefore); !now.Before(due) {
		p.action, p.reason = renewCert, fmt.Sprintf("the certificate ends at %s", cert.NotAfter.UTC().Format(time.RFC3339))
		return p
	}
	for _, end := range []time.Time{ca.NotAfter, cert.NotAfter} {
		if due := end.Add(-renewBefore); due.Before(p.next) {
			p.next = due
		}
	}
	return p
}

// caBundle is what callers of the webhook should trust: the current authority and, if
// there is one, the previous one.
func caBundle(data map[string][]byte) []byte {
	return bytes.Join([][]byte{data[keyCA], data[keyPreviousCA]}, nil)
}

// mergeBundle is what callers that trust present should trust: first the authorities of
// the Secret, then the previous ones, as long as a replica may still serve their
// certificates. So no call fails even if authority and certificate are replaced in one
// step, as when cert-manager renews its authority or the Secret is emptied.
func mergeBundle(present []byte, data map[string][]byte, now time.Time) []byte {
	own := caBundle(data)
	if !now.Before(overlapEnd(data)) {
		return own
	}
	blocks := pemBlocks(own)
	for _, block := range pemBlocks(present) {
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(ca.NotAfter) || len(blocks) >= maxBundle ||
			slices.ContainsFunc(blocks, func(b *pem.Block) bool { return bytes.Equal(b.Bytes, block.Bytes) }) {
			continue
		}
		blocks = append(blocks, block)
		own = append(own, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	return own
}

// overlapEnd is until when previous authorities stay trusted.
func overlapEnd(data map[string][]byte) time.Time {
	cert, err := readCertificate(data[keyCert])
	if err != nil {
		return time.Time{}
	}
	return cert.NotBefore.Add(overlap)
}

// pemBlocks are the blocks of a bundle, in order.
func pemBlocks(bundle []byte) []*pem.Block {
	var blocks []*pem.Block
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			return blocks
		}
		blocks, bundle = append(blocks, block), rest
	}
}

// readCA returns the authority, if it can sign.
func readCA(data map[string][]byte) (*x509.Certificate, error) {
	ca, err := readCertificate(data[keyCA])
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if !ca.IsCA {
		return nil, errors.New("authority: not a certificate authority")
	}
	// X509KeyPair also checks that the two belong together.
	if _, err := tls.X509KeyPair(data[keyCA], data[keyCAKey]); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return ca, nil
}

// readCert returns the server's certificate, if it can be served now under all of the
// names and is signed by one of the authorities.
func readCert(data map[string][]byte, dnsNames []string, now time.Time) (*x509.Certificate, error) {
	if _, err := tls.X509KeyPair(data[keyCert], data[keyCertKey]); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	cert, err := readCertificate(data[keyCert])
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if err := verify(cert, caBundle(data), dnsNames, now); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return cert, nil
}

// verify checks the certificate as a caller of the webhook would.
func verify(cert *x509.Certificate, bundle []byte, dnsNames []string, now time.Time) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return errors.New("no authority to trust")
	}
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots:       pool,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return err
	}
	for _, name := range dnsNames {
		if err := cert.VerifyHostname(name); err != nil {
			return err
		}
	}
	return nil
}

func readCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("missing or not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
