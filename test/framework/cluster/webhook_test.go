package cluster_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// kube-apiserver reaches a webhook on this machine, its verdict comes back, and what
// it notes stands in the request log.
func TestWebhooksOnThisMachineAreReached(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID:              review.Request.UID,
			Result:           &metav1.Status{Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "not now"},
			AuditAnnotations: map[string]string{"verdict": "wait"},
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	namespace := shared.Namespace(t)
	pod := createReady(t, shared, builder.Pod(namespace, "web").Obj())

	configurations := shared.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations()
	must(configurations.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "local.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      ptr.To(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{}))(t)
	defer func() {
		if err := configurations.Delete(t.Context(), "local", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()

	// The server notices a new webhook after a moment; a dry run asks without harm.
	var mark cluster.Mark
	cluster.Eventually(t, "the webhook refuses an eviction", func(ctx context.Context) error {
		mark = shared.RequestLog().Mark()
		err := shared.Client().PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		if apierrors.IsTooManyRequests(err) {
			return nil
		}
		return errors.Join(errors.New("want 429"), err)
	})
	evictions := since(t, mark).By("admin").Where(func(r cluster.Request) bool { return r.Subresource == "eviction" })
	if len(evictions) != 1 || evictions[0].Code != http.StatusTooManyRequests || evictions[0].Annotations["local.example.com/verdict"] != "wait" {
		t.Errorf("want one refused eviction with the webhook's note, got:\n%s %v", evictions, evictions)
	}
}
