package certs

import (
	"crypto/x509"
	"time"
)

// swapInput is the input of decideSwap.
type swapInput struct {
	// Served is the certificate we serve; nil for none.
	Served *x509.Certificate
	// Offered is the one of the Secret.
	Offered *x509.Certificate
	// Bundle is what callers trust; nil if we are not called.
	Bundle []byte
	// BundleSince is when we first saw that bundle.
	BundleSince time.Time
	DNSNames    []string
	Now         time.Time
	Settle      time.Duration
}

// decideSwap reports whether to serve the offered certificate now. If not, it says when
// to check again; 0 means when something changes.
//
// Callers trust a bundle, which reaches every API server in its own time. Serving a
// certificate before they know its authority would fail their calls, so the served one
// is kept while it is valid.
func decideSwap(in swapInput) (swap bool, again time.Duration) {
	switch {
	case in.Served == nil:
		return true, 0 // Nothing can get worse.
	case in.Served.Equal(in.Offered):
		return false, 0
	case in.Bundle == nil:
		return true, 0
	case verify(in.Served, in.Bundle, in.DNSNames, in.Now) != nil:
		return true, 0 // Callers refuse us already.
	case verify(in.Offered, in.Bundle, in.DNSNames, in.Now) != nil:
		// Not before the served one expires, which is no event.
		return false, in.Served.NotAfter.Sub(in.Now) + time.Second
	}
	if settled := in.BundleSince.Add(in.Settle); in.Now.Before(settled) {
		return false, settled.Sub(in.Now)
	}
	return true, 0
}
