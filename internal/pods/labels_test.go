package pods_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

func TestTheGuardsLabelIsNotCopied(t *testing.T) {
	pod := map[string]string{"app": "web", v1alpha1.GuardLabel: v1alpha1.GuardClosed}
	if diff := cmp.Diff(map[string]string{"app": "web"}, pods.CopiedLabels(pod)); diff != "" {
		t.Errorf("copied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"app": "web", v1alpha1.GuardLabel: v1alpha1.GuardClosed}, pod); diff != "" {
		t.Errorf("the pod's own labels changed (-want +got):\n%s", diff)
	}
}
