package doctor

import (
	"slices"
	"testing"
)

func TestThePermissionsFollowTheSettings(t *testing.T) {
	f := fine()
	resources := func() []string {
		var all []string
		for _, n := range Needs(&f) {
			all = append(all, n.text(system))
		}
		return all
	}
	if got := resources(); slices.Contains(got, `"get, list, watch" on deployments.apps`) || !slices.Contains(got, `"update, delete" on poddisruptionbudgets.policy "drawbridge-guard"`) ||
		!slices.Contains(got, `"list, watch, update" on secrets "drawbridge-webhook-cert" in the namespace drawbridge-system`) {
		t.Errorf("with the guard and without surge: %v", got)
	}
	f.Deployments[0].Spec.Template.Spec.Containers[0].Args = []string{"--surge=true", "--guard=false", "--webhook-cert-secret=s", "--cert-manager-certificate=c"}
	if got := resources(); !slices.Contains(got, `"get, list, watch" on deployments.apps`) || slices.Contains(got, `"create" on poddisruptionbudgets.policy`) ||
		!slices.Contains(got, `"list, watch" on secrets "s" in the namespace drawbridge-system`) {
		t.Errorf("with surge and cert-manager, without the guard: %v", got)
	}
}
