package webhook

import (
	"context"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

// ProbeHandler answers evictions of a pod that does not exist, with which the manager
// and its users check that the API server reaches the webhook. It always denies: an
// allowed call would look like one that bypassed us. It is a conflict, and not
// forbidden, because no permission is missing.
type ProbeHandler struct {
	Log logr.Logger
}

// ServeHTTP answers one review.
func (h *ProbeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { serve(w, r, h.Log, h) }

func (h *ProbeHandler) answer(_ context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return h.afterPanic(objectOf(request)), nil
}

func (h *ProbeHandler) afterPanic(object reviewedObject) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		UID:    object.uid,
		Result: &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: http.StatusConflict, Message: failurepolicy.ProbeAnswer},
	}
}
