package charts_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Cordoning by hand is never refused, only commented on.
func TestThePolicyOfMaintenancesOnlyWarns(t *testing.T) {
	objects := render(t, nil)
	const name = "node-maintenance-cordon.drawbridge.dev"
	policy := findPolicy(t, objects, name)
	if *policy.Spec.FailurePolicy != admissionregistrationv1.Ignore {
		t.Errorf("its failure policy is %s, want Ignore", *policy.Spec.FailurePolicy)
	}
	if want := "has(oldObject.metadata.annotations) && '" + v1alpha1.MaintenancesAnnotation + "' in oldObject.metadata.annotations"; policy.Spec.MatchConditions[1].Expression != want {
		t.Errorf("it looks at %s, want %s", policy.Spec.MatchConditions[1].Expression, want)
	}
	i := slices.IndexFunc(all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects), func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
		return b.Spec.PolicyName == name
	})
	if i < 0 {
		t.Fatal("it is not bound")
	}
	got := all[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](objects)[i].Spec.ValidationActions
	if diff := cmp.Diff([]admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}, got); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// Without maintenances the manager may not write to nodes, nor to the statuses of pods.
func TestNodesMayBePatchedForMaintenances(t *testing.T) {
	cases := map[string]struct {
		values values
		want   []string
	}{
		"by default":           {nil, []string{"drawbridge-maintenance nodes", "drawbridge-maintenance pods/status"}},
		"without maintenances": {values{"maintenance": values{"enabled": false}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, role := range all[*rbacv1.ClusterRole](render(t, tc.values)) {
				for _, rule := range role.Rules {
					for _, resource := range rule.Resources {
						if (resource == "nodes" || resource == "pods/status") && slices.Contains(rule.Verbs, "patch") {
							got = append(got, role.Name+" "+resource)
						}
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("who may patch them (-want +got):\n%s", diff)
			}
		})
	}
}
