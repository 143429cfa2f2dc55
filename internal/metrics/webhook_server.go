package metrics

import "github.com/prometheus/client_golang/prometheus"

// Why calls are rejected: the values of the label reason.
const (
	RejectedNoToken     = "no-token"
	RejectedWrongToken  = "wrong-token"
	RejectedCertificate = "certificate"
	RejectedBusy        = "busy"
)

var (
	webhookServerRejected = Metric{
		Name: "drawbridge_webhook_turned_away_total", Type: Counter, EveryReplica: true,
		Help: "Calls of the webhooks that were answered without being read: no or a wrong token, no accepted client certificate, or too many large bodies at once.",
		Labels: []Label{{Name: "reason", Values: []string{
			RejectedNoToken, RejectedWrongToken, RejectedCertificate, RejectedBusy,
		}}},
	}
	webhookServerDropped = Metric{
		Name: "drawbridge_webhook_dropped_connections_total", Type: Counter, EveryReplica: true,
		Help: "Connections to the webhooks' port, silent or without a token, that were closed to make room for others.",
	}
	webhookServerInFlight = Metric{
		Name: "drawbridge_webhook_large_bodies_bytes", Type: Gauge, EveryReplica: true,
		Help: "Memory used by bodies of more than 64 KiB that are being read or answered, in bytes.",
	}
)

var webhookServerMetrics = []Metric{webhookServerRejected, webhookServerDropped, webhookServerInFlight}

// WebhookServer counts calls and connections that the server of the webhooks rejected.
type WebhookServer struct {
	rejected *prometheus.CounterVec
	dropped  prometheus.Counter
	inFlight prometheus.Gauge
}

// NewWebhookServer registers the metrics of that server. It panics if they are
// registered already.
func NewWebhookServer(registerer prometheus.Registerer) *WebhookServer {
	return &WebhookServer{
		rejected: webhookServerRejected.counter(registerer),
		dropped:  webhookServerDropped.counter(registerer).WithLabelValues(),
		inFlight: webhookServerInFlight.gauge(registerer).WithLabelValues(),
	}
}

// Rejected counts one call.
func (m *WebhookServer) Rejected(reason string) { m.rejected.WithLabelValues(reason).Inc() }

// RejectedFor is the counter of one reason, for tests.
func (m *WebhookServer) RejectedFor(reason string) prometheus.Counter {
	return m.rejected.WithLabelValues(reason)
}

// Dropped counts one connection.
func (m *WebhookServer) Dropped() { m.dropped.Inc() }

// InFlight sets how many bytes of large bodies there are.
func (m *WebhookServer) InFlight(bytes int64) { m.inFlight.Set(float64(bytes)) }
