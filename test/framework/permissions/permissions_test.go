package permissions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

func names(permissions []Permission) []string {
	var lines []string
	for _, p := range permissions {
		lines = append(lines, p.String())
	}
	return lines
}

func TestUnused(t *testing.T) {
	pods := Permission{Role: "r", Resource: "pods", Verb: "patch"}
	evict := Permission{Role: "r", Resource: "pods/eviction", Verb: "create"}
	leases := Permission{Role: "r", Namespace: "ours", Group: "coordination.k8s.io", Resource: "leases", Verb: "get"}
	secret := Permission{Role: "r", Namespace: "ours", Resource: "secrets", Verb: "watch", Names: []string{"cert"}}
	cases := map[string]struct {
		granted []Permission
		calls   cluster.Requests
		want    []string
	}{
		"nothing was called": {granted: []Permission{pods}, want: []string{"r: patch pods"}},
		"it was needed":      {granted: []Permission{pods}, calls: cluster.Requests{{Verb: "patch", Resource: "pods", Namespace: "any"}}},
		"another verb": {
			granted: []Permission{pods}, calls: cluster.Requests{{Verb: "get", Resource: "pods"}}, want: []string{"r: patch pods"},
		},
		"the resource is not the subresource": {
			granted: []Permission{evict}, calls: cluster.Requests{{Verb: "create", Resource: "pods"}}, want: []string{"r: create pods/eviction"},
		},
		"the subresource": {
			granted: []Permission{evict}, calls: cluster.Requests{{Verb: "create", Resource: "pods", Subresource: "eviction"}},
		},
		"another namespace": {
			granted: []Permission{leases}, calls: cluster.Requests{{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: "other"}},
			want: []string{"r: get leases.coordination.k8s.io in ours"},
		},
		"another group": {
			granted: []Permission{leases}, calls: cluster.Requests{{Verb: "get", Resource: "leases", Namespace: "ours"}},
			want: []string{"r: get leases.coordination.k8s.io in ours"},
		},
		"a name in a field selector": {
			granted: []Permission{secret},
			calls: cluster.Requests{{
				Verb: "watch", Resource: "secrets", Namespace: "ours", URI: "/api/v1/namespaces/ours/secrets?fieldSelector=metadata.name%3Dcert&watch=true",
			}},
		},
		"another name": {
			granted: []Permission{secret}, calls: cluster.Requests{{Verb: "watch", Resource: "secrets", Namespace: "ours", Name: "other"}},
			want: []string{"r: watch secrets cert in ours"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, names(Unused(tc.granted, tc.calls))); diff != "" {
				t.Errorf("unused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	forbid := map[string]string{decision: "forbid"}
	granted := []Permission{{Role: "r", Verb: "watch", Resource: "pods"}}
	got := Missing(granted, cluster.Requests{
		{Verb: "watch", Resource: "pods", Code: 403, Annotations: forbid},
		{Verb: "create", Resource: "pods", Subresource: "eviction", Code: 403, Annotations: forbid},
		{Verb: "create", Resource: "pods", Subresource: "eviction", Code: 403, Annotations: forbid},
		{Verb: "create", Group: "drawbridge.dev", Resource: "evictionrequests", Code: 403, Annotations: map[string]string{decision: "allow"}},
		{Verb: "get", URI: "/metrics", Code: 403, Annotations: forbid},
	})
	if diff := cmp.Diff([]string{"no role: create pods/eviction", "no role: get /metrics"}, got); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}

// The clients read objects only; who may do what is not decided here.
func TestGranted(t *testing.T) {
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}}
	us := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ours", Name: "drawbridge"}}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	client := fake.NewClientset(
		&rbacv1.ClusterRole{ObjectMeta: meta("", "wide"), Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "wide"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "wide"}, Subjects: us},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta("", "other"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "theirs", Name: "drawbridge"}},
		},
		&rbacv1.Role{ObjectMeta: meta("ours", "narrow"), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"cert"}, Verbs: []string{"get"},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: meta("ours", "narrow"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "narrow"}, Subjects: us},
	)
	got, err := Granted(t.Context(), client, "ours", "drawbridge")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ClusterRole wide: get pods", "ClusterRole wide: list pods", "Role narrow: get secrets cert in ours"}
	if diff := cmp.Diff(want, names(got)); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
}
