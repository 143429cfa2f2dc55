// Package protect restricts an HTTP endpoint to users that the API server authenticates
// and authorizes: the bearer token is checked with a TokenReview, the path with a
// SubjectAccessReview, as kubelets and API servers do for their metrics.
//
// controller-runtime's pkg/metrics/filters does the same on top of the API server's
// own libraries, which bring gRPC, OpenTelemetry and an egress proxy into the program.
package protect

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
)

const (
	// askTimeout limits both reviews together.
	askTimeout = 5 * time.Second
	// allowedFor and deniedFor are how long an answer is remembered: a scraper comes
	// every few seconds, and users who were just given the permission try again.
	allowedFor = time.Minute
	deniedFor  = 10 * time.Second
	// mostAnswers limits the memory, asksPerSecond the reviews that strangers can
	// cause.
	mostAnswers   = 1000
	asksPerSecond = 10
)

// Filter guards handlers. Safe for concurrent use.
//
// Permissions: create tokenreviews and subjectaccessreviews.
type Filter struct {
	Tokens  authenticationclient.TokenReviewsGetter
	Rights  authorizationclient.SubjectAccessReviewsGetter
	Clock   clock.PassiveClock
	limiter *rate.Limiter

	mu      sync.Mutex
	answers map[question]answer
}

// question is the key of an answer. The token itself is not kept.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

type answer struct {
	code  int
	until time.Time
}

// New returns a filter.
func New(tokens authenticationclient.TokenReviewsGetter, rights authorizationclient.SubjectAccessReviewsGetter, c clock.PassiveClock) *Filter {
	return &Filter{Tokens: tokens, Rights: rights, Clock: c, limiter: rate.NewLimiter(asksPerSecond, asksPerSecond), answers: map[question]answer{}}
}

// Wrap guards a handler. Refused calls get 401 (no or an unknown token), 403 (no
// permission), 429 (too many new tokens) or 503 (the API server does not answer).
func (f *Filter) Wrap(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := f.judge(r)
		if err != nil {
			log.Error(err, "Ask whether a caller may read the metrics")
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// judge returns http.StatusOK for a request that may pass.
func (f *Filter) judge(r *http.Request) (int, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !ok || token == "" {
		return http.StatusUnauthorized, nil
	}
	q := question{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
	if code, ok := f.remembered(q); ok {
		return code, nil
	}
	if !f.limiter.AllowN(f.Clock.Now(), 1) {
		return http.StatusTooManyRequests, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	code, err := f.ask(ctx, token, q)
	if err != nil {
		return http.StatusServiceUnavailable, err // Not remembered: it says nothing about the caller.
	}
	f.remember(q, code)
	return code, nil
}

// ask authenticates and then authorizes the caller at the API server.
func (f *Filter) ask(ctx context.Context, token string, q question) (int, error) {
	review, err := f.Tokens.TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review token: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := f.Rights.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: q.verb, Path: q.path},
	}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("review access of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

func (f *Filter) remembered(q question) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.answers[q]
	if !ok || f.Clock.Now().After(a.until) {
		return 0, false
	}
	return a.code, true
}

func (f *Filter) remember(q question, code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.answers) >= mostAnswers {
		clear(f.answers) // All callers are reviewed again.
	}
	lasts := deniedFor
	if code == http.StatusOK {
		lasts = allowedFor
	}
	f.answers[q] = answer{code, f.Clock.Now().Add(lasts)}
}
