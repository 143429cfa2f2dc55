package cli

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

func TestWhatTheArgumentsOfTheManagerSay(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want Installation
	}{
		"the defaults of the chart":     {[]string{"--maintenance=true", "--budgets=true", "--native-controllers=Auto", "--native-state=x-native"}, Installation{NativeMode: "Auto", NativeState: "x-native"}},
		"no NodeMaintenances":           {[]string{"--maintenance=false"}, Installation{MaintenanceOff: true}},
		"no EvictionBudgets":            {[]string{"--budgets=false"}, Installation{BudgetsOff: true}},
		"nothing natively":              {[]string{"--native-controllers=Off"}, Installation{NativeMode: "Off", NativeOff: true}},
		"nothing natively, by its gate": {[]string{"--native-controllers=Auto", "--feature-gates=Guard=false,NativeAPI=false"}, Installation{NativeMode: "Auto", NativeOff: true}},
		"how long a maintenance asks":   {[]string{"--maintenance-evacuation-wait=5m"}, Installation{Wait: new(5 * time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Wanted = 1
			if diff := cmp.Diff(tc.want, installationOf(&appsv1.Deployment{}, tc.args)); diff != "" {
				t.Errorf("installation (-want +got):\n%s", diff)
			}
		})
	}
}
