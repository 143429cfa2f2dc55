package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// smallBody is the largest body that never waits for room, in bytes: that of nearly
	// every review. Connections bound how many there are.
	smallBody = 64 << 10
	// roomForBodies is how many bytes of larger bodies may be in memory at the same time.
	// What is made of a body may take ten times as much.
	roomForBodies = 16 << 20
	// frontTimeout is how long we wait for the front of a body that we do not read.
	frontTimeout = 2 * time.Second
	// logEvery is how often turned-away calls are logged.
	logEvery = time.Minute
)

// Door is what stands before all webhooks. It lets only API servers in, before anything
// of a body is read, and bounds how much of bodies is in memory. All fields but
// Certificate and Log are required, see Register.
type Door struct {
	// Token returns nil if a call of a path with this token, empty if it has none, is one
	// of an API server, and otherwise certs.ErrNoToken or certs.ErrWrongToken.
	Token func(path, token string) error
	// Certificate returns nil if the client certificate of a request is that of an API
	// server. It is asked in addition to Token. It is nil without --webhook-client-ca, and
	// then the token alone counts.
	Certificate func(*http.Request) error
	Metrics     *metrics.Door
	Clock       clock.PassiveClock
	Log         logr.Logger

	mu       sync.Mutex
	taken    int64
	loggedAt time.Time
	silenced int
}

// validate fails if something is missing, naming all of it.
func (d *Door) validate() error {
	return controllers.Require("door of the webhooks", map[string]bool{"Token": d.Token != nil, "Metrics": d.Metrics != nil, "Clock": d.Clock != nil})
}

// hook is a webhook behind the door.
type hook interface {
	http.Handler
	unread(uid types.UID, reason translate.Reason) *admissionv1.AdmissionResponse
	limit() int64
}

var (
	_ hook = &EvictionHandler{}
	_ hook = &StatusHandler{}
	_ hook = &ProbeHandler{}
	_ hook = &PodDeleteHandler{}
)

// lead returns a handler that lets API servers in to a webhook.
func (d *Door) lead(path string, to hook) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, path, to) })
}

// refuse returns a handler that turns every call away, as one without a token.
func (d *Door) refuse(to hook) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.logTurnedAway(r, certs.ErrNoToken)
		d.turnAway(w, r, to, metrics.TurnedAwayNoToken, translate.ReasonNotAuthenticated)
	})
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request, path string, to hook) {
	if reason, err := d.authenticate(r, path); err != nil {
		d.logTurnedAway(r, err)
		d.turnAway(w, r, to, reason, translate.ReasonNotAuthenticated)
		return
	}
	if !trusted(r.Context()) {
		w.Header().Set("Connection", "close")
	}
	room := r.ContentLength
	if room < 0 || room > to.limit() {
		room = to.limit() // Not told, or told to be more than is read.
	}
	if room > smallBody {
		if !d.take(room) {
			d.turnAway(w, r, to, metrics.TurnedAwayBusy, translate.ReasonBusy)
			return
		}
		defer d.give(room)
	}
	to.ServeHTTP(w, r)
}

// authenticate returns an error for callers that are no API servers, and what the
// metric calls it.
func (d *Door) authenticate(r *http.Request, path string) (reason string, err error) {
	if err := d.Token(path, r.PathValue("token")); err != nil {
		if errors.Is(err, certs.ErrNoToken) {
			return metrics.TurnedAwayNoToken, err
		}
		return metrics.TurnedAwayWrongToken, err
	}
	if d.Certificate == nil {
		return "", nil
	}
	if err := d.Certificate(r); err != nil {
		return metrics.TurnedAwayCertificate, fmt.Errorf("the client certificate of the call: %w", err)
	}
	return "", nil
}

// turnAway answers without reading more than the front of the body, where the uid is. It
// still answers: an API server may not have the new token yet, and its eviction must not
// bypass us.
func (d *Door) turnAway(w http.ResponseWriter, r *http.Request, to hook, counted string, reason translate.Reason) {
	d.Metrics.TurnedAway(counted)
	w.Header().Set("Connection", "close")
	if r.Method != http.MethodPost {
		http.Error(w, "only API servers are answered", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), frontTimeout)
	defer cancel()
	readUntil(ctx, w) // For good, as the connection ends with this answer.
	front, err := readFront(r)
	uid := uidIn(front)
	if uid == "" {
		d.Log.V(1).Info("Turned a request away that is no admission review", "error", err)
		http.Error(w, "only API servers are answered", http.StatusForbidden)
		return
	}
	respond(w, d.Log, to.unread(uid, reason))
}

// logTurnedAway logs, once a minute, that calls were turned away.
func (d *Door) logTurnedAway(r *http.Request, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Clock.Now()
	if !d.loggedAt.IsZero() && now.Sub(d.loggedAt) < logEvery {
		d.silenced++
		return
	}
	d.Log.Info("Turned a call away that is not one of our API servers'", "reason", err.Error(), "from", r.RemoteAddr,
		"user-agent", r.UserAgent(), "notTold", d.silenced)
	d.loggedAt, d.silenced = now, 0
}

// take takes room for a body, if there is any.
func (d *Door) take(room int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken+room > roomForBodies {
		return false
	}
	d.taken += room
	d.Metrics.InFlight(d.taken)
	return true
}

func (d *Door) give(room int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken -= room
	d.Metrics.InFlight(d.taken)
}

// readUntil has reads of the body fail at the deadline of a context, which is how long
// somebody may take to send it. end is for a body that was read to its end. A writer that
// has no connection, as in tests, has no deadlines either.
func readUntil(ctx context.Context, w http.ResponseWriter) (end func()) {
	control := http.NewResponseController(w)
	deadline, ok := ctx.Deadline()
	if !ok || control.SetReadDeadline(deadline) != nil {
		return func() {}
	}
	return func() { _ = control.SetReadDeadline(time.Time{}) } // An error means that it is gone.
}
