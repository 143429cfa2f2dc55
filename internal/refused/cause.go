package refused

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cause says what refuses a write. The zero value is no refusal.
type Cause string

// Causes of refusals: a closed set, fit for metric labels.
const (
	// Quota: a ResourceQuota.
	Quota Cause = "Quota"
	// Policy: a ValidatingAdmissionPolicy, or an admission plugin of the API server such as
	// Pod Security or LimitRanger.
	Policy Cause = "Policy"
	// Webhook: an admission webhook, also one that cannot be called.
	Webhook Cause = "Webhook"
	// Forbidden: our account lacks a right.
	Forbidden Cause = "Forbidden"
	// Invalid: the object does not obey its schema.
	Invalid Cause = "Invalid"
	// TooLarge: the object is larger than the API server or etcd accepts.
	TooLarge Cause = "TooLarge"
	// NamespaceTerminating: the namespace is being deleted.
	NamespaceTerminating Cause = "NamespaceTerminating"
	// Other: another answer of 4xx that does not pass by itself.
	Other Cause = "Other"
)

// Causes are all of them, in the order of the documentation.
func Causes() []Cause {
	return []Cause{Quota, Policy, Webhook, Forbidden, Invalid, TooLarge, NamespaceTerminating, Other}
}

// Who names what refuses, as the subject of a sentence. Namespace is that of the object;
// empty for one of the cluster.
func (c Cause) Who(namespace string) string {
	switch c {
	case Quota:
		if namespace == "" {
			return "a quota"
		}
		return "a quota of the namespace"
	case Policy:
		return "an admission policy"
	case Webhook:
		return "an admission webhook"
	case Forbidden:
		return "a missing permission"
	case Invalid:
		return "the schema"
	case TooLarge:
		return "the limit of its size"
	case NamespaceTerminating:
		return "the deletion of the namespace"
	default:
		return "the API server"
	}
}

// The beginnings and parts of messages by which the API server tells apart what it gives
// one code. Nothing else in its answers does (kubernetes v1.30 to v1.37):
//   - plugin/pkg/admission/resourcequota/controller.go (staging apiserver), checkRequest and
//     evaluate: "exceeded quota: ", "failed quota: ", "status unknown for quota: " and
//     "insufficient quota";
//   - pkg/admission/plugin/policy/validating/dispatcher.go: "ValidatingAdmissionPolicy 'x'
//     with binding 'y' denied request: ";
//   - pkg/admission/plugin/webhook/errors/statuserror.go: `admission webhook "x" denied the
//     request`, and webhook/generic: `failed calling webhook "x"`;
//   - pkg/endpoints/handlers/responsewriters/errors.go: `User "x" cannot VERB resource`.
const (
	saysPolicy        = "ValidatingAdmissionPolicy '"
	saysWebhook       = `admission webhook "`
	saysWebhookFailed = `failed calling webhook "`
	saysUser          = `User "`
	saysCannot        = `" cannot `
	saysEtcdTooLarge  = "etcdserver: request is too large"
)

var saysQuota = []string{"exceeded quota: ", "failed quota: ", "status unknown for quota: ", "insufficient quota to consume: ", "insufficient quota to match these scopes: "}

// Of is the cause of an error of the API server; not ok if the next attempt may well
// succeed: conflicts, what is missing or there already, time-outs, overload, outages, and a
// JSON patch whose test has failed.
func Of(err error) (Cause, bool) {
	var known *Error
	if errors.As(err, &known) {
		return known.Cause, true
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return "", false
	}
	cause := causeOf(answer.Status())
	return cause, cause != ""
}

func causeOf(status metav1.Status) Cause {
	// First by words: a policy or a webhook chooses the code of its answer.
	switch message := status.Message; {
	case strings.Contains(message, saysPolicy):
		return Policy
	case strings.Contains(message, saysWebhook) && status.Code != http.StatusTooManyRequests, strings.Contains(message, saysWebhookFailed):
		return Webhook
	case strings.Contains(message, saysEtcdTooLarge):
		return TooLarge
	}
	switch status.Code {
	case http.StatusForbidden:
		return forbidden(status)
	case http.StatusUnprocessableEntity:
		if status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Type != metav1.CauseTypeUnexpectedServerResponse }) {
			return Invalid
		}
		return "" // A test of a JSON patch: apiserver, pkg/endpoints/handlers/patch.go.
	case http.StatusBadRequest:
		return Invalid
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusGone, http.StatusRequestTimeout:
		return ""
	}
	if status.Code >= http.StatusBadRequest && status.Code < http.StatusInternalServerError {
		return Other
	}
	return ""
}

func forbidden(status metav1.Status) Cause {
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Type == corev1.NamespaceTerminatingCause {
				return NamespaceTerminating
			}
		}
	}
	for _, words := range saysQuota {
		if strings.Contains(status.Message, words) {
			return Quota
		}
	}
	if strings.Contains(status.Message, saysUser) && strings.Contains(status.Message, saysCannot) {
		return Forbidden
	}
	return Policy
}

// Changed reports whether a write met another state of the object than it was made for: a
// conflict, a JSON patch whose test has failed, or no object at all. Unlike
// apierrors.IsInvalid, a policy that answers 422 does not count.
func Changed(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true
	}
	_, refused := Of(err)
	return apierrors.IsInvalid(err) && !refused
}
