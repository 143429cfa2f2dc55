package charts_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
)

// With a guard the API server may pass over a webhook that is down, without one it
// must not, unless somebody says so.
func TestTheFailurePolicyFollowsTheGuard(t *testing.T) {
	off := values{"enabled": false}
	cases := map[string]struct {
		values values
		want   admissionregistrationv1.FailurePolicyType
	}{
		"with the guard":               {nil, admissionregistrationv1.Ignore},
		"without it":                   {values{"guard": off}, admissionregistrationv1.Fail},
		"with the guard, but chosen":   {values{"webhook": values{"failurePolicy": "Fail"}}, admissionregistrationv1.Fail},
		"without the guard and chosen": {values{"guard": off, "webhook": values{"failurePolicy": "Ignore"}}, admissionregistrationv1.Ignore},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			conf := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, tc.values))
			if diff := cmp.Diff(string(tc.want), conf.Annotations[failurepolicy.WantedAnnotation]); diff != "" {
				t.Errorf("failure policy that the manager is to set (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(admissionregistrationv1.Ignore, *conf.Webhooks[0].FailurePolicy); diff != "" {
				t.Errorf("failure policy until then (-want +got):\n%s", diff)
			}
		})
	}
}

// The manager names the role that owns its budgets, may read it, and may change no
// budget but its own.
func TestTheRoleOfTheGuard(t *testing.T) {
	cases := map[string]struct {
		values values
		want   string
	}{
		"with the default names": {nil, "drawbridge-guard"},
		"with other names":       {values{"fullnameOverride": "other"}, "other-guard"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := render(t, tc.values)
			i := slices.IndexFunc(all[*rbacv1.ClusterRole](objects), func(r *rbacv1.ClusterRole) bool { return r.Name == tc.want })
			if i < 0 {
				t.Fatalf("there is no role %s", tc.want)
			}
			names := map[string][]string{}
			for _, rule := range all[*rbacv1.ClusterRole](objects)[i].Rules {
				for _, verb := range rule.Verbs {
					for _, resource := range rule.Resources {
						names[verb+" "+resource] = rule.ResourceNames
					}
				}
			}
			want := map[string][]string{
				"patch pods": nil, "create poddisruptionbudgets": nil, "update poddisruptionbudgets": {v1alpha1.GuardBudgetName},
				"delete poddisruptionbudgets": {v1alpha1.GuardBudgetName}, "get clusterroles": {tc.want},
				"get replicasets": nil, "get statefulsets": nil, "get daemonsets": nil, "get jobs": nil, "get replicationcontrollers": nil,
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("permissions by verb and resource, with their names (-want +got):\n%s", diff)
			}
			args := only[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Args
			if !slices.Contains(args, "--guard-owner="+tc.want) {
				t.Errorf("the manager is not told of its role: %q", args)
			}
		})
	}
}
