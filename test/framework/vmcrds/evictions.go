package vmcrds

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EvictionWebhooks plays KubeVirt's two webhooks for evictions: that of launcher pods
// and that of pods with hotplugged volumes. They decide as the pod eviction admitter of
// KubeVirt 1.9 does (kubevirt.md, section 4), its faults included.
type EvictionWebhooks struct {
	// Client reads, and marks machines, as APIAccount.
	Client client.Client
	// Namespace is the only one that they are asked about: tests share a cluster.
	Namespace string

	server       *httptest.Server
	calls, marks atomic.Int64
}

// Calls is how often they were asked, Marks how often they have marked a machine.
func (w *EvictionWebhooks) Calls() int64 { return w.calls.Load() }

// Marks is how often they have marked a machine.
func (w *EvictionWebhooks) Marks() int64 { return w.marks.Load() }

// Start serves until Close, and tells the API server of it. Admin installs.
func (w *EvictionWebhooks) Start(ctx context.Context, admin client.Client) error {
	w.server = httptest.NewTLSServer(http.HandlerFunc(w.serve))
	if err := admin.Create(ctx, w.configuration()); err != nil {
		return fmt.Errorf("install the webhooks for evictions: %w", err)
	}
	return nil
}

// Remove takes them away from the API server, as KubeVirt's operator does when it is
// told to. That they are gone already is all right.
func (w *EvictionWebhooks) Remove(ctx context.Context, admin client.Client) error {
	return client.IgnoreNotFound(admin.Delete(ctx, w.configuration()))
}

// Close stops to serve.
func (w *EvictionWebhooks) Close() {
	if w.server != nil {
		w.server.Close()
	}
}

// configuration is what KubeVirt's operator installs, with a name for each namespace.
func (w *EvictionWebhooks) configuration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "virt-api-validator-" + w.Namespace}}
	for _, webhook := range []struct{ name, condition, prefix string }{
		{"virt-launcher-eviction-interceptor.kubevirt.io", "only-vms", "virt-launcher"},
		{"hotplug-pod-eviction-interceptor.kubevirt.io", "only-hotplug-pods", "hp-volume-"},
	} {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: webhook.name,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(w.server.URL + "/pod-eviction-validate"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: webhook.condition, Expression: fmt.Sprintf("object.metadata.name.startsWith('%s')", webhook.prefix),
			}},
		})
	}
	return configuration
}

func (w *EvictionWebhooks) serve(out http.ResponseWriter, in *http.Request) {
	w.calls.Add(1)
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(in.Body).Decode(review); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if why := w.deny(in.Context(), review.Request); why != "" {
		answer.Allowed = false
		answer.Result = &metav1.Status{Code: http.StatusTooManyRequests, Message: why}
	}
	review.Request, review.Response = nil, answer
	reply(out, review)
}

// deny says why an eviction is refused; empty if it is allowed. That a pod that cannot
// be read may go is one of the faults.
func (w *EvictionWebhooks) deny(ctx context.Context, request *admissionv1.AdmissionRequest) string {
	pod := &corev1.Pod{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, pod); err != nil {
		return ""
	}
	switch {
	case pod.Labels["kubevirt.io"] == "hotplug-disk" && len(pod.OwnerReferences) == 1:
		return w.denyHotplug(ctx, pod)
	case isLauncher(pod):
		return w.denyLauncher(ctx, pod, request)
	default:
		return ""
	}
}

// isLauncher reports whether a pod is that of a machine, and has not ended.
func isLauncher(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return pod.Labels["kubevirt.io"] == "virt-launcher" && !ended && pod.Annotations["kubevirt.io/domain"] != ""
}

// denyHotplug asks neither for the strategy nor for a mark.
func (w *EvictionWebhooks) denyHotplug(ctx context.Context, pod *corev1.Pod) string {
	owner := &corev1.Pod{}
	switch err := w.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.OwnerReferences[0].Name}, owner); {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return "failed getting owner for hotplug pod: " + err.Error()
	case !isLauncher(owner):
		return ""
	}
	name := owner.Annotations["kubevirt.io/domain"]
	switch _, err := w.machine(ctx, pod.Namespace, name); {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		return "kubevirt failed getting the vmi: " + err.Error()
	}
	return fmt.Sprintf("cannot evict hotplug pod: %s associated with running vmi: %s in namespace %s", pod.Name, name, pod.Namespace)
}

func (w *EvictionWebhooks) denyLauncher(ctx context.Context, pod *corev1.Pod, request *admissionv1.AdmissionRequest) string {
	name := pod.Annotations["kubevirt.io/domain"]
	machine, err := w.machine(ctx, pod.Namespace, name)
	if err != nil { // Also when there is none.
		return "kubevirt failed getting the vmi: " + err.Error()
	}
	what := fmt.Sprintf("VMI %q", pod.Namespace+"/"+name)
	switch strategy := w.strategy(ctx, machine); {
	case strategy == "None", strategy == "LiveMigrateIfPossible" && !isMigratable(machine):
		return ""
	case strategy == "LiveMigrate" && !isMigratable(machine):
		return fmt.Sprintf("VMI %s is configured with an eviction strategy but is not live-migratable", name)
	case Text(machine, "status.evacuationNodeName") != "":
		return "Evacuation in progress: Eviction triggered evacuation of " + what
	case Text(machine, "status.nodeName") != pod.Spec.NodeName:
		return "Eviction request for target Pod"
	}
	eviction := &policyv1.Eviction{}
	if err := json.Unmarshal(request.Object.Raw, eviction); err != nil {
		return "failed to parse the eviction object: " + err.Error()
	}
	if err := w.mark(ctx, machine, pod.Spec.NodeName, eviction, request); err != nil {
		return "kubevirt failed marking the vmi for eviction: " + err.Error()
	}
	return "Eviction triggered evacuation of " + what
}

func (w *EvictionWebhooks) machine(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	machine := New(Machine, namespace, name, nil)
	return machine, w.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)
}

// strategy is the machine's own, else the cluster's, else None.
func (w *EvictionWebhooks) strategy(ctx context.Context, machine *unstructured.Unstructured) string {
	if own := Text(machine, "spec.evictionStrategy"); own != "" {
		return own
	}
	configs := &unstructured.UnstructuredList{}
	configs.SetGroupVersionKind(Config)
	if err := w.Client.List(ctx, configs); err == nil && len(configs.Items) == 1 {
		if ofCluster := Text(&configs.Items[0], "spec.configuration.evictionStrategy"); ofCluster != "" {
			return ofCluster
		}
	}
	return "None"
}

func isMigratable(machine *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(machine.Object, "status", "conditions") // None if they cannot be read.
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == "LiveMigratable" && condition["status"] == "True"
	})
}

// mark has no test, and names the source of a machine without annotations by a key that
// the API server refuses.
func (w *EvictionWebhooks) mark(ctx context.Context, machine *unstructured.Unstructured, node string, eviction *policyv1.Eviction, request *admissionv1.AdmissionRequest) error {
	operations := []map[string]any{{"op": "add", "path": "/status/evacuationNodeName", "value": node}}
	if eviction.Annotations["requested-by"] == "sigs.k8s.io/descheduler" {
		const key = "kubevirt.io~1eviction-source"
		if machine.GetAnnotations() == nil {
			operations = append(operations, map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]any{key: "descheduler"}})
		} else {
			operations = append(operations, map[string]any{"op": "add", "path": "/metadata/annotations/" + key, "value": "descheduler"})
		}
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encode the mark: %w", err)
	}
	dry := request.DryRun != nil && *request.DryRun
	if o := eviction.DeleteOptions; o != nil && len(o.DryRun) > 0 {
		dry = dry || strings.EqualFold(o.DryRun[0], metav1.DryRunAll)
	}
	if dry {
		return w.Client.Patch(ctx, machine, client.RawPatch(types.JSONPatchType, data), client.DryRunAll)
	}
	if err := w.Client.Patch(ctx, machine, client.RawPatch(types.JSONPatchType, data)); err != nil {
		return err
	}
	w.marks.Add(1)
	return nil
}
