package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// DefaultTimeout is what we assume when the API server does not say how long it
	// waits for us; the smallest that callers.md W6 recommends.
	DefaultTimeout = 3 * time.Second
	// maxTimeout is the longest that an API server waits for a webhook.
	maxTimeout = 30 * time.Second
	// deadlineShare is the part of that time, in percent, after which we answer
	// with what we have (rule W6).
	deadlineShare = 90
)

// errNotReview is the root of all errors about what a body says.
var errNotReview = errors.New("not an admission review we serve")

// answerer is one admission webhook without its HTTP side. R is what it reads of a
// request.
type answerer[R reviewed] interface {
	unanswered
	// answer decides on a review whose request is complete. An error means that
	// the request cannot be what it claims to be.
	answer(ctx context.Context, request *R) (*admissionv1.AdmissionResponse, error)
	// afterPanic is the answer when answer has panicked, about what is given.
	afterPanic(about reviewedObject) *admissionv1.AdmissionResponse
	// limit is the largest body to read, in bytes.
	limit() int64
}

// unanswered is what a webhook says of a review that it cannot or will not read.
type unanswered interface {
	undecodable(uid types.UID, reason translate.Reason) *admissionv1.AdmissionResponse
}

// reviewed is what webhooks read of a request: all of it, or what they need.
type reviewed interface {
	admissionv1.AdmissionRequest | evictionReview
}

// reviewedObject says which review of which object.
type reviewedObject struct {
	uid             types.UID
	namespace, name string
}

// serve answers one HTTP request. What is a review gets HTTP 200 whatever the verdict,
// also if it is too large, too slow or broken: an HTTP error would be a 500 for the
// caller, or let the call pass, depending on the webhook's failure policy (rule W1).
// Only what has no uid, and so is no review at all, gets 400.
func serve[R reviewed](w http.ResponseWriter, r *http.Request, log logr.Logger, a answerer[R]) {
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout(r))
	defer cancel()
	ctx = logr.NewContext(ctx, log)

	response, err := review(ctx, w, r, a)
	if err != nil {
		log.V(1).Info("Refused a request that is no admission review", "reason", err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	respond(w, log, response)
}

// respond writes the answer to a review.
func respond(w http.ResponseWriter, log logr.Logger, response *admissionv1.AdmissionResponse) {
	review := admissionv1.AdmissionReview{Response: response}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		// The connection is gone; the API server treats that as our failure.
		log.Error(err, "Write the admission response")
	}
}

func review[R reviewed](ctx context.Context, w http.ResponseWriter, r *http.Request, a answerer[R]) (*admissionv1.AdmissionResponse, error) {
	if r.Method != http.MethodPost {
		return nil, fmt.Errorf("%w: method %s", errNotReview, r.Method)
	}
	endDeadline := readUntil(ctx, w)
	body, err := readBody(r, a.limit())
	if err != nil {
		// The deadline stays: before net/http sends an answer, it reads what is left of the body.
		return withoutReading(ctx, a, body, whyUndecodable(err), err)
	}
	endDeadline()
	request, err := decodeReview[R](body)
	if err != nil {
		return withoutReading(ctx, a, body, translate.ReasonUnreadable, err)
	}
	response, err := answerOrRecover(ctx, request, a)
	if err != nil {
		return withoutReading(ctx, a, body, translate.ReasonUnreadable, err)
	}
	return response, nil
}

// withoutReading is the answer to a review of which only the uid can be read.
func withoutReading(ctx context.Context, a unanswered, front []byte, reason translate.Reason, err error) (*admissionv1.AdmissionResponse, error) {
	uid := uidIn(front)
	if uid == "" {
		return nil, err
	}
	logr.FromContextOrDiscard(ctx).Info("Refused a review that cannot be read", "reason", reason, "error", err.Error())
	return a.undecodable(uid, reason), nil
}

// answerOrRecover turns a panic into an answer: net/http would close the
// connection instead, which aborts the caller's whole drain.
func answerOrRecover[R reviewed](ctx context.Context, request *R, a answerer[R]) (response *admissionv1.AdmissionResponse, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			about := objectOf(request)
			logr.FromContextOrDiscard(ctx).Error(fmt.Errorf("panic: %v", cause), "Panic in the webhook",
				"namespace", about.namespace, "name", about.name, "stack", string(debug.Stack()))
			response, err = a.afterPanic(about), nil
		}
	}()
	return a.answer(ctx, request)
}

// objectOf says what a request is about.
func objectOf(request any) reviewedObject {
	switch r := request.(type) {
	case *admissionv1.AdmissionRequest:
		return reviewedObject{uid: r.UID, namespace: r.Namespace, name: r.Name}
	case *evictionReview:
		return reviewedObject{uid: r.UID, namespace: r.Namespace, name: r.Name}
	default:
		return reviewedObject{}
	}
}

// asSent takes what an API server may have been sent and passes on. Names are case-sensitive,
// as they are to itself.
var asSent = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decodeReview reads the request out of an AdmissionReview of version v1, with half the work
// of encoding/json, which checks a body before it reads it.
func decodeReview[R reviewed](body []byte) (*R, error) {
	if len(body) == 0 {
		return nil, fmt.Errorf("%w: empty body", errNotReview)
	}
	var review struct {
		metav1.TypeMeta
		Request *R `json:"request"`
	}
	if err := jsonv2.Unmarshal(body, &review, asSent); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotReview, err)
	}
	want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if got := review.GroupVersionKind(); got != want {
		return nil, fmt.Errorf("%w: want %s, got %s", errNotReview, want, got)
	}
	if review.Request == nil {
		return nil, fmt.Errorf("%w: no request", errNotReview)
	}
	if objectOf(review.Request).uid == "" {
		return nil, fmt.Errorf("%w: request without uid", errNotReview)
	}
	return review.Request, nil
}

// handlerTimeout is how long we may take: 90% of what the API server waits,
// which it tells in the query.
func handlerTimeout(r *http.Request) time.Duration {
	timeout := DefaultTimeout
	if told, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && told > 0 {
		timeout = min(told, maxTimeout)
	}
	return timeout * deadlineShare / 100
}
