package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/pdb/preemption"
)

// verdicts answers with one verdict and notes which pods it was asked about.
type verdicts struct {
	verdict preemption.Verdict
	refusal preemption.Refusal
	err     error
	panics  bool
	asked   []types.UID
}

func (v *verdicts) Check(_ context.Context, uid types.UID) (preemption.Verdict, preemption.Refusal, error) {
	v.asked = append(v.asked, uid)
	if v.panics {
		panic("boom")
	}
	return v.verdict, v.refusal, v.err
}

func deletion(change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	request := &admissionv1.AdmissionRequest{
		UID: "review", Operation: admissionv1.Delete, Namespace: "shop", Name: "web-1",
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web-1","namespace":"shop","uid":"uid-web-1"}}`)},
	}
	if change != nil {
		change(request)
	}
	return request
}

func TestDeletionsByTheScheduler(t *testing.T) {
	refusal := preemption.Refusal{
		Budget: &preemption.Budget{Namespace: "shop", Name: "web", Allowed: 1}, Disruptions: 2,
		Preemptor: preemption.Preemptor{Pod: preemption.Pod{Namespace: "batch", Name: "big"}},
	}
	allowed := &admissionv1.AdmissionResponse{UID: "review", Allowed: true}
	cases := map[string]struct {
		says verdicts
		want *admissionv1.AdmissionResponse
	}{
		"not covered":             {verdicts{verdict: preemption.VerdictNotCovered}, allowed},
		"allowed":                 {verdicts{verdict: preemption.VerdictAllowed}, allowed},
		"unsure, with a reason":   {verdicts{verdict: preemption.VerdictUnsure, err: errors.New("no route")}, allowed},
		"a panic lets it through": {verdicts{panics: true}, allowed},
		"refused": {verdicts{verdict: preemption.VerdictRefused, refusal: refusal}, &admissionv1.AdmissionResponse{
			UID: "review",
			Result: &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
				Message: "Cannot preempt pod shop/web-1 for batch/big: PodDisruptionBudget web has changed since the decision, it allows 1 and 2 are to come",
				Details: &metav1.StatusDetails{
					Name: "web-1", Kind: "pods",
					Causes: []metav1.StatusCause{{Type: "DisruptionBudget", Message: "the disruption budget web allows 1"}},
				},
			},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			h := &PodDeleteHandler{Deletions: &tc.says, Metrics: metrics.NewPreemption(registry), Log: logr.Discard()}
			got, err := answerOrRecover(logr.NewContext(t.Context(), logr.Discard()), deletion(nil), h)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]types.UID{"uid-web-1"}, tc.says.asked); diff != "" {
				t.Errorf("asked about (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyDeletionsOfPodsAreReviewed(t *testing.T) {
	h := &PodDeleteHandler{Deletions: &verdicts{}, Metrics: metrics.NewPreemption(prometheus.NewRegistry()), Log: logr.Discard()}
	cases := map[string]func(*admissionv1.AdmissionRequest){
		"a creation":       func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Create },
		"another resource": func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "nodes" },
		"a subresource":    func(r *admissionv1.AdmissionRequest) { r.SubResource = "eviction" },
		"no pod":           func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte("7") },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := h.answer(t.Context(), deletion(change)); !errors.Is(err, errNotReview) {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("no review at all", func(t *testing.T) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, PodDeletePath, strings.NewReader("{}")))
		if w.Code != http.StatusBadRequest {
			t.Errorf("HTTP %d", w.Code)
		}
	})
}
