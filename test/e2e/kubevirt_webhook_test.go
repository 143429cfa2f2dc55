//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/builder"
	"github.com/drawbridge-dev/drawbridge/test/vmcrds"
)

// theirWebhook decides as KubeVirt's pod eviction admitter of v1.8 does (kubevirt.md,
// section 4) and is installed as its operator installs it, for one namespace.
type theirWebhook struct {
	calls, marks atomic.Int64
}

// runTheirWebhook installs it until the end of the test.
func runTheirWebhook(t *testing.T, namespace string) *theirWebhook {
	t.Helper()
	w := &theirWebhook{}
	server := httptest.NewTLSServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "virt-api-validator-" + namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "virt-launcher-eviction-interceptor.kubevirt.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(server.URL + "/pod-eviction-validate"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "only-vms", Expression: "object.metadata.name.startsWith('virt-launcher')"}},
		}},
	}
	create(t, config)
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := admin.Delete(context.Background(), config); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *theirWebhook) serve(out http.ResponseWriter, in *http.Request) {
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
	if err := json.NewEncoder(out).Encode(review); err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError) // If anybody still listens.
	}
}

// deny is the order of decisions of a launcher pod.
func (w *theirWebhook) deny(ctx context.Context, request *admissionv1.AdmissionRequest) string {
	pod := &corev1.Pod{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, pod); err != nil {
		return ""
	}
	name := pod.Annotations["kubevirt.io/domain"]
	if pod.Labels["kubevirt.io"] != "virt-launcher" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || name == "" {
		return ""
	}
	machine, err := getMachine(ctx, request.Namespace, name)
	if err != nil {
		return "kubevirt failed getting the vmi: " + err.Error()
	}
	strategy := vmcrds.Text(machine, "spec.evictionStrategy")
	switch {
	case strategy == "" || strategy == "None", strategy == "LiveMigrateIfPossible" && !isMigratable(machine):
		return ""
	case strategy == "LiveMigrate" && !isMigratable(machine):
		return fmt.Sprintf("VMI %s is configured with an eviction strategy but is not live-migratable", name)
	case vmcrds.Text(machine, "status.evacuationNodeName") != "":
		return fmt.Sprintf("Evacuation in progress: Eviction triggered evacuation of VMI %q", request.Namespace+"/"+name)
	case vmcrds.Text(machine, "status.nodeName") != pod.Spec.NodeName:
		return "Eviction request for target Pod"
	}
	if request.DryRun == nil || !*request.DryRun {
		w.marks.Add(1)
		data := fmt.Appendf(nil, `[{"op":"add","path":"/status/evacuationNodeName","value":%q}]`, pod.Spec.NodeName)
		if err := virtAPI.Patch(ctx, machine, client.RawPatch(types.JSONPatchType, data)); err != nil {
			return "kubevirt failed marking the vmi for eviction: " + err.Error()
		}
	}
	return fmt.Sprintf("Eviction triggered evacuation of VMI %q", request.Namespace+"/"+name)
}

func isMigratable(machine *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(machine.Object, "status", "conditions") // None if they cannot be read.
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "LiveMigratable" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// The hand-over begins with both webhooks in place. Both deny, both may mark, and
// nobody waits for the other: one mark and one migration, no 500, and the drain ends.
func TestKubeVirtsOwnWebhookIsStillThere(t *testing.T) {
	namespace, nodes := kubevirtReady(t)
	theirs := runTheirWebhook(t, namespace)
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: nodes[1], Evacuates: true})
	mark := kube.RequestLog().Mark()
	fixed := createMachine(t, namespace, "fixed", nodes[1], "LiveMigrate", "False")
	eventually(t, "the API server to call both webhooks", func(context.Context) error {
		_ = evict(t, "alice", fixed, eviction(fixed))
		if theirs.calls.Load() == 0 {
			return fmt.Errorf("it calls one")
		}
		return nil
	})
	pods := map[string]*corev1.Pod{}
	for name, strategy := range map[string]string{"live": "LiveMigrate", "possible": "LiveMigrateIfPossible", "none": "None"} {
		pods[name] = createMachine(t, namespace, name, nodes[0], strategy, "True")
	}
	drain := startDrain(t, "alice", nodes[0])
	result := finishWell(t, drain)
	saysAll(t, "standard output", result.Stdout, "node/"+nodes[0]+" drained")
	for _, name := range []string{"live", "possible"} {
		waitRequest(t, pods[name], "Evicted", isTrue(v1alpha1.ConditionEvicted))
		machine := must(getMachine(t.Context(), namespace, name))(t)
		if got := vmcrds.Text(machine, "status.nodeName"); got != nodes[1] {
			t.Errorf("machine %s runs on %q, want %q", name, got, nodes[1])
		}
		if writes := machineWrites(t, mark, namespace, name); len(writes) > 1 {
			t.Errorf("machine %s: want at most one mark of ours, got:\n%s", name, writes)
		}
	}
	if migrations := waitMigrations(t, namespace, 2); len(migrations) != 2 {
		t.Errorf("want one migration for each machine, got %d", len(migrations))
	}
	for _, r := range since(t, mark) {
		if r.Subresource == "eviction" && r.Namespace == namespace && r.Code >= http.StatusInternalServerError {
			t.Errorf("want no such answer: %v", r)
		}
	}
	got := evict(t, "alice", fixed, eviction(fixed))
	if got.code != http.StatusTooManyRequests {
		t.Errorf("a machine that cannot migrate: want 429, got %d: %s", got.code, got.body)
	}
	lives(t, fixed)
	if theirs.marks.Load() == 0 {
		t.Error("their webhook has marked nothing: the test shows nothing")
	}
}

// A platform that is installed after its policy is found.
func TestAPlatformThatIsInstalledLater(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	p := &v1alpha1.EvacuationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: v1alpha1.EvacuationPolicySpec{
		Workload: &v1alpha1.WorkloadReference{APIVersion: "late.example.com/v1", Kind: "Box", Name: "'box'"},
		Strategy: "workload.spec.strategy", Evacuating: "false",
	}}
	p = ownPolicy(t, namespace, p, nil)
	waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonKindNotInstalled)
	pod := createPod(t, builder.Pod(namespace, "box").Node(node).Label("kubevirt.io", "of-"+namespace).Obj())
	got := evictUntil(t, "alice", pod, "Eviction could not be coordinated yet")
	if got.code != http.StatusTooManyRequests {
		t.Errorf("before: want 429, got %d", got.code)
	}
	lives(t, pod)
	if err := vmcrds.Install(t.Context(), admin, vmcrds.Late()); err != nil {
		t.Fatal(err)
	}
	waitPolicy(t, p.Name, v1alpha1.ConditionReady, metav1.ConditionTrue, "")
	create(t, vmcrds.New(vmcrds.Box, namespace, "box", map[string]any{"spec.strategy": "None"}))
	evictUntilGranted(t, pod)
	if _, err := getRequest(t.Context(), pod); !apierrors.IsNotFound(err) {
		t.Errorf("want no request, got %v", err)
	}
}
