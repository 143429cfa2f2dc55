package translate

import (
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome of a verdict. The zero value is none.
type Outcome int

const (
	// Allow allows the call.
	Allow Outcome = iota + 1
	// Deny answers 429 TooManyRequests, the one status every caller retries.
	Deny
	// NotFound answers 404 NotFound, which ends a caller's loop cleanly.
	NotFound
	// Conflict answers 409 Conflict: the pod that the call meant is gone.
	Conflict
)

// Outcomes are all outcomes of verdicts.
func Outcomes() []Outcome { return []Outcome{Allow, Deny, NotFound, Conflict} }

// String is the value of the metric label verdict.
func (o Outcome) String() string {
	switch o {
	case Allow:
		return "allowed"
	case Deny:
		return "denied"
	case NotFound:
		return "not_found"
	case Conflict:
		return "conflict"
	default:
		return "none"
	}
}

// Verdict is the answer to one eviction call. Response, audit annotations, log line,
// metric and event are derived from it. It never has a retry-after: client-go would
// sleep silently inside the call (rule W4).
type Verdict struct {
	Outcome Outcome
	Reason  Reason
	Subject Subject
	// Message is the text for people, one line below 200 characters.
	Message string
	// CauseType and CauseMessage are the one cause of the details.
	CauseType    string
	CauseMessage string
	// Warning is sent along when a dry run is allowed.
	Warning string
}

// Keys of the audit annotations; the API server puts the webhook's name before.
const (
	auditRequest   = "eviction-request"
	auditState     = "state"
	auditRequester = "requester"
)

// Response is the answer to the API server (rules W1 to W5).
func (v Verdict) Response(uid types.UID) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: uid, Allowed: v.Outcome == Allow, AuditAnnotations: v.audit()}
	if v.Warning != "" {
		response.Warnings = []string{v.Warning}
	}
	if response.Allowed {
		return response
	}
	reason := metav1.StatusReasonTooManyRequests
	switch v.Outcome {
	case NotFound:
		reason = metav1.StatusReasonNotFound
	case Conflict:
		reason = metav1.StatusReasonConflict
	}
	cause := metav1.StatusCause{Type: metav1.CauseType(v.CauseType), Message: v.CauseMessage}
	if v.Subject.Request != "" {
		cause.Field = "evictionrequests/" + v.Subject.Request
	}
	response.Result = &metav1.Status{
		Status: metav1.StatusFailure, Code: v.code(), Reason: reason, Message: v.Message,
		Details: &metav1.StatusDetails{
			Name: v.Subject.Pod, Kind: "pods", UID: v.Subject.PodUID,
			Causes: []metav1.StatusCause{cause},
		},
	}
	return response
}

// code is the status of a denial.
func (v Verdict) code() int32 {
	switch v.Outcome {
	case NotFound:
		return http.StatusNotFound
	case Conflict:
		return http.StatusConflict
	default:
		return http.StatusTooManyRequests
	}
}

// audit returns annotations for calls that concern us. Pods without interceptors cost
// nothing, even there.
func (v Verdict) audit() map[string]string {
	if v.Outcome == Allow && v.Subject.Request == "" && v.Reason != ReasonDryRun {
		return nil
	}
	annotations := map[string]string{auditState: string(v.Reason)}
	if v.Subject.Requester != "" {
		annotations[auditRequester] = v.Subject.Requester
	}
	if v.Subject.Request != "" {
		annotations[auditRequest] = v.Subject.Namespace + "/" + v.Subject.Request
	}
	return annotations
}
