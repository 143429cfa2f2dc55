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
		"a budget that is changed": {
			GuardBudgetChanged([]string{"metadata.labels", "spec.selector"}, false, false),
			Event{"Warning", "GuardBudgetChanged", "GuardPods", "Something changes this budget whenever the guard writes it: metadata.labels, spec.selector. " +
				"It protects no pod. Exempt it from what changes it."},
		},
		"a budget that is changed and protects": {
			GuardBudgetChanged([]string{"metadata.labels"}, true, false),
			Event{"Warning", "GuardBudgetChanged", "GuardPods", "Something changes this budget whenever the guard writes it: metadata.labels. It protects the pods all the same."},
		},
		"a budget that lets pods go that are not Ready": {
			GuardBudgetChanged([]string{"spec.unhealthyPodEvictionPolicy"}, true, true),
			Event{"Warning", "GuardBudgetChanged", "GuardPods", "Something changes this budget whenever the guard writes it: spec.unhealthyPodEvictionPolicy. " +
				"It protects pods that are Ready, and others only while Drawbridge is up."},
		},
		"a budget that selects the label": {
			GuardLabelSelected("drawbridge.dev/guard"),
			Event{"Warning", "GuardLabelSelected", "GuardPods", "This budget selects pods by drawbridge.dev/guard, a label that only the guard writes. It keeps no guard away, " +
				"and where it selects a guarded pod, evictions answer 500 while Drawbridge is down. Select by a label of the application."},
		},
		"a label that is left": {
			GuardLabelLeft("drawbridge.dev/guard"),
			Event{"Warning", "GuardLabelLeft", "GuardPods", "This controller selects its pods by drawbridge.dev/guard, a label that only the guard writes. " +
				"A pod whose label changes would be replaced, so the guard leaves the label as it is. Take it out of the selector and the template."},
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
