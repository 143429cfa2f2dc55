// Package metrics holds the metrics of Drawbridge, one file per owner.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Requests owns the five metrics that KEP-4563 names (statements 105 and 106).
// All of them have one series per request, so every series is removed when its
// request goes (statement 108). Safe for concurrent use.
type Requests struct {
	imperativeEvictions  *prometheus.CounterVec
	activeInterceptor    *prometheus.GaugeVec
	processedInterceptor *prometheus.GaugeVec
	activeRequester      *prometheus.GaugeVec
	podInterceptors      *prometheus.GaugeVec

	mu sync.Mutex
	// known remembers the labels in use. Without it, forgetting one request would
	// search all series of all requests.
	known map[types.NamespacedName]requestLabels
}

// requestLabels are the labels of one request's series that its key does not
// tell.
type requestLabels struct {
	pod         string
	interceptor string
}

// NewRequests registers the metrics with the registerer and returns them. A
// registerer that already has one of them panics: that is a mistake of wiring.
func NewRequests(registerer prometheus.Registerer) *Requests {
	factory := promauto.With(registerer)
	labels := []string{"namespace", "evictionrequest", "pod"}
	return &Requests{
		imperativeEvictions: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "evictionrequest_controller_imperative_evictions",
			Help: "Failed calls of the eviction subresource by imperative-eviction.k8s.io, per EvictionRequest and pod.",
		}, labels),
		activeInterceptor: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evictionrequest_controller_active_interceptor",
			Help: "1 for the interceptor that is active, per EvictionRequest and pod. The others have no series.",
		}, []string{"namespace", "evictionrequest", "pod", "interceptor"}),
		processedInterceptor: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evictionrequest_controller_processed_interceptor",
			Help: "Number of interceptors that were active before and are not any more, per EvictionRequest and pod.",
		}, labels),
		activeRequester: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evictionrequest_controller_active_requester",
			Help: "Number of requesters that want the eviction, per EvictionRequest and pod.",
		}, labels),
		podInterceptors: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "evictionrequest_controller_pod_interceptors",
			Help: "Number of interceptors available for the pod, the default one included, per EvictionRequest and pod.",
		}, labels),
		known: map[types.NamespacedName]requestLabels{},
	}
}

// Observe sets the four gauges to what the request says. A request without a pod
// as its target has no series.
func (m *Requests) Observe(request *v1alpha1.EvictionRequest) {
	if request.Spec.Target.Pod == nil {
		return
	}
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Name}
	next := requestLabels{pod: request.Spec.Target.Pod.Name}
	if active := request.Status.ActiveInterceptors; len(active) > 0 {
		next.interceptor = active[0]
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	// The old series goes before the new one comes: a scrape in between may see
	// none, but never two.
	if last, ok := m.known[key]; ok && last != next && last.interceptor != "" {
		m.activeInterceptor.DeleteLabelValues(key.Namespace, key.Name, last.pod, last.interceptor)
	}
	m.known[key] = next
	if next.interceptor != "" {
		m.activeInterceptor.WithLabelValues(key.Namespace, key.Name, next.pod, next.interceptor).Set(1)
	}
	m.processedInterceptor.WithLabelValues(key.Namespace, key.Name, next.pod).Set(float64(len(request.Status.ProcessedInterceptors)))
	m.activeRequester.WithLabelValues(key.Namespace, key.Name, next.pod).Set(float64(len(request.Spec.Requesters)))
	m.podInterceptors.WithLabelValues(key.Namespace, key.Name, next.pod).Set(float64(len(request.Status.TargetInterceptors)))
}

// ImperativeEvictionFailed counts one failed call of the eviction subresource
// (statement 83, ruling R12). A caller whose call outlasts the request must
// Forget it afterwards, or the series stays.
func (m *Requests) ImperativeEvictionFailed(namespace, name, pod string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if _, ok := m.known[key]; !ok {
		m.known[key] = requestLabels{pod: pod}
	}
	m.imperativeEvictions.WithLabelValues(namespace, name, pod).Inc()
}

// Forget removes all series of a request that is gone. Forgetting an unknown
// request does nothing.
func (m *Requests) Forget(namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	last, ok := m.known[key]
	if !ok {
		return
	}
	delete(m.known, key)
	m.activeInterceptor.DeleteLabelValues(namespace, name, last.pod, last.interceptor)
	m.processedInterceptor.DeleteLabelValues(namespace, name, last.pod)
	m.activeRequester.DeleteLabelValues(namespace, name, last.pod)
	m.podInterceptors.DeleteLabelValues(namespace, name, last.pod)
	m.imperativeEvictions.DeleteLabelValues(namespace, name, last.pod)
}
