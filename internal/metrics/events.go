package metrics

import "github.com/prometheus/client_golang/prometheus"

var eventsDropped = Metric{
	Name: "drawbridge_events_dropped_total", Type: Counter, EveryReplica: true,
	Help: "Events that were not written, because too many others were waiting to be written.",
}

var eventMetrics = []Metric{eventsDropped}

// Events counts events that are lost.
type Events struct{ dropped prometheus.Counter }

// NewEvents registers the metrics of events. It panics if they are registered already.
func NewEvents(registerer prometheus.Registerer) *Events {
	return &Events{dropped: eventsDropped.counter(registerer).WithLabelValues()}
}

// Dropped counts one event.
func (m *Events) Dropped() { m.dropped.Inc() }
