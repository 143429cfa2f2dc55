// Package answer reads the answers of the eviction subresource. It is pure.
package answer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Result is the class of an answer to a call of the eviction subresource: a
// closed set, used as a metric label.
type Result string

// The first three are not failures (statement 89); every other one is counted,
// reported and tried again.
const (
	// ResultEvicted means accepted, the pod is being deleted.
	ResultEvicted Result = "evicted"
	// ResultGone means 404, there is no such pod.
	ResultGone Result = "gone"
	// ResultReplaced means 409, another pod has the name.
	ResultReplaced Result = "replaced"

	// ResultBudget means 429, the pod's budget allows no disruption now.
	ResultBudget Result = "budget"
	// ResultBudgetNotSynced means 429, the budget's status is behind its spec.
	ResultBudgetNotSynced Result = "budget-not-synced"
	// ResultBudgetRefuses means 403, the budget cannot count any more evictions.
	ResultBudgetRefuses Result = "budget-refuses"
	// ResultSeveralBudgets means 500, more than one budget selects the pod.
	ResultSeveralBudgets Result = "several-budgets"
	// ResultOwnWebhook means 429 of our own webhook; that replica has not seen yet that
	// the last stage was reached.
	ResultOwnWebhook Result = "own-webhook"
	// ResultWebhook means 429 of somebody else's webhook.
	ResultWebhook Result = "webhook"
	// ResultOverloaded means 429, the server sheds load.
	ResultOverloaded Result = "overloaded"
	// ResultForbidden means 403 of RBAC or of an admission plugin.
	ResultForbidden Result = "forbidden"
	// ResultNamespaceTerminating means 403, the namespace is being deleted.
	ResultNamespaceTerminating Result = "namespace-terminating"
	// ResultConflict means 409 although the pod is the right one.
	ResultConflict Result = "conflict"
	// ResultServerTimeout means the server gave up on the call, for example because the
	// budget changed all the time (504).
	ResultServerTimeout Result = "server-timeout"
	// ResultDeadline means no answer within our own deadline. The eviction may have
	// happened.
	ResultDeadline Result = "deadline"
	// ResultServerError means any other answer of 500 and above.
	ResultServerError Result = "server-error"
	// ResultOther means everything else, connection failures among it.
	ResultOther Result = "other"
)

// Results are all classes.
var Results = []Result{
	ResultEvicted, ResultGone, ResultReplaced,
	ResultBudget, ResultBudgetNotSynced, ResultBudgetRefuses, ResultSeveralBudgets, ResultOwnWebhook, ResultWebhook,
	ResultOverloaded, ResultForbidden, ResultNamespaceTerminating, ResultConflict, ResultServerTimeout, ResultDeadline,
	ResultServerError, ResultOther,
}

// causeInProgress marks the 429 of our own webhook (callers.md, section 7).
const causeInProgress metav1.CauseType = "EvictionRequestInProgress"

// Answer is what an answer says, apart from its class.
type Answer struct {
	Result Result
	// Detail is the server's own explanation, to be quoted and never to be parsed.
	Detail string
	// RetryAfter is what the server asks for, zero if it does not.
	RetryAfter time.Duration
}

// Failed reports whether an answer of this class counts as a failed eviction.
func (r Result) Failed() bool {
	return r != "" && r != ResultEvicted && r != ResultGone && r != ResultReplaced
}

// BlockedByBudget reports whether a change of a budget can make a difference.
func (r Result) BlockedByBudget() bool {
	switch r {
	case ResultBudget, ResultBudgetNotSynced, ResultBudgetRefuses, ResultSeveralBudgets:
		return true
	default:
		return false
	}
}

// Classify reads the answer to an eviction call; nil is success. Budgets
// is the number of budgets known to select the pod: the server's answer for more
// than one is a bare 500, which others use too. No message is ever parsed.
//
// A 409 is returned as ResultConflict; only a look at the pod tells whether it
// has been replaced. See settleConflict.
func Classify(err error, budgets int) Answer {
	if err == nil {
		return Answer{Result: ResultEvicted}
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		if errors.Is(err, context.DeadlineExceeded) || utilnet.IsTimeout(err) {
			return Answer{Result: ResultDeadline, Detail: err.Error()}
		}
		return Answer{Result: ResultOther, Detail: err.Error()}
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
func classifyStatus(status metav1.Status, budgets int) Result {
	ofBudget := len(causesOf(status, policyv1.DisruptionBudgetCause)) > 0
	switch {
	case status.Code == http.StatusNotFound:
		return ResultGone
	case status.Code == http.StatusConflict:
		return ResultConflict
	case status.Code == http.StatusTooManyRequests:
		switch {
		case ofBudget && status.Details.RetryAfterSeconds > 0:
			return ResultBudgetNotSynced
		case ofBudget:
			return ResultBudget
		case len(causesOf(status, causeInProgress)) > 0:
			return ResultOwnWebhook
		case len(causesOf(status, metav1.CauseTypeUnexpectedServerResponse)) > 0:
			// Not a Status object: the server's filters answer so, a webhook cannot.
			return ResultOverloaded
		default:
			return ResultWebhook
		}
	case status.Code == http.StatusForbidden:
		switch {
		case len(causesOf(status, corev1.NamespaceTerminatingCause)) > 0:
			return ResultNamespaceTerminating
		case ofBudget, status.Details != nil && status.Details.Kind == "poddisruptionbudget": // no cause before 1.37
			return ResultBudgetRefuses
		default:
			return ResultForbidden
		}
	case status.Code == http.StatusGatewayTimeout, status.Reason == metav1.StatusReasonTimeout, status.Reason == metav1.StatusReasonServerTimeout:
		return ResultServerTimeout
	case status.Code == http.StatusInternalServerError && status.Reason == metav1.StatusReasonUnknown && status.Details == nil && budgets > 1:
		return ResultSeveralBudgets
	case status.Code >= http.StatusInternalServerError:
		return ResultServerError
	default:
		return ResultOther
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
var sentences = map[Result]string{
	ResultBudget:               "%s allows no disruption now.",
	ResultBudgetNotSynced:      "%s has not been processed by the disruption controller yet.",
	ResultBudgetRefuses:        "%s cannot take any more evictions now.",
	ResultSeveralBudgets:       "More than one PodDisruptionBudget selects the pod, which the eviction API does not support: %s.",
	ResultOwnWebhook:           "A replica of the Drawbridge webhook has not seen yet that all interceptors are done.",
	ResultWebhook:              "An admission webhook refuses the eviction for now.",
	ResultOverloaded:           "The API server is overloaded.",
	ResultForbidden:            "The API server forbids the eviction (RBAC or an admission plugin).",
	ResultNamespaceTerminating: "The namespace is being deleted, which deletes the pod too.",
	ResultConflict:             "The pod changed during the eviction.",
	ResultServerTimeout:        "The API server timed out.",
	ResultDeadline:             "The API server did not answer in time.",
	ResultServerError:          "The API server or an admission webhook failed.",
	ResultOther:                "The eviction call failed.",
}

// MaxBudgets bounds how many budgets a message names.
const MaxBudgets = 5

// maxDetail bounds, in characters, how much of the server's text is quoted.
const maxDetail = 500

// Explain says why an attempt failed, in one or two sentences. Budgets are the
// names of those that select the pod, sorted.
func (r Answer) Explain(budgets []string) string {
	sentence := sentences[r.Result]
	if strings.Contains(sentence, "%s") {
		sentence = strings.ReplaceAll(sentence, "%s", budgetList(r.Result, budgets))
	}
	if detail := strings.TrimSpace(r.Detail); detail != "" && r.Result != ResultSeveralBudgets {
		sentence += " " + text.Cut(strings.TrimRight(detail, ".")+".", maxDetail)
	}
	return sentence
}

func budgetList(result Result, budgets []string) string {
	list := strings.Join(budgets[:min(len(budgets), MaxBudgets)], ", ")
	if more := len(budgets) - MaxBudgets; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case result == ResultSeveralBudgets:
		return list
	case list == "":
		return "The pod's PodDisruptionBudget"
	default:
		return "PodDisruptionBudget " + list
	}
}
