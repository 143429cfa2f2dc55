package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// The stages of a request that is not finished.
const (
	// StageStarting: no interceptor is active yet.
	StageStarting = "starting"
	// StageIntercepting: an interceptor of the pod is active.
	StageIntercepting = "intercepting"
	// StageEvicting: imperative-eviction.k8s.io is active, so budgets decide.
	StageEvicting = "evicting"
	// StageDeleting: the request is being deleted, and a finalizer holds it.
	StageDeleting = "deleting"
)

// How an interceptor's turn ended.
const (
	// TurnCompleted: it reported that it is done.
	TurnCompleted = "completed"
	// TurnSkipped: a person ended it, with skippedBy in the interceptor's report.
	TurnSkipped = "skipped"
	// TurnUnchecked: it reported that it is done while no manager ran, and managedFields do
	// not bear it out.
	TurnUnchecked = "unchecked"
	// TurnTimedOut: it was silent for longer than the heartbeat deadline.
	TurnTimedOut = "timed_out"
	// TurnCutOff: the deadline of a requester came before it was done.
	TurnCutOff = "cut_off"
	// TurnNodeLost: the pod's node is lost, and its registration says that it can do nothing
	// then. It may not have begun.
	TurnNodeLost = "node_lost"
	// TurnCutShort: the pod ended before it was done.
	TurnCutShort = "cut_short"
	// TurnCanceled: nobody wanted the eviction any more.
	TurnCanceled = "canceled"
)

// How a request ended.
const (
	// OutcomeEvicted: the pod has ended.
	OutcomeEvicted = "evicted"
	// OutcomeCanceled: nobody wanted the eviction any more.
	OutcomeCanceled = "canceled"
	// OutcomeRefused: the target could not be evicted through the API.
	OutcomeRefused = "refused"
)

// What became of a request's deadline.
const (
	// DeadlineKept: the interceptors were done, or the pod had ended, before it came.
	DeadlineKept = "kept"
	// DeadlineCutOff: it came before they were done, although nobody had said so.
	DeadlineCutOff = "cut_off"
	// DeadlineTooShort: it left an interceptor less than the minimum of its registration.
	DeadlineTooShort = "too_short"
)

var stages = []string{StageStarting, StageIntercepting, StageEvicting, StageDeleting}

var (
	lifeRunning = Metric{
		Name: "drawbridge_eviction_requests", Type: Gauge,
		Help:   "EvictionRequests that are not finished, by stage.",
		Labels: []Label{{Name: "stage", Values: stages}},
	}
	lifeSince = Metric{
		Name: "drawbridge_eviction_requests_oldest_timestamp_seconds", Type: Gauge,
		Help:   "When the EvictionRequest that has been in the stage longest entered it, in seconds since 1970. No series if no request is in the stage.",
		Labels: []Label{{Name: "stage", Values: stages}},
	}
	lifeDuration = Metric{
		Name: "drawbridge_eviction_request_duration_seconds", Type: Histogram,
		Help:    "Time from the creation of an EvictionRequest to its end, in seconds.",
		Labels:  []Label{{Name: "outcome", Values: []string{OutcomeEvicted, OutcomeCanceled, OutcomeRefused}}},
		Buckets: []float64{1, 5, 15, 60, 180, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400},
	}
	lifeTurns = Metric{
		Name: "drawbridge_interceptor_turns_total", Type: Counter,
		Help:   "Turns of interceptors that ended, by how they did. Events name the interceptor.",
		Labels: []Label{{Name: "result", Values: []string{TurnCompleted, TurnSkipped, TurnUnchecked, TurnTimedOut, TurnCutOff, TurnNodeLost, TurnCutShort, TurnCanceled}}},
	}
	lifeDeadlines = Metric{
		Name: "drawbridge_deadlines_total", Type: Counter,
		Help:   "Evicted pods whose interceptors had a deadline, by what became of that: kept, cut_off, or too_short, because an interceptor's minimum did not fit.",
		Labels: []Label{{Name: "result", Values: []string{DeadlineKept, DeadlineCutOff, DeadlineTooShort}}},
	}
)

var lifeMetrics = []Metric{lifeRunning, lifeSince, lifeDuration, lifeTurns, lifeDeadlines}

// Life is the metrics of what requests go through, with no series per request. Safe
// for concurrent use.
type Life struct {
	duration  *prometheus.HistogramVec
	turns     *prometheus.CounterVec
	deadlines *prometheus.CounterVec

	running, since *prometheus.Desc

	mu sync.Mutex
	// places are where the requests are that are not finished.
	places map[types.NamespacedName]place
}

// place is a stage, and since when the request is in it.
type place struct {
	stage string
	since time.Time
}

func newLife(registerer prometheus.Registerer) *Life {
	l := &Life{
		duration:  lifeDuration.histogram(registerer),
		turns:     lifeTurns.counter(registerer),
		deadlines: lifeDeadlines.counter(registerer),
		running:   lifeRunning.desc(),
		since:     lifeSince.desc(),
		places:    map[types.NamespacedName]place{},
	}
	// A rate needs an initial zero: alerts must see the first timeout.
	for _, result := range lifeTurns.Labels[0].Values {
		l.turns.WithLabelValues(result)
	}
	for _, result := range lifeDeadlines.Labels[0].Values {
		l.deadlines.WithLabelValues(result)
	}
	registerer.MustRegister(l)
	return l
}

// TurnEnded counts a turn.
func (l *Life) TurnEnded(result string) { l.turns.WithLabelValues(result).Inc() }

// Finished counts a request that ended, and how long it took.
func (l *Life) Finished(outcome string, took time.Duration) {
	l.duration.WithLabelValues(outcome).Observe(took.Seconds())
}

// DeadlineEnded counts a deadline, by what became of it.
func (l *Life) DeadlineEnded(result string) { l.deadlines.WithLabelValues(result).Inc() }

func (l *Life) observe(request *v1alpha1.EvictionRequest) {
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Name}
	for _, end := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		if meta.IsStatusConditionTrue(request.Status.Conditions, end) {
			l.forget(key)
			return
		}
	}
	at := place{stage: StageStarting, since: request.CreationTimestamp.Time}
	if deleted := request.DeletionTimestamp; deleted != nil {
		at = place{stage: StageDeleting, since: deleted.Time}
	} else if active := request.Status.ActiveInterceptors; len(active) > 0 {
		at.stage = StageIntercepting
		if active[0] == v1alpha1.ImperativeEvictionInterceptor {
			at.stage = StageEvicting
		}
		if activated := request.Status.ActivationTime; activated != nil {
			at.since = activated.Time
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places[key] = at
}

func (l *Life) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.places, key)
}

// Describe implements prometheus.Collector.
func (l *Life) Describe(descs chan<- *prometheus.Desc) {
	descs <- l.running
	descs <- l.since
}

// Collect implements prometheus.Collector. It visits every running request, which a scrape
// can afford and an event could not.
func (l *Life) Collect(metrics chan<- prometheus.Metric) {
	count, oldest := map[string]int{}, map[string]time.Time{}
	l.mu.Lock()
	for _, at := range l.places {
		count[at.stage]++
		if first, ok := oldest[at.stage]; !ok || at.since.Before(first) {
			oldest[at.stage] = at.since
		}
	}
	l.mu.Unlock()
	for _, stage := range stages {
		metrics <- prometheus.MustNewConstMetric(l.running, prometheus.GaugeValue, float64(count[stage]), stage)
		if first, ok := oldest[stage]; ok {
			metrics <- prometheus.MustNewConstMetric(l.since, prometheus.GaugeValue, float64(first.Unix()), stage)
		}
	}
}
