// Package answer classifies answers of the eviction subresource. It is pure.
package answer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// causeInProgress marks the 429 of our own webhook (callers.md, section 7).
const causeInProgress metav1.CauseType = "EvictionRequestInProgress"

// Answer is a classified answer.
type Answer struct {
	Result translate.Result
	// Detail is the server's own explanation, to be quoted and never to be parsed.
	Detail string
	// RetryAfter is the server's Retry-After, zero if there is none.
	RetryAfter time.Duration
	// Never belongs to ResultBudgetNever: what is said of the budget, after its name.
	Never string
}

// Judged is the answer with what is known of the budget that gave it: that it can never
// allow, in the words of Count.Says; or nothing, if never is empty.
func (r Answer) Judged(never string) Answer {
	if r.Result == translate.ResultBudget || r.Result == translate.ResultBudgetNever {
		r.Result, r.Never = translate.ResultBudget, never
		if never != "" {
			r.Result = translate.ResultBudgetNever
		}
	}
	return r
}

// Classify reads the answer to an eviction call; nil is success. Budgets
// is the number of budgets known to select the pod: the server's answer for more
// than one is a bare 500, which others use too. No message is ever parsed.
//
// A 409 is returned as translate.ResultConflict; only a look at the pod tells whether it
// has been replaced. See settleConflict.
func Classify(err error, budgets int) Answer {
	if err == nil {
		return Answer{Result: translate.ResultEvicted}
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		if errors.Is(err, context.DeadlineExceeded) || utilnet.IsTimeout(err) {
			return Answer{Result: translate.ResultDeadline, Detail: err.Error()}
		}
		return Answer{Result: translate.ResultOther, Detail: err.Error()}
	}
	status := answer.Status()
	r := Answer{Result: classifyStatus(status, budgets), Detail: status.Message}
	if status.Details != nil {
		r.RetryAfter = time.Duration(status.Details.RetryAfterSeconds) * time.Second
	}
	if causes := causesOf(status, policyv1.DisruptionBudgetCause); len(causes) > 0 {
		// Says more than the message, which is the same for all budgets.
		r.Detail = strings.Join(causes, " ")
	}
	return r
}

// classifyStatus follows kubernetes: pkg/registry/core/pod/storage/eviction.go
// (v1.36.3 and v1.37.1), see callers.md, section 4.
func classifyStatus(status metav1.Status, budgets int) translate.Result {
	ofBudget := len(causesOf(status, policyv1.DisruptionBudgetCause)) > 0
	switch {
	case status.Code == http.StatusNotFound:
		return translate.ResultGone
	case status.Code == http.StatusConflict:
		return translate.ResultConflict
	case status.Code == http.StatusTooManyRequests:
		switch {
		case ofBudget && status.Details.RetryAfterSeconds > 0:
			return translate.ResultBudgetNotSynced
		case ofBudget:
			return translate.ResultBudget
		case len(causesOf(status, causeInProgress)) > 0:
			return translate.ResultOwnWebhook
		case len(causesOf(status, metav1.CauseTypeUnexpectedServerResponse)) > 0:
			// Not a Status object: the server's filters answer so, a webhook cannot.
			return translate.ResultOverloaded
		default:
			return translate.ResultWebhook
		}
	case status.Code == http.StatusForbidden:
		switch {
		case len(causesOf(status, corev1.NamespaceTerminatingCause)) > 0:
			return translate.ResultNamespaceTerminating
		case ofBudget, status.Details != nil && status.Details.Kind == "poddisruptionbudget": // no cause before 1.37
			return translate.ResultBudgetRefuses
		default:
			return translate.ResultForbidden
		}
	case status.Code == http.StatusGatewayTimeout, status.Reason == metav1.StatusReasonTimeout, status.Reason == metav1.StatusReasonServerTimeout:
		return translate.ResultServerTimeout
	case status.Code == http.StatusInternalServerError && status.Reason == metav1.StatusReasonUnknown && status.Details == nil && budgets > 1:
		return translate.ResultSeveralBudgets
	case status.Code >= http.StatusInternalServerError:
		return translate.ResultServerError
	default:
		return translate.ResultOther
	}
}

// causesOf returns the messages of the causes of that type.
func causesOf(status metav1.Status, cause metav1.CauseType) []string {
	if status.Details == nil {
		return nil
	}
	var messages []string
	for _, c := range status.Details.Causes {
		if c.Type == cause {
			messages = append(messages, c.Message)
		}
	}
	return messages
}

// sentences explain a class; the server's own words follow.
var sentences = map[translate.Result]string{
	translate.ResultBudget:               "%s allows no disruption now.",
	translate.ResultBudgetNever:          "%s can never allow a disruption.", // Explain knows why.
	translate.ResultBudgetNotSynced:      "%s has not been processed by the disruption controller yet.",
	translate.ResultBudgetRefuses:        "%s cannot take any more evictions now.",
	translate.ResultSeveralBudgets:       "More than one PodDisruptionBudget selects the pod, which the eviction API does not support: %s.",
	translate.ResultOwnWebhook:           "A replica of the Drawbridge webhook has not seen yet that all interceptors are done.",
	translate.ResultWebhook:              "An admission webhook refuses the eviction for now.",
	translate.ResultOverloaded:           "The API server is overloaded.",
	translate.ResultForbidden:            "The API server forbids the eviction (RBAC or an admission plugin).",
	translate.ResultNamespaceTerminating: "The namespace is being deleted, which deletes the pod too.",
	translate.ResultConflict:             "The pod changed during the eviction.",
	translate.ResultServerTimeout:        "The API server timed out.",
	translate.ResultDeadline:             "The API server did not answer in time.",
	translate.ResultServerError:          "The API server or an admission webhook failed.",
	translate.ResultOther:                "The eviction call failed.",
}

// MaxBudgets bounds how many budgets a message names.
const MaxBudgets = 5

// maxDetail bounds, in characters, how much of the server's text is quoted.
const maxDetail = 500

// Explain says why an attempt failed, in one or two sentences. Budgets are the
// names of those that select the pod, sorted.
func (r Answer) Explain(budgets []string) string {
	sentence := sentences[r.Result]
	if r.Never != "" {
		sentence = "%s " + r.Never + "."
	}
	sentence = strings.Replace(sentence, "%s", budgetList(r.Result, budgets), 1)
	if detail := strings.TrimSpace(r.Detail); detail != "" && r.Result != translate.ResultSeveralBudgets {
		sentence += " " + text.Cut(strings.TrimRight(detail, ".")+".", maxDetail)
	}
	return sentence
}

func budgetList(result translate.Result, budgets []string) string {
	list := text.Few(budgets, MaxBudgets)
	switch {
	case result == translate.ResultSeveralBudgets:
		return list
	case list == "":
		return "The pod's PodDisruptionBudget"
	default:
		return "PodDisruptionBudget " + list
	}
}
