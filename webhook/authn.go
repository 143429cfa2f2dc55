package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/internal/certs"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// frontTimeout is how long we wait for the front of a body that we do not read.
	frontTimeout = 2 * time.Second
	// logEvery is how often unauthenticated calls are logged.
	logEvery = time.Minute
)

// Authenticator accepts calls of API servers only, before anything of a body is read. All
// fields but Certificate and Log are required, see Register.
type Authenticator struct {
	// Token returns nil if a call of a path with this token, empty if it has none, is one
	// of an API server, and otherwise certs.ErrNoToken or certs.ErrWrongToken.
	Token func(path, token string) error
	// Certificate returns nil if the client certificate of a request is that of an API
	// server. It is asked in addition to Token. It is nil without --webhook-client-ca, and
	// then the token alone counts.
	Certificate func(*http.Request) error
	Metrics     *metrics.WebhookServer
	Clock       clock.PassiveClock
	Log         logr.Logger

	mu       sync.Mutex
	loggedAt time.Time
	silenced int
}

// validate fails if something is missing, naming all of it.
func (a *Authenticator) validate() error {
	return controllers.Require("authenticator of the webhooks", map[string]bool{"Token": a.Token != nil, "Metrics": a.Metrics != nil, "Clock": a.Clock != nil})
}

// require returns a handler that passes only calls of API servers on to next. The webhook
// that is behind it says how others are answered.
func (a *Authenticator) require(path string, webhook unanswered, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason, err := a.authenticate(r, path); err != nil {
			a.reject(w, r, webhook, reason, err)
			return
		}
		if !trusted(r.Context()) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// rejectAll returns a handler that rejects every call, as one without a token.
func (a *Authenticator) rejectAll(webhook unanswered) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.reject(w, r, webhook, metrics.RejectedNoToken, certs.ErrNoToken)
	})
}

// authenticate returns an error for callers that are no API servers, and what the
// metric calls it.
func (a *Authenticator) authenticate(r *http.Request, path string) (reason string, err error) {
	if err := a.Token(path, r.PathValue("token")); err != nil {
		if errors.Is(err, certs.ErrNoToken) {
			return metrics.RejectedNoToken, err
		}
		return metrics.RejectedWrongToken, err
	}
	if a.Certificate == nil {
		return "", nil
	}
	if err := a.Certificate(r); err != nil {
		return metrics.RejectedCertificate, fmt.Errorf("the client certificate of the call: %w", err)
	}
	return "", nil
}

func (a *Authenticator) reject(w http.ResponseWriter, r *http.Request, webhook unanswered, counted string, err error) {
	a.logUnauthenticated(r, err)
	a.Metrics.Rejected(counted)
	answerFront(w, r, a.Log, webhook, translate.ReasonNotAuthenticated)
}

// logUnauthenticated logs, once a minute, that calls were rejected.
func (a *Authenticator) logUnauthenticated(r *http.Request, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Clock.Now()
	if !a.loggedAt.IsZero() && now.Sub(a.loggedAt) < logEvery {
		a.silenced++
		return
	}
	a.Log.Info("Turned a call away that is not one of our API servers'", "reason", err.Error(), "from", r.RemoteAddr,
		"user-agent", r.UserAgent(), "notTold", a.silenced)
	a.loggedAt, a.silenced = now, 0
}

// answerFront answers without reading more than the front of the body, where the uid is. It
// still answers: an API server may not have the new token yet, and its eviction must not
// bypass us.
func answerFront(w http.ResponseWriter, r *http.Request, log logr.Logger, webhook unanswered, reason translate.Reason) {
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
		log.V(1).Info("Turned a request away that is no admission review", "error", err)
		http.Error(w, "only API servers are answered", http.StatusForbidden)
		return
	}
	respond(w, log, webhook.undecodable(uid, reason))
}
