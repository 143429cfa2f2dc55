// Package metrics holds the metrics of Drawbridge, one file per owner. What each of
// them means is in the catalog, All.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// perRequest are the labels of one request.
var perRequest = []Label{
	{Name: "namespace", Bound: "the existing EvictionRequests; the series disappear with the object"},
	{Name: "evictionrequest", Bound: "as namespace"},
	{Name: "pod", Bound: "as namespace"},
}

var (
	requestsActiveInterceptor = Metric{
		Name: "evictionrequest_controller_active_interceptor", Type: Gauge, PerRequest: true,
		Help:   "1 for the active interceptor, per EvictionRequest and pod. Other interceptors have no series.",
		Labels: append(perRequest[:3:3], Label{Name: "interceptor", Bound: "one per EvictionRequest"}),
	}
	requestsProcessedInterceptor = Metric{
		Name: "evictionrequest_controller_processed_interceptor", Type: Gauge, PerRequest: true, Labels: perRequest,
		Help: "Number of interceptors that are no longer active, per EvictionRequest and pod.",
	}
	requestsActiveRequester = Metric{
		Name: "evictionrequest_controller_active_requester", Type: Gauge, PerRequest: true, Labels: perRequest,
		Help: "Number of requesters that want the eviction, per EvictionRequest and pod.",
	}
	requestsPodInterceptors = Metric{
		Name: "evictionrequest_controller_pod_interceptors", Type: Gauge, PerRequest: true, Labels: perRequest,
		Help: "Number of interceptors of the pod, including the default one, per EvictionRequest and pod.",
	}
	requestsImperativeEvictions = Metric{
		Name: "evictionrequest_controller_imperative_evictions", Type: Counter, PerRequest: true, Labels: perRequest,
		Help: "Failed calls of the eviction subresource by imperative-eviction.k8s.io, per EvictionRequest and pod.",
	}
)

var requestMetrics = []Metric{
	requestsActiveInterceptor, requestsProcessedInterceptor, requestsActiveRequester, requestsPodInterceptors, requestsImperativeEvictions,
}

// Requests owns the metrics that follow the requests: the five that KEP-4563 names
// (statements 105 and 106), which have a series per request, and those of [Life],
// which have not. Every series of a request is removed when it goes (statement 108).
// Safe for concurrent use.
type Requests struct {
	*Life

	imperativeEvictions  *prometheus.CounterVec
	activeInterceptor    *prometheus.GaugeVec
	processedInterceptor *prometheus.GaugeVec
	activeRequester      *prometheus.GaugeVec
	podInterceptors      *prometheus.GaugeVec

	mu sync.Mutex
	// known remembers the labels in use. Without it, forgetting one request would
	// search all series of all requests. Nil without series per request.
	known map[types.NamespacedName]requestLabels
}

// requestLabels are the labels of one request's series that its key does not
// tell.
type requestLabels struct {
	pod         string
	interceptor string
}

// NewRequests registers the metrics with the registerer and returns them. With
// perRequest false those with a series per request are left out. A registerer that
// already has one of them panics: that is a wiring mistake.
func NewRequests(registerer prometheus.Registerer, perRequest bool) *Requests {
	m := &Requests{Life: newLife(registerer)}
	if !perRequest {
		return m
	}
	m.imperativeEvictions = requestsImperativeEvictions.counter(registerer)
	m.activeInterceptor = requestsActiveInterceptor.gauge(registerer)
	m.processedInterceptor = requestsProcessedInterceptor.gauge(registerer)
	m.activeRequester = requestsActiveRequester.gauge(registerer)
	m.podInterceptors = requestsPodInterceptors.gauge(registerer)
	m.known = map[types.NamespacedName]requestLabels{}
	return m
}

// Observe sets the metrics to what the request says. A request without a pod as its
// target has no series.
func (m *Requests) Observe(request *v1alpha1.EvictionRequest) {
	m.observe(request)
	if m.known == nil || request.Spec.Target.Pod == nil {
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
	if m.known == nil {
		return
	}
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
	key := types.NamespacedName{Namespace: namespace, Name: name}
	m.forget(key)
	m.mu.Lock()
	defer m.mu.Unlock()
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
