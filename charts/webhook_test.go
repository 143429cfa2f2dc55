package charts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

func TestWebhooks(t *testing.T) {
	webhooks := only[*admissionregistrationv1.ValidatingWebhookConfiguration](t, render(t, values{
		"webhook": values{"url": "https://localhost:1234", "breakGlassGroups": []any{"sre", "it's"}},
	})).Webhooks
	if len(webhooks) != 3 {
		t.Fatalf("want 3 webhooks, have %d", len(webhooks))
	}
	eviction, status := webhooks[0], webhooks[1]

	if got, want := *eviction.ClientConfig.URL, "https://localhost:1234/validate-eviction"; got != want {
		t.Errorf("the eviction webhook calls %s, want %s", got, want)
	}
	if got, want := *status.ClientConfig.URL, "https://localhost:1234/validate-evictionrequest-status"; got != want {
		t.Errorf("the status webhook calls %s, want %s", got, want)
	}
	if *eviction.FailurePolicy != admissionregistrationv1.Ignore || *status.FailurePolicy != admissionregistrationv1.Ignore {
		t.Errorf("failure policies are %s and %s, want Ignore twice", *eviction.FailurePolicy, *status.FailurePolicy)
	}
	// The manager must be evictable while it is down.
	excluded := eviction.NamespaceSelector.MatchExpressions[0]
	if diff := cmp.Diff([]string{"kube-system", install.DefaultNamespace}, excluded.Values); diff != "" {
		t.Errorf("excluded namespaces (-want +got):\n%s", diff)
	}
	var conditions []string
	for _, c := range eviction.MatchConditions {
		conditions = append(conditions, c.Expression)
	}
	want := []string{
		`!(request.userInfo.username in ["system:kube-controller-manager"])`,
		`!has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g in ["sre","it's"])`,
	}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("match conditions (-want +got):\n%s", diff)
	}
}
