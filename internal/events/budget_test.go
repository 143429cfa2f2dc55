package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBudgetEvents(t *testing.T) {
	tests := map[string]struct{ got, want Event }{
		"granted in a group": {
			EvictionGranted("ingester-a-0", "ingester", "a"),
			Event{"Normal", "EvictionGranted", "Grant", `The eviction of pod ingester-a-0 of group "a" is granted by EvictionBudget ingester.`},
		},
		"granted by two, without groups": {
			EvictionGranted("db-0", "db, night", ""),
			Event{"Normal", "EvictionGranted", "Grant", "The eviction of pod db-0 is granted by EvictionBudget db, night."},
		},
		"waits": {
			BudgetWaits(`EvictionBudget ingester: group "a" is disrupted, and at most 1 may be at a time.`),
			Event{"Normal", "BudgetWaits", "Grant", `EvictionBudget ingester: group "a" is disrupted, and at most 1 may be at a time.`},
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
