package metrics

import "github.com/prometheus/client_golang/prometheus"

// Why calls are turned away: the values of the label reason.
const (
	TurnedAwayNoToken     = "no-token"
	TurnedAwayWrongToken  = "wrong-token"
	TurnedAwayCertificate = "certificate"
	TurnedAwayBusy        = "busy"
)

var (
	doorTurnedAway = Metric{
		Name: "drawbridge_webhook_turned_away_total", Type: Counter, EveryReplica: true,
		Help: "Calls of the webhooks that were answered without being read: no or a wrong token, no accepted client certificate, or too many large bodies at once.",
		Labels: []Label{{Name: "reason", Values: []string{
			TurnedAwayNoToken, TurnedAwayWrongToken, TurnedAwayCertificate, TurnedAwayBusy,
		}}},
	}
	doorDropped = Metric{
		Name: "drawbridge_webhook_dropped_connections_total", Type: Counter, EveryReplica: true,
		Help: "Connections to the webhooks' port, silent or without a token, that were closed to make room for others.",
	}
	doorInFlight = Metric{
		Name: "drawbridge_webhook_large_bodies_bytes", Type: Gauge, EveryReplica: true,
		Help: "Memory used by bodies of more than 64 KiB that are being read or answered, in bytes.",
	}
)

var doorMetrics = []Metric{doorTurnedAway, doorDropped, doorInFlight}

// Door counts calls and connections that were turned away from the webhooks.
type Door struct {
	turnedAway *prometheus.CounterVec
	dropped    prometheus.Counter
	inFlight   prometheus.Gauge
}

// NewDoor registers the metrics of the door. It panics if they are registered already.
func NewDoor(registerer prometheus.Registerer) *Door {
	return &Door{
		turnedAway: doorTurnedAway.counter(registerer),
		dropped:    doorDropped.counter(registerer).WithLabelValues(),
		inFlight:   doorInFlight.gauge(registerer).WithLabelValues(),
	}
}

// TurnedAway counts one call.
func (m *Door) TurnedAway(reason string) { m.turnedAway.WithLabelValues(reason).Inc() }

// Turned is the counter of one reason, for tests.
func (m *Door) Turned(reason string) prometheus.Counter { return m.turnedAway.WithLabelValues(reason) }

// Dropped counts one connection.
func (m *Door) Dropped() { m.dropped.Inc() }

// InFlight sets how many bytes of large bodies there are.
func (m *Door) InFlight(bytes int64) { m.inFlight.Set(float64(bytes)) }
