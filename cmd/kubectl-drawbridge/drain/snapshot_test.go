package drain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestOutcome(t *testing.T) {
	whole := func() *v1alpha1.NodeMaintenance {
		return condition(maintenance(), v1alpha1.ConditionDrained, metav1.ConditionTrue)
	}
	changed := func(m *v1alpha1.NodeMaintenance, change func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
		change(m)
		return m
	}
	cases := map[string]struct {
		m    *v1alpha1.NodeMaintenance
		want outcome
	}{
		"it is gone":                                {nil, deleted},
		"it is being deleted":                       {changed(maintenance(), func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: now} }), deleted},
		"it has just begun":                         {maintenance(), running},
		"all pods have gone":                        {whole(), drained},
		"the status is about an earlier generation": {changed(whole(), func(m *v1alpha1.NodeMaintenance) { m.Generation = 2 }), running},
		"somebody stops it":                         {changed(whole(), func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = false }), stopped},
		"no node is selected any more":              {condition(maintenance(), v1alpha1.ConditionNodesSelected, metav1.ConditionFalse), noNodes},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := outcomeOf(tc.m); got != tc.want {
				t.Errorf("want %d, have %d", tc.want, got)
			}
		})
	}
}
