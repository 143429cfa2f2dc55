package webhook

import (
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// limit is that of an update.
func (h *StatusHandler) limit() int64 { return maxUpdateReview }

// undecodable is a denial: 403 for what no repetition makes readable, and 429 for what may
// be different in a moment.
func (h *StatusHandler) undecodable(uid types.UID, reason translate.Reason) *admissionv1.AdmissionResponse {
	code, kind := int32(http.StatusForbidden), metav1.StatusReasonForbidden
	switch reason {
	case translate.ReasonBusy, translate.ReasonNotAuthenticated, translate.ReasonDeadline:
		code, kind = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	}
	return &admissionv1.AdmissionResponse{UID: uid, Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: kind,
		Message: "The status could not be checked: " + translate.TransportText(reason),
	}}
}

// limit is that of a deletion, whose object is the old one.
func (h *PodDeleteHandler) limit() int64 { return maxReview }

// undecodable allows the deletion, as for all our other failures.
func (h *PodDeleteHandler) undecodable(uid types.UID, _ translate.Reason) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: uid, Allowed: true}
}

// limit is that of an eviction.
func (h *ProbeHandler) limit() int64 { return maxReview }

// undecodable is a denial that does not pass for the proof that we were reached.
func (h *ProbeHandler) undecodable(uid types.UID, reason translate.Reason) *admissionv1.AdmissionResponse {
	return translate.Undecodable(reason).Response(uid)
}
