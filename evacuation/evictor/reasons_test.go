package evictor

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// TestEveryFailureHasAReason makes sure that no class of a failure is without an event.
func TestEveryFailureHasAReason(t *testing.T) {
	t.Parallel()
	for _, r := range translate.Results() {
		if (reasons[r] != "") != r.Failed() {
			t.Errorf("class %q: reason %q, failed %t", r, reasons[r], r.Failed())
		}
	}
}

func TestSettleConflict(t *testing.T) {
	t.Parallel()
	pod := func(uid types.UID) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}} }
	got := []translate.Result{
		settleConflict(pod("a"), nil), settleConflict(pod("a"), pod("b")), settleConflict(pod("a"), pod("a")),
	}
	if diff := cmp.Diff([]translate.Result{translate.ResultGone, translate.ResultReplaced, translate.ResultConflict}, got); diff != "" {
		t.Errorf("gone, replaced, the same (-want +got):\n%s", diff)
	}
}
