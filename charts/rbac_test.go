package charts_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRBACHasNoWildcards(t *testing.T) {
	objects := render(t, nil)
	var rules []rbacv1.PolicyRule
	for _, role := range all[*rbacv1.Role](objects) {
		rules = append(rules, role.Rules...)
	}
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		rules = append(rules, role.Rules...)
	}
	for _, rule := range rules {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
			if slices.Contains(list, "*") {
				t.Errorf("a rule has a wildcard: %v", rule)
			}
		}
	}
}

// Besides the surge and the guard, the manager may write to pods only for the
// hand-shake with the descheduler and for deletion costs.
func TestPodsMayBePatchedForTheDescheduler(t *testing.T) {
	cases := map[string]struct {
		descheduler values
		cost        bool
		want        []string
	}{
		"by default":              {values{}, false, []string{"drawbridge-descheduler"}},
		"with one of the two":     {values{"markInProgress": false, "markEvictOnly": true}, false, []string{"drawbridge-descheduler"}},
		"with neither of the two": {values{"markInProgress": false}, false, nil},
		"with deletion costs":     {values{"markInProgress": false}, true, []string{"drawbridge-deletion-cost"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			off := values{"enabled": false}
			objects := render(t, values{"surge": off, "guard": off, "uninstall": values{"cleanup": false}, "descheduler": tc.descheduler, "requests": values{"podDeletionCost": tc.cost}})
			var roles, bound []string
			for _, role := range all[*rbacv1.ClusterRole](objects) {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "patch") {
						roles = append(roles, role.Name)
					}
				}
			}
			for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
				if slices.Contains(roles, binding.RoleRef.Name) {
					bound = append(bound, binding.RoleRef.Name)
				}
			}
			if diff := cmp.Diff(tc.want, bound); diff != "" {
				t.Errorf("roles that may patch pods (-want +got):\n%s", diff)
			}
		})
	}
}

// Requests for pods that a taint deletes are made only where that is enabled.
func TestPodsThatATaintDeletesAreAskedForOnlyIfEnabled(t *testing.T) {
	roles := func(v values) []string {
		var names []string
		for _, binding := range all[*rbacv1.ClusterRoleBinding](render(t, v)) {
			if binding.RoleRef.Name == "drawbridge-taints" {
				names = append(names, binding.RoleRef.Name)
			}
		}
		return names
	}
	if diff := cmp.Diff([]string(nil), roles(nil)); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"drawbridge-taints"}, roles(values{"taints": values{"enabled": true}})); diff != "" {
		t.Errorf("if enabled (-want +got):\n%s", diff)
	}
}
