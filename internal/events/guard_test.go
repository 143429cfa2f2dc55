package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGuardEvents(t *testing.T) {
	tests := map[string]struct{ got, want Event }{
		"held": {
			GuardHeld("virtual machine shop/db cannot migrate"),
			Event{"Warning", "GuardHeld", "GuardPods", "The pod is not evicted, its guard stays closed: virtual machine shop/db cannot migrate."},
		},
		"name taken": {
			GuardNameTaken("drawbridge-guard"),
			Event{"Warning", "GuardNameTaken", "GuardPods", "The guard's budget would be named drawbridge-guard, too, so the pods of this namespace have no guard. Rename this one."},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}
