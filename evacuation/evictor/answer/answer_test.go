package answer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

var (
	podsResource    = schema.GroupResource{Resource: "pods"}
	budgetsResource = schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}
)

// webhookAnswer is a denial of an admission webhook.
func webhookAnswer(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: `admission webhook "w.example.com" denied the request: ` + message,
	}}
}

// TestClassifyEviction has every answer of the eviction API that is known, built
// as kubernetes builds it (pkg/registry/core/pod/storage/eviction.go).
func TestClassifyEviction(t *testing.T) {
	t.Parallel()
	severalBudgets := &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
	cases := map[string]struct {
		err     error
		budgets []string
		want    translate.Result
		failed  bool
		explain string
	}{
		"success": {err: nil, want: translate.ResultEvicted},
		"the pod is not found": {
			err: apierrors.NewNotFound(podsResource, "web-1"), want: translate.ResultGone,
		},
		"a conflict": {
			err: apierrors.NewConflict(podsResource, "web-1", errors.New("object was modified")), want: translate.ResultConflict, failed: true,
			explain: "The pod changed during the eviction. Operation cannot be fulfilled on pods \"web-1\": object was modified.",
		},
		"the budget allows nothing": {
			err: builder.BlockedAnswer(), budgets: []string{"web"}, want: translate.ResultBudget, failed: true,
			explain: "PodDisruptionBudget web allows no disruption now. The disruption budget web needs 3 healthy pods and has 3 currently.",
		},
		"the budget allows nothing and our cache does not have it yet": {
			err: builder.BlockedAnswer(), want: translate.ResultBudget, failed: true,
			explain: "The pod's PodDisruptionBudget allows no disruption now. The disruption budget web needs 3 healthy pods and has 3 currently.",
		},
		"the budget is still being processed": {
			err: builder.WithCause(apierrors.NewTooManyRequests(builder.BudgetText, 10), policyv1.DisruptionBudgetCause,
				"The disruption budget web is still being processed by the server."),
			budgets: []string{"web"}, want: translate.ResultBudgetNotSynced, failed: true,
			explain: "PodDisruptionBudget web has not been processed by the disruption controller yet. The disruption budget web is still being processed by the server.",
		},
		"too many disrupted pods, 1.37": {
			err: builder.WithCause(apierrors.NewForbidden(budgetsResource, "web", errors.New("DisruptedPods map too big")), policyv1.DisruptionBudgetCause,
				"The disruption budget web does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller"),
			budgets: []string{"web"}, want: translate.ResultBudgetRefuses, failed: true,
			explain: "PodDisruptionBudget web cannot take any more evictions now. " +
				"The disruption budget web does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller.",
		},
		"too many disrupted pods, 1.36 without a cause": {
			err: apierrors.NewForbidden(budgetsResource, "web", errors.New("x")), want: translate.ResultBudgetRefuses, failed: true,
		},
		"more than one budget": {
			err: severalBudgets, budgets: []string{"a", "b"}, want: translate.ResultSeveralBudgets, failed: true,
			explain: "More than one PodDisruptionBudget selects the pod, which the eviction API does not support: a, b.",
		},
		"more budgets than a message names": {
			err: severalBudgets, budgets: []string{"a", "b", "c", "d", "e", "f"}, want: translate.ResultSeveralBudgets, failed: true,
			explain: "More than one PodDisruptionBudget selects the pod, which the eviction API does not support: a, b, c, d, e and 1 more.",
		},
		"a bare 500 with one budget is not about budgets": {
			err: severalBudgets, budgets: []string{"a"}, want: translate.ResultServerError, failed: true,
		},
		"a webhook that could not be called": {
			err: apierrors.NewInternalError(errors.New("failed calling webhook")), budgets: []string{"a", "b"}, want: translate.ResultServerError, failed: true,
			explain: "The API server or an admission webhook failed. Internal error occurred: failed calling webhook.",
		},
		"our own webhook on a stale replica": {
			err:  builder.WithCause(webhookAnswer(429, metav1.StatusReasonTooManyRequests, "Eviction triggered evacuation"), "EvictionRequestInProgress", ""),
			want: translate.ResultOwnWebhook, failed: true,
		},
		"somebody else's webhook": {
			err: webhookAnswer(429, metav1.StatusReasonTooManyRequests, "not now"), want: translate.ResultWebhook, failed: true,
			explain: `An admission webhook refuses the eviction for now. admission webhook "w.example.com" denied the request: not now.`,
		},
		"the server sheds load": {
			err:  apierrors.NewGenericServerResponse(429, "post", podsResource, "web-1", "Too many requests, please try again later.", 1, true),
			want: translate.ResultOverloaded, failed: true,
		},
		"RBAC": {
			err: apierrors.NewForbidden(podsResource, "web-1", errors.New("no")), want: translate.ResultForbidden, failed: true,
		},
		"a webhook that forbids": {
			err: webhookAnswer(403, metav1.StatusReasonForbidden, "no"), want: translate.ResultForbidden, failed: true,
		},
		"the namespace is terminating": {
			err:  builder.WithCause(apierrors.NewForbidden(podsResource, "web-1", errors.New("being terminated")), corev1.NamespaceTerminatingCause, "x"),
			want: translate.ResultNamespaceTerminating, failed: true,
		},
		"the budget could not be updated": {
			err: apierrors.NewTimeoutError("couldn't update PodDisruptionBudget", 10), want: translate.ResultServerTimeout, failed: true,
		},
		"the server timed out": {
			err: apierrors.NewServerTimeout(podsResource, "create", 1), want: translate.ResultServerTimeout, failed: true,
		},
		"our own deadline": {
			err:  fmt.Errorf("post: %w", &url.Error{Op: "Post", URL: "u", Err: context.DeadlineExceeded}),
			want: translate.ResultDeadline, failed: true,
		},
		"no connection": {
			err: errors.New("connection refused"), want: translate.ResultOther, failed: true,
			explain: "The eviction call failed. connection refused.",
		},
		"a bad request": {
			err: apierrors.NewBadRequest("x"), want: translate.ResultOther, failed: true,
		},
		"a wrapped answer": {
			err: fmt.Errorf("evict: %w", builder.BlockedAnswer()), want: translate.ResultBudget, failed: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Classify(tc.err, len(tc.budgets))
			if got.Result != tc.want || got.Result.Failed() != tc.failed {
				t.Fatalf("got %q (failed: %t), want %q (failed: %t)", got.Result, got.Result.Failed(), tc.want, tc.failed)
			}
			if tc.explain == "" {
				return
			}
			if diff := cmp.Diff(tc.explain, got.Explain(tc.budgets)); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswersOfABudgetAreJudged(t *testing.T) {
	t.Parallel()
	const never = "can never allow a disruption (maxUnavailable is 100%)"
	of := func(r translate.Result, never string) Answer { return Answer{Result: r, Never: never, Detail: "No"} }
	cases := map[string]struct {
		given   Answer
		never   string
		want    Answer
		explain string
	}{
		"it can never allow":     {of(translate.ResultBudget, ""), never, of(translate.ResultBudgetNever, never), "PodDisruptionBudget web can never allow a disruption (maxUnavailable is 100%). No."},
		"it can again":           {of(translate.ResultBudgetNever, never), "", of(translate.ResultBudget, ""), "PodDisruptionBudget web allows no disruption now. No."},
		"for another reason":     {of(translate.ResultBudgetNever, "x"), never, of(translate.ResultBudgetNever, never), "PodDisruptionBudget web can never allow a disruption (maxUnavailable is 100%). No."},
		"it is not about budget": {of(translate.ResultWebhook, ""), never, of(translate.ResultWebhook, ""), "An admission webhook refuses the eviction for now. No."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tc.given.Judged(tc.never)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.explain, got.Explain([]string{"web"})); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClassifyEvictionKeepsRetryAfter(t *testing.T) {
	t.Parallel()
	got := Classify(apierrors.NewGenericServerResponse(429, "post", podsResource, "web-1", "", 7, true), 0)
	if got.RetryAfter != 7*time.Second {
		t.Errorf("RetryAfter is %s, want 7s", got.RetryAfter)
	}
}

// TestEveryFailureHasWords makes sure that no class is without a sentence.
func TestEveryFailureHasWords(t *testing.T) {
	t.Parallel()
	for _, r := range translate.Results() {
		if (sentences[r] != "") != r.Failed() {
			t.Errorf("class %q: sentence %q, failed %t", r, sentences[r], r.Failed())
		}
		if text := (Answer{Result: r}).Explain(nil); strings.Contains(text, "%") {
			t.Errorf("class %q explains itself as %q", r, text)
		}
	}
}
