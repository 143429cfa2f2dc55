package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Certificates that are followed: the values of the label certificate.
const (
	// CertificateServing is the one this replica serves.
	CertificateServing = "serving"
	// CertificateAuthority is the one in the Secret that has signed it.
	CertificateAuthority = "authority"
)

// Certificates follow the certificate of the webhook, on every replica.
type Certificates struct {
	expiry *prometheus.GaugeVec
	ready  *prometheus.GaugeVec
}

// NewCertificates registers the metrics of the certificate. It panics if they are
// registered already.
//
//   - drawbridge_webhook_certificate_expiry_timestamp_seconds{certificate} is when it
//     ends, in seconds since 1970. There is no series before there is a certificate.
//   - drawbridge_webhook_certificate_ready{certificate} is, with cert-manager and on
//     the leader, whether the condition Ready of that Certificate is True.
func NewCertificates(registerer prometheus.Registerer) *Certificates {
	factory := promauto.With(registerer)
	return &Certificates{
		expiry: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "drawbridge_webhook_certificate_expiry_timestamp_seconds",
			Help: "When the certificate ends, in seconds since 1970.",
		}, []string{"certificate"}),
		ready: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "drawbridge_webhook_certificate_ready",
			Help: "Whether the Certificate of cert-manager is Ready.",
		}, []string{"certificate"}),
	}
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
