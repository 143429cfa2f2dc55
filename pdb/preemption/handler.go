package preemption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

// PreemptPath is the path that the scheduler calls: its urlPrefix and its preemptVerb.
const PreemptPath = "/preempt"

// maxBody is the largest body we read, in bytes. 5,000 nodes with 110 victims each
// have 30 MB as UIDs; as whole pods they may have more than a gigabyte, and the
// scheduler waits five seconds.
const maxBody = 1 << 30

// ErrNotSynced says that the caches are not complete yet.
var ErrNotSynced = errors.New("the caches are not in sync yet")

// Handler tells the scheduler which of its candidates it may use. All errors are HTTP
// errors: if we are ignorable, the scheduler continues without us.
type Handler struct {
	// View is what is known about pods, budgets and classes.
	View *View
	// Synced reports whether the view is complete.
	Synced func() bool
	// Authenticate returns an error for callers other than the scheduler.
	Authenticate func(*http.Request) error
	// Alternatives looks for other victims; nil to leave the choice to the scheduler.
	Alternatives *Alternatives
	// Recent has the decisions; nil if not needed.
	Recent *RecentDecisions
	// Emitter records events on preemptors; required.
	Emitter *Emitter
	// Metrics, Clock and Log are required.
	Metrics *metrics.Preemption
	Clock   clock.PassiveClock
	Log     logr.Logger
	// Timeout is how long an answer may take, shorter than the scheduler's
	// httpTimeout.
	Timeout time.Duration
}

// problem is an error with its HTTP status.
type problem struct {
	code int
	err  error
}

func (p *problem) Error() string { return p.err.Error() }

func (p *problem) Unwrap() error { return p.err }

// ServeHTTP answers one question.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := h.Clock.Now()
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	decision, err := h.recovered(ctx, w, r)
	if err != nil {
		h.refuse(w, err, begin)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(encode(decision.Kept)); err != nil {
		// The connection is gone; the scheduler counts that as our error.
		h.Log.Error(err, "Write the answer to the scheduler")
	}
	h.Metrics.Answered(result(decision), h.Clock.Since(begin))
}

// refuse writes an HTTP error.
func (h *Handler) refuse(w http.ResponseWriter, err error, begin time.Time) {
	code, result := http.StatusInternalServerError, metrics.PreemptionError
	var p *problem
	if errors.As(err, &p) {
		code = p.code
	}
	if code == http.StatusUnauthorized {
		result = metrics.PreemptionUnauthorized
	}
	h.Log.Info("No answer about a preemption; the scheduler goes on as without us", "code", code, "reason", err.Error())
	http.Error(w, err.Error(), code)
	h.Metrics.Answered(result, h.Clock.Since(begin))
}

// recovered turns a panic into an error: net/http would not send an answer.
func (h *Handler) recovered(ctx context.Context, w http.ResponseWriter, r *http.Request) (decision Decision, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			h.Log.Error(fmt.Errorf("panic: %v", cause), "Panic in an answer to the scheduler", "stack", string(debug.Stack()))
			err = errors.New("internal error")
		}
	}()
	return h.answer(ctx, w, r)
}

func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) (Decision, error) {
	if err := h.Authenticate(r); err != nil {
		return Decision{}, &problem{http.StatusUnauthorized, err}
	}
	if r.Method != http.MethodPost {
		return Decision{}, &problem{http.StatusMethodNotAllowed, fmt.Errorf("method %s: the scheduler sends POST", r.Method)}
	}
	if !h.Synced() {
		return Decision{}, &problem{http.StatusServiceUnavailable, ErrNotSynced}
	}
	in, sent, err := decode(http.MaxBytesReader(w, r.Body, maxBody), h.known)
	if err != nil {
		return Decision{}, &problem{codeOf(err), err}
	}
	h.View.gather(&in, sent)
	if err := ctx.Err(); err != nil {
		return Decision{}, &problem{http.StatusServiceUnavailable, fmt.Errorf("not done within %s: %w", h.Timeout, err)}
	}
	decision := Decide(in)
	if h.Alternatives != nil {
		h.Alternatives.find(ctx, in, sent, &decision)
	}
	if h.Recent != nil {
		h.Recent.remember(in.Preemptor, decision)
	}
	h.observe(in, decision)
	return decision, nil
}

// known reports whether the view has a pod.
func (h *Handler) known(uid types.UID) bool { return h.View.has(uid) }

func (h *Handler) observe(in Input, decision Decision) {
	for i := range decision.Dropped {
		h.Metrics.Dropped(string(decision.Dropped[i].Why))
	}
	if len(decision.Dropped) == 0 {
		return
	}
	h.Log.V(1).Info("A preemption is restricted", "preemptor", in.Preemptor.Namespace+"/"+in.Preemptor.Name,
		"priority", in.Preemptor.Priority, "kept", len(decision.Kept), "dropped", len(decision.Dropped))
	h.Emitter.emit(in, decision)
}

func codeOf(err error) int {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errMalformed):
		return http.StatusBadRequest
	default:
		return http.StatusRequestTimeout
	}
}

func result(d Decision) string {
	switch {
	case d.WithAlternative > 0:
		return metrics.PreemptionSubstituted
	case len(d.Dropped) == 0:
		return metrics.PreemptionUnchanged
	case len(d.Kept) == 0:
		return metrics.PreemptionRefused
	default:
		return metrics.PreemptionRestricted
	}
}
