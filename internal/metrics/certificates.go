package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificates that are followed: the values of the label certificate.
const (
	// CertificateServing is the one this replica serves.
	CertificateServing = "serving"
	// CertificateAuthority is the one in the Secret that has signed it.
	CertificateAuthority = "authority"
)

var (
	certificatesExpiry = Metric{
		Name: "drawbridge_webhook_certificate_expiry_timestamp_seconds", Type: Gauge, EveryReplica: true,
		Help:   "When the certificate that this replica serves expires, and its authority, in seconds since 1970.",
		Labels: []Label{{Name: "certificate", Values: []string{CertificateServing, CertificateAuthority}}},
	}
	certificatesReady = Metric{
		Name: "drawbridge_webhook_certificate_ready", Type: Gauge,
		Help:   "With cert-manager, 1 when its Certificate is Ready, else 0.",
		Labels: []Label{{Name: "certificate", Bound: "the one Certificate of the chart"}},
	}
	certificatesToken = Metric{
		Name: "drawbridge_webhook_token_required", Type: Gauge, EveryReplica: true,
		Help: "1 if the webhooks reject calls without a token; 0 while API servers still learn the token.",
	}
)

var certificateMetrics = []Metric{certificatesExpiry, certificatesReady, certificatesToken}

// Certificates follow the certificate of the webhook, on every replica.
type Certificates struct {
	expiry *prometheus.GaugeVec
	ready  *prometheus.GaugeVec
	token  *prometheus.GaugeVec
}

// NewCertificates registers the metrics of the certificate. It panics if they are
// registered already. There is no series before there is a certificate.
func NewCertificates(registerer prometheus.Registerer) *Certificates {
	return &Certificates{expiry: certificatesExpiry.gauge(registerer), ready: certificatesReady.gauge(registerer), token: certificatesToken.gauge(registerer)}
}

// Expires sets the end of a certificate.
func (m *Certificates) Expires(certificate string, at time.Time) {
	m.expiry.WithLabelValues(certificate).Set(float64(at.Unix()))
}

// Ready sets whether cert-manager's Certificate of that name is Ready.
func (m *Certificates) Ready(certificate string, ready bool) {
	value := 0.0
	if ready {
		value = 1
	}
	m.ready.WithLabelValues(certificate).Set(value)
}

// TokenRequired sets whether calls without a token are turned away.
func (m *Certificates) TokenRequired(required bool) {
	value := 0.0
	if required {
		value = 1
	}
	m.token.WithLabelValues().Set(value)
}
