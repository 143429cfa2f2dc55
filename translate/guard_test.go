package translate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestGuardClosed(t *testing.T) {
	tests := map[string]struct {
		request, begins, cause string
	}{
		"of a pod that is evacuated":         {"uid-1", translate.EvacuationTriggered, "EvictionRequestInProgress"},
		"of a pod nobody has begun to touch": {"", translate.NotCoordinated, "EvictionNotCoordinated"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := translate.GuardClosed(translate.Subject{Namespace: "shop", Pod: "db-0", Request: tc.request})
			if v.Outcome != translate.Deny || v.Reason != translate.ReasonGuardClosed {
				t.Errorf("verdict %+v", v)
			}
			if !strings.HasPrefix(v.Message, tc.begins) || len(v.Message) >= 200 {
				t.Errorf("message %q, want it to begin with %q", v.Message, tc.begins)
			}
			if diff := cmp.Diff(tc.cause, v.CauseType); diff != "" {
				t.Errorf("cause (-want +got):\n%s", diff)
			}
		})
	}
}
