package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/pdb/preemption"
)

// PodDeletePath is where the webhook for deletions by the scheduler is served.
const PodDeletePath = "/validate-pod-delete"

// causeBudget is the cause that the eviction API gives when a budget refuses.
const causeBudget metav1.CauseType = "DisruptionBudget"

// PodDeletions judges the deletion of a pod by the scheduler. *preemption.Deletes is
// one.
type PodDeletions interface {
	Check(ctx context.Context, uid types.UID) (preemption.Verdict, preemption.Refusal, error)
}

var _ PodDeletions = &preemption.Deletes{}

// PodDeleteHandler answers the reviews of the deletion of pods. The webhook's
// matchConditions leave everybody but the scheduler out. Whatever goes wrong, the
// deletion is allowed: it is what the scheduler would do without us. All fields but Log
// are required, see RegisterPodDeletes.
type PodDeleteHandler struct {
	Deletions PodDeletions
	Metrics   *metrics.Preemption
	// Log is where refusals go.
	Log logr.Logger
}

// validate fails if something is missing, naming all of it.
func (h *PodDeleteHandler) validate() error {
	return controllers.Require("webhook of deletions", map[string]bool{"Deletions": h.Deletions != nil, "Metrics": h.Metrics != nil})
}

// ServeHTTP answers one review.
func (h *PodDeleteHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { serve(w, r, h.Log, h) }

func (h *PodDeleteHandler) answer(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request.Operation != admissionv1.Delete || request.Resource.Resource != "pods" || request.SubResource != "" {
		return nil, fmt.Errorf("%w: %s of %s", errNotReview, request.Operation, request.Resource.Resource)
	}
	var pod metav1.PartialObjectMetadata
	if err := json.Unmarshal(request.OldObject.Raw, &pod); err != nil {
		return nil, fmt.Errorf("%w: decode the pod: %w", errNotReview, err)
	}
	verdict, refusal, err := h.Deletions.Check(ctx, pod.UID)
	log := logr.FromContextOrDiscard(ctx).WithValues("namespace", request.Namespace, "name", request.Name)
	if err != nil {
		log.Error(err, "A deletion by the scheduler is allowed unseen")
	}
	h.Metrics.Deletion(string(verdict))
	if verdict != preemption.VerdictRefused {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}, nil
	}
	status := budgetRefused(request, refusal)
	log.V(1).Info("Refused a deletion by the scheduler", "message", status.Message)
	return &admissionv1.AdmissionResponse{UID: request.UID, Result: status}, nil
}

// budgetRefused is the answer of the eviction API to a pod whose budget is used up
// (KEP-3280: the scheduler chooses another victim then). Without a number of seconds
// to retry after, the scheduler's client does not repeat the call by itself.
func budgetRefused(request *admissionv1.AdmissionRequest, refusal preemption.Refusal) *metav1.Status {
	budget := refusal.Budget
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: fmt.Sprintf("Cannot preempt pod %s/%s for %s/%s: PodDisruptionBudget %s has changed since the decision, it allows %d and %d are to come",
			request.Namespace, request.Name, refusal.Preemptor.Namespace, refusal.Preemptor.Name, budget.Name, budget.Allowed, refusal.Disruptions),
		Details: &metav1.StatusDetails{
			Name: request.Name, Kind: "pods",
			Causes: []metav1.StatusCause{{Type: causeBudget, Message: fmt.Sprintf("the disruption budget %s allows %d", budget.Name, budget.Allowed)}},
		},
	}
}

// afterPanic allows the deletion.
func (h *PodDeleteHandler) afterPanic(object reviewedObject) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: object.uid, Allowed: true}
}
