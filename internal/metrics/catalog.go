package metrics

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is a metric's type, as Prometheus calls it.
type Type string

// Types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Label of a metric. Either Values is set, and then the label has no others, or
// Bound says in words what limits their number.
type Label struct {
	Name   string
	Values []string
	Bound  string
}

// Metric describes one metric. The reference, and the names that alerts and dashboard
// may use, come from here.
type Metric struct {
	// Name as it is scraped; a histogram's without its suffixes.
	Name string
	Type Type
	// Help says what a value means, with its unit.
	Help string
	// Labels in the order in which their values are given.
	Labels []Label
	// PerRequest: there are series per EvictionRequest, which --metrics-per-request
	// switches off.
	PerRequest bool
	// EveryReplica: all replicas have it, not only the leader.
	EveryReplica bool
	// Buckets of a histogram.
	Buckets []float64
}

// All returns every metric of Drawbridge's own, by name.
func All() []Metric {
	all := slices.Concat(requestMetrics, lifeMetrics, evictorMetrics, webhookMetrics, webhookServerMetrics, certificateMetrics, failurePolicyMetrics, guardMetrics,
		preemptionMetrics, registrationMetrics, surgeMetrics, maintenanceMetrics, vmMetrics, hookMetrics, budgetMetrics, eventMetrics, refusedMetrics, rollbackMetrics, nativeMetrics)
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// valuesOf are the values of a label whose closed set is declared elsewhere, in its
// order.
func valuesOf[T any](set []T) []string {
	values := make([]string, len(set))
	for i, value := range set {
		values[i] = fmt.Sprint(value)
	}
	return values
}

func (m Metric) labelNames() []string {
	names := make([]string, len(m.Labels))
	for i, label := range m.Labels {
		names[i] = label.Name
	}
	return names
}

// desc is the metric for a collector of its own.
func (m Metric) desc() *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.Help, m.labelNames(), nil)
}

// counter registers the metric. It panics if the registerer has it already, like
// every MustRegister; so do the functions below.
func (m Metric) counter(registerer prometheus.Registerer) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.labelNames())
	registerer.MustRegister(vec)
	return vec
}

func (m Metric) gauge(registerer prometheus.Registerer) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.labelNames())
	registerer.MustRegister(vec)
	return vec
}

func (m Metric) histogram(registerer prometheus.Registerer) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.labelNames())
	registerer.MustRegister(vec)
	return vec
}
