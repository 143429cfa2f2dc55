//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// sidecar is the name of Istio's container.
const sidecar = "istio-proxy"

// injectSidecars plays Istio's injector in a namespace: it adds a container that never ends,
// unless a label says no, or a native sidecar if an annotation says so.
func injectSidecars(t *testing.T, namespace string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(in.Body).Decode(review); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		patch, err := injection(review.Request.Object.Raw)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if patch != nil {
			review.Response.Patch, review.Response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
		}
		review.Request = nil
		_ = json.NewEncoder(out).Encode(review)
	}))
	t.Cleanup(server.Close)
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "istio-" + namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "namespace.sidecar-injector.istio.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(server.URL + "/inject"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			FailurePolicy:     &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	create(t, webhook)
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.WithoutCancel(t.Context()), webhook)); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "sidecars to be injected", func(ctx context.Context) error {
		probe := builder.Pod(namespace, "probe").Obj()
		if err := admin.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if len(probe.Spec.Containers) != 2 {
			return errors.New("there is none")
		}
		return nil
	})
}

// injection is a patch of a new pod, nil if nothing is injected.
func injection(raw []byte) ([]byte, error) {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, err
	}
	if pod.Labels["sidecar.istio.io/inject"] == "false" {
		return nil, nil
	}
	container := corev1.Container{Name: sidecar, Image: "registry.example.com/istio-proxy:1"}
	if pod.Annotations["sidecar.istio.io/nativeSidecar"] == "true" {
		always := corev1.ContainerRestartPolicyAlways
		container.RestartPolicy = &always
		return json.Marshal([]map[string]any{{"op": "add", "path": "/spec/initContainers", "value": append([]corev1.Container{container}, pod.Spec.InitContainers...)}})
	}
	// The fake kubelet ends the pod of a Job at once. One with such a container has no end.
	annotations := map[string]string{cluster.CompleteAfterAnnotation: "1h"}
	maps.Copy(annotations, pod.Annotations)
	return json.Marshal([]map[string]any{
		{"op": "add", "path": "/spec/containers/-", "value": container},
		{"op": "add", "path": "/metadata/annotations", "value": annotations},
	})
}
