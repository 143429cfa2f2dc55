package metrics

import "github.com/prometheus/client_golang/prometheus"

// Why a pod was given back to its ReplicaSet: values of the label reason.
const (
	// GivenBackFailed: there was no replacement in time.
	GivenBackFailed = "failed"
	// GivenBackCanceled: the eviction was canceled.
	GivenBackCanceled = "canceled"
	// GivenBackScaledToZero: the Deployment wants no pods, so its ReplicaSet deletes
	// the pod.
	GivenBackScaledToZero = "scaled-to-zero"
	// GivenBackOrphaned: no request wanted the eviction when a manager looked, or the
	// Deployment was deleted without its pods.
	GivenBackOrphaned = "orphaned"
)

var (
	surgeHandedUp = Metric{
		Name: "drawbridge_surge_handed_up_total", Type: Counter,
		Help: "Pods that were handed up to their Deployment, or set free from their ReplicaSet, so that a replacement starts before the eviction.",
	}
	surgeReplaced = Metric{
		Name: "drawbridge_surge_replaced_total", Type: Counter,
		Help: "Pods whose Deployment or ReplicaSet had all its replicas available without them before they were evicted.",
	}
	surgeGivenBack = Metric{
		Name: "drawbridge_surge_given_back_total", Type: Counter,
		Help: "Handed-up pods that were given back to their ReplicaSet.",
		Labels: []Label{{Name: "reason", Values: []string{
			GivenBackFailed, GivenBackCanceled, GivenBackScaledToZero, GivenBackOrphaned,
		}}},
	}
	surgeDeclined = Metric{
		Name: "drawbridge_surge_declined_total", Type: Counter,
		Help: "Pods that were not replaced before the next interceptor got its turn.",
		Labels: []Label{{Name: "reason", Values: []string{
			"not-of-a-deployment", "no-surge", "scaled-to-zero", "deployment-deleted", "not-ready", "volume", "service", "rollout-stuck", "cannot-create",
		}}},
	}
)

var surgeMetrics = []Metric{surgeHandedUp, surgeReplaced, surgeGivenBack, surgeDeclined}

// Surge owns the metrics of the surge interceptor. Safe for concurrent use.
type Surge struct {
	handedUp, replaced  prometheus.Counter
	givenBack, declined *prometheus.CounterVec
}

// NewSurge registers the metrics with the registerer and returns them. A registerer
// that already has one of them panics: that is a wiring mistake.
func NewSurge(registerer prometheus.Registerer) *Surge {
	return &Surge{
		handedUp:  surgeHandedUp.counter(registerer).WithLabelValues(),
		replaced:  surgeReplaced.counter(registerer).WithLabelValues(),
		givenBack: surgeGivenBack.counter(registerer),
		declined:  surgeDeclined.counter(registerer),
	}
}

// HandedUp counts a pod that was handed up.
func (m *Surge) HandedUp() { m.handedUp.Inc() }

// Replaced counts a pod whose Deployment was full without it.
func (m *Surge) Replaced() { m.replaced.Inc() }

// GivenBack counts a pod that was given back for one of the reasons above.
func (m *Surge) GivenBack(reason string) { m.givenBack.WithLabelValues(reason).Inc() }

// Declined counts a pod that was not replaced, for a reason from a closed set.
func (m *Surge) Declined(reason string) { m.declined.WithLabelValues(reason).Inc() }
