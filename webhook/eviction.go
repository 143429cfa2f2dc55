package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Config is what the webhook of evictions needs. Interfaces, functions, pointers and names
// are required; numbers, lists and Log have a default or may be empty.
type Config struct {
	// Cached reads from the informers: pods, nodes and evictionrequests (with the
	// indexes of internal/index).
	Cached client.Reader
	// Leases has our leases by name.
	Leases *LeaseIndex
	// Live reads from the API server.
	Live client.Reader
	// Writer writes requests and leases.
	Writer client.Client
	// Synced reports whether the informers have their first list.
	Synced func() bool
	// Resolver says who intercepts a pod.
	Resolver registration.Resolver
	// Registrations say who acts under an interceptor's name.
	Registrations registration.Lookup
	// Preflights returns the interceptor of that name if it may allow or deny before a
	// request exists, nil otherwise. It may change over time. The pod may be shared with the
	// informers and must not be changed.
	Preflights func(name string) preflight.Interceptor
	// Stalled tells in a few constant words why the interceptor whose turn it is in a
	// request cannot go on, or has given up; empty if it goes on. It answers from memory.
	Stalled func(ctx context.Context, pod *corev1.Pod, er *v1alpha1.EvictionRequest) string
	// Native tells of the native Eviction of a pod, by its namespace and UID. It answers from
	// memory. Optional.
	Native func(ctx context.Context, pod types.NamespacedName, er *v1alpha1.EvictionRequest) (NativeTurn, error)
	// NewRequestsPerNode is how many requests the callers of one class may begin on
	// a node within a minute, for each of LimitedClasses; 0 is no limit.
	NewRequestsPerNode int
	LimitedClasses     []translate.CallerClass
	// AllowedReserved are the reserved names that a pod may use (ruling R14), as in the
	// Resolver: no event warns about them.
	AllowedReserved []string
	// Recorder writes events.
	Recorder events.EventRecorder
	// Metrics are those of metrics.NewWebhook.
	Metrics *metrics.Webhook
	// Clock tells the time.
	Clock clock.PassiveClock
	// Log is where verdicts go: what is written at level 0, repetitions at level 1.
	Log logr.Logger
	// Namespace is our own, where the leases live.
	Namespace string
	// OwnUsername is our own account. It gets no blanket permission; only its denials are
	// confirmed by a live read, and it never becomes a requester.
	OwnUsername string
	// Replacement is the mode of the replacement guard, ReplacementNotFound if empty.
	Replacement ReplacementMode
	// ReplacementWindow is how long after a pod's eviction its replacement is guarded,
	// 15 minutes if zero. Finished requests must be kept at least that long.
	ReplacementWindow time.Duration
	// Silence says how long callers of a class may be silent, if it differs from the
	// default.
	Silence map[translate.CallerClass]time.Duration
	// MarkerLimit is how long a drain marker keeps the lease of a silent controller,
	// 24 hours if zero.
	MarkerLimit time.Duration
	// GroupsHidden: the API server is of the one version (1.35) whose pods name their
	// group in a field that our types do not have.
	GroupsHidden bool
	// Gate answers for the guard of pods, also where it is switched off.
	Gate Gate
}

// DefaultReplacementWindow is how long a replacement is guarded (callers.md, section 9).
const DefaultReplacementWindow = 15 * time.Minute

// EvictionHandler answers the reviews of pods/eviction.
type EvictionHandler struct {
	Config
	leases  *leases
	renewer *Renewer
	// written bridges the informer's lag: applyKey -> Written.
	written *cache.LRUExpireCache
	// emitted has the emissions about pods, see firstTime.
	emitted *cache.LRUExpireCache
	starts  *starts
	stale   staleCalls
	// passed has the recently allowed calls: namespace/name -> letThrough.
	passed   *cache.LRUExpireCache
	applying group[translate.Verdict]
	asking   group[[]Asked]
}

// validate fails if something is missing, naming all of it.
func (c *Config) validate() error {
	return controllers.Require("webhook of evictions", map[string]bool{
		"Cached": c.Cached != nil, "Leases": c.Leases != nil, "Live": c.Live != nil, "Writer": c.Writer != nil, "Synced": c.Synced != nil,
		"Resolver": c.Resolver != nil, "Registrations": c.Registrations != nil, "Preflights": c.Preflights != nil, "Stalled": c.Stalled != nil,
		"Recorder": c.Recorder != nil, "Metrics": c.Metrics != nil, "Clock": c.Clock != nil, "Gate": c.Gate != nil,
		"Namespace": c.Namespace != "", "OwnUsername": c.OwnUsername != "",
	})
}

// NewEvictionHandler returns the handler and the runnable that renews leases for
// it. Both run on every replica. It fails if a required field of the config is missing.
func NewEvictionHandler(c Config) (*EvictionHandler, *Renewer, error) {
	if err := c.validate(); err != nil {
		return nil, nil, err
	}
	if c.Replacement == "" {
		c.Replacement = ReplacementNotFound
	}
	if c.ReplacementWindow == 0 {
		c.ReplacementWindow = DefaultReplacementWindow
	}
	if c.MarkerLimit == 0 {
		c.MarkerLimit = translate.DefaultMarkerLimit
	}
	l := newLeases(c)
	h := &EvictionHandler{
		Config: c, leases: l, renewer: newRenewer(l, c.Metrics),
		written: cache.NewLRUExpireCacheWithClock(maxRemembered, c.Clock),
		emitted: cache.NewLRUExpireCacheWithClock(maxRemembered, c.Clock),
		stale:   staleCalls{cache.NewLRUExpireCacheWithClock(maxStale, c.Clock)},
		passed:  cache.NewLRUExpireCacheWithClock(maxRemembered, c.Clock),
		starts:  newStarts(c.NewRequestsPerNode, c.LimitedClasses, c.Clock),
	}
	return h, h.renewer, nil
}

// ServeHTTP answers one review.
func (h *EvictionHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serve[evictionReview](w, r, h.Log, h)
}

// answer decides on one call and does what that takes.
func (h *EvictionHandler) answer(ctx context.Context, request *evictionReview) (*admissionv1.AdmissionResponse, error) {
	start := h.Clock.Now()
	call, err := decodeCall(request)
	if err != nil {
		return nil, err
	}
	if silence, ok := h.Silence[call.Caller.Class]; ok {
		call.Caller.TTL = silence
	}
	verdict, wrote := h.judge(ctx, call)
	h.Metrics.Verdict(verdict.Outcome.String(), string(verdict.Reason), string(call.Caller.Class), h.Clock.Since(start))
	level := 1
	if wrote || verdict.Reason == translate.ReasonReplacement {
		level = 0
	}
	// Asked first, because boxing the values costs more than all the rest of a
	// repeated denial.
	if log := logr.FromContextOrDiscard(ctx).V(level); log.Enabled() {
		log.Info("Eviction call", "verdict", verdict.Outcome.String(), "reason", verdict.Reason,
			"namespace", call.Namespace, "pod", call.Pod, "request", verdict.Subject.Request,
			"caller", call.Caller.Display, "requester", call.Caller.Requester, "class", call.Caller.Class)
	}
	return verdict.Response(request.UID), nil
}

// afterPanic is a denial that every caller retries.
func (h *EvictionHandler) afterPanic(object reviewedObject) *admissionv1.AdmissionResponse {
	about := translate.Subject{Namespace: object.namespace, Pod: object.name}
	verdict := translate.Trouble(about, translate.ReasonInternalError)
	h.Metrics.Verdict(verdict.Outcome.String(), string(verdict.Reason), string(translate.ClassUnknown), 0)
	return verdict.Response(object.uid)
}

// limit is that of one object: an eviction has no older one.
func (h *EvictionHandler) limit() int64 { return maxReview }

// undecodable is a denial that every caller retries.
func (h *EvictionHandler) undecodable(uid types.UID, reason translate.Reason) *admissionv1.AdmissionResponse {
	verdict := translate.Undecodable(reason)
	h.Metrics.Verdict(verdict.Outcome.String(), string(verdict.Reason), string(translate.ClassUnknown), 0)
	return verdict.Response(uid)
}

// judge gathers, decides and applies. Failures become a verdict, too: 429, to be retried.
func (h *EvictionHandler) judge(ctx context.Context, call Call) (verdict translate.Verdict, wrote bool) {
	if !h.Synced() {
		return h.trouble(ctx, call, translate.ReasonNotSynced, nil), false
	}
	in, decision, err := h.decide(ctx, call)
	if err != nil {
		return h.trouble(ctx, call, translate.ReasonLookupFailed, err), false
	}
	if !call.DryRun && decision.Action != ActNotifyEnd {
		h.emit(in, decision)
	}
	if !call.DryRun {
		h.noteLetThrough(in, decision.Verdict)
	}
	if decision.Action == ActNothing {
		// Allowed calls count, too: a budget may refuse for a long time what we allow, and a
		// caller that still calls is still interested.
		if in.leaseDue && !call.DryRun {
			h.renewer.enqueue(in.LeaseName, call.Caller)
		}
		return decision.Verdict, false
	}
	if decision.Action == ActNotifyEnd {
		// Never shared with another call: each loop is notified of the end with its own
		// record.
		verdict, err = h.notifyEnd(ctx, in, decision)
	} else {
		verdict, err = h.applyOnce(ctx, in, decision)
	}
	var refusal *refused.Error
	if errors.As(err, &refusal) {
		return h.refused(ctx, call, refusal), true
	}
	if err != nil {
		return h.trouble(ctx, call, translate.ReasonWriteFailed, err), true
	}
	if decision.Action == ActNotifyEnd && verdict.Outcome == decision.Verdict.Outcome {
		h.emit(in, decision)
	}
	return verdict, true
}

// applyOnce is apply, whose result calls for the same share that come at the same time. It is not
// part of judge, where the closure would move its input to the heap in every call.
func (h *EvictionHandler) applyOnce(ctx context.Context, in gathered, decision Decision) (translate.Verdict, error) {
	return h.applying.do(ctx, applyKey(in), func(ctx context.Context) (translate.Verdict, error) {
		return h.apply(ctx, in, decision)
	})
}

// trouble is the verdict on our own failure. The error goes to the log only: the
// caller's text is constant, and tells nothing of our inside.
func (h *EvictionHandler) trouble(ctx context.Context, call Call, reason translate.Reason, err error) translate.Verdict {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		reason = translate.ReasonDeadline
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Coordinate an eviction", "namespace", call.Namespace, "pod", call.Pod, "reason", reason)
	}
	about := translate.Subject{Namespace: call.Namespace, Pod: call.Pod, Requester: call.Caller.Requester}
	verdict := translate.Trouble(about, reason)
	if call.DryRun {
		return verdict.InDryRun()
	}
	return verdict
}

// refused is the verdict on a write that the cluster refuses for good. Its text is the same
// for a cause; the server's words are in an event on the pod.
func (h *EvictionHandler) refused(ctx context.Context, call Call, refusal *refused.Error) translate.Verdict {
	logr.FromContextOrDiscard(ctx).V(1).Info("A write for an eviction is refused", "namespace", call.Namespace, "pod", call.Pod, "cause", refusal.Cause, "reason", refusal.Error())
	about := translate.Subject{Namespace: call.Namespace, Pod: call.Pod, Requester: call.Caller.Requester}
	if refusal.Write == refused.Lease {
		return translate.WriteRefused(about, refusal.Cause.Who(h.Namespace), "the lease of the caller")
	}
	return translate.WriteRefused(about, refusal.Cause.Who(call.Namespace), "the request")
}

// stalled says why the active interceptor makes no progress, if known.
func (h *EvictionHandler) stalled(ctx context.Context, pod *corev1.Pod, er *v1alpha1.EvictionRequest) string {
	if pod == nil || er == nil || len(er.Status.ActiveInterceptors) == 0 {
		return ""
	}
	return h.Stalled(ctx, pod, er)
}

// maxLooks limits the rounds of one decision: each need is met once, and a live read may
// show another pod, which starts over.
const maxLooks = 10

// decide meets the needs of the decision until it is final.
func (h *EvictionHandler) decide(ctx context.Context, call Call) (gathered, Decision, error) {
	in, err := h.gather(ctx, call)
	if err != nil {
		return in, Decision{}, err
	}
	for range maxLooks {
		in.GuardView = viewGuard(h.Gate, in.Pod)
		in.Stalled = h.stalled(ctx, in.Pod, in.Request)
		decision := Decide(in.Input)
		if decision.Need == NeedNothing {
			return in, decision, nil
		}
		if err := h.observe(ctx, &in, decision.Need); err != nil {
			return in, Decision{}, err
		}
	}
	return in, Decision{}, fmt.Errorf("decide on the eviction of pod %s/%s: still undecided after %d looks", call.Namespace, call.Pod, maxLooks)
}
