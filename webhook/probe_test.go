package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

// Whoever asks whether we are reached gets a denial with the agreed text. What is no
// review, or larger than any, gets nothing.
func TestTheProbeIsAnswered(t *testing.T) {
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1"}}`
	cases := map[string]struct {
		body     string
		wantCode int
		wantText []string
	}{
		"a review is denied in the agreed words": {review, http.StatusOK, []string{`"uid":"u-1"`, `"allowed":false`, failurepolicy.ProbeAnswer, `"code":409`}},
		"something else is refused":              {`{}`, http.StatusBadRequest, []string{"not an admission review"}},
		"so is what is too large":                {`"` + strings.Repeat("x", maxReview) + `"`, http.StatusBadRequest, []string{"too large"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			(&ProbeHandler{Log: logr.Discard()}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, ProbePath, strings.NewReader(tc.body)))
			if diff := cmp.Diff(tc.wantCode, w.Code); diff != "" {
				t.Errorf("code (-want +got):\n%s", diff)
			}
			for _, text := range tc.wantText {
				if !strings.Contains(w.Body.String(), text) {
					t.Errorf("the answer does not contain %s: %s", text, w.Body.String())
				}
			}
		})
	}
}
