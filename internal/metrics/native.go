package metrics

import "github.com/prometheus/client_golang/prometheus"

// Who moves the Evictions of lifecycle.k8s.io.
const (
	// NativeDrawbridge: the controllers are ours.
	NativeDrawbridge = "drawbridge"
	// NativeCluster: somebody else has them.
	NativeCluster = "cluster"
	// NativeNobody: the API is not served, or this replica does not lead.
	NativeNobody = "nobody"
)

var whoMovesEvictions = []string{NativeDrawbridge, NativeCluster, NativeNobody}

var nativeInCharge = Metric{
	Name: "drawbridge_native_in_charge", Type: Gauge,
	Help:   "1 for who moves the Evictions of lifecycle.k8s.io: nobody, if the API server does not serve them.",
	Labels: []Label{{Name: "who", Values: whoMovesEvictions}},
}

var nativeMetrics = []Metric{nativeInCharge}

// Native shows who moves native Evictions. Safe for concurrent use.
type Native struct{ inCharge *prometheus.GaugeVec }

// NewNative registers the metric. It panics if it is registered already.
func NewNative(registerer prometheus.Registerer) *Native {
	n := &Native{inCharge: nativeInCharge.gauge(registerer)}
	n.InCharge(NativeNobody)
	return n
}

// InCharge sets who it is.
func (n *Native) InCharge(who string) {
	for _, one := range whoMovesEvictions {
		value := 0.0
		if one == who {
			value = 1
		}
		n.inCharge.WithLabelValues(one).Set(value)
	}
}
