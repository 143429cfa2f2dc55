package webhook

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// smallBody is the largest body that never counts, in bytes: that of nearly every
	// review. Connections bound how many there are.
	smallBody = 64 << 10
	// maxBodies is how many bytes of larger bodies may be in memory at the same time. What
	// is made of a body may take ten times as much.
	maxBodies = 16 << 20
)

// BodyLimit bounds how many bytes of bodies all webhooks have in memory. Metrics is
// required, see Register.
type BodyLimit struct {
	Metrics *metrics.WebhookServer
	Log     logr.Logger

	mu    sync.Mutex
	taken int64
}

// validate fails if something is missing, naming all of it.
func (l *BodyLimit) validate() error {
	return controllers.Require("body limit of the webhooks", map[string]bool{"Metrics": l.Metrics != nil})
}

// handler is a webhook whose calls are authenticated and bounded.
type handler interface {
	http.Handler
	unanswered
	limit() int64
}

var (
	_ handler = &EvictionHandler{}
	_ handler = &StatusHandler{}
	_ handler = &ProbeHandler{}
	_ handler = &PodDeleteHandler{}
)

// bound returns a handler that rejects large calls while there are too many of them.
func (l *BodyLimit) bound(webhook handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := r.ContentLength
		if size < 0 || size > webhook.limit() {
			size = webhook.limit() // Unknown, or more than is read.
		}
		if size > smallBody {
			if !l.acquire(size) {
				l.Metrics.Rejected(metrics.RejectedBusy)
				answerFront(w, r, l.Log, webhook, translate.ReasonBusy)
				return
			}
			defer l.release(size)
		}
		webhook.ServeHTTP(w, r)
	})
}

// acquire reports whether a body of this size may be read now.
func (l *BodyLimit) acquire(size int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken+size > maxBodies {
		return false
	}
	l.taken += size
	l.Metrics.InFlight(l.taken)
	return true
}

func (l *BodyLimit) release(size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken -= size
	l.Metrics.InFlight(l.taken)
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
