package vmcrds

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// API plays those parts of virt-api that an evacuation meets outside of the eviction
// webhooks: the mutating webhook of machines, and the subresource evacuate/cancel.
// What it does was seen with virt-api 1.9.0 (kubevirt.md, section 14).
type API struct {
	// Client reads nodes and machines and writes marks, as APIAccount.
	Client client.Client
	// DrainTaint refuses evacuate/cancel on a node with it. KubeVirt's default if empty.
	DrainTaint string

	server *httptest.Server
}

// defaultDrainTaint is KubeVirt's migrations.nodeDrainTaintKey.
const defaultDrainTaint = "kubevirt.io/drain"

// Start serves until Close, and tells the API server of it. Admin installs.
func (a *API) Start(ctx context.Context, admin client.Client) error {
	if a.DrainTaint == "" {
		a.DrainTaint = defaultDrainTaint
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/virtualmachineinstances-mutate", a.mutate)
	mux.HandleFunc("GET /apis/subresources.kubevirt.io/v1", a.discover)
	mux.HandleFunc("PUT /apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}/evacuate/cancel", a.evacuateCancel)
	a.server = httptest.NewTLSServer(mux)
	_, port, err := net.SplitHostPort(a.server.Listener.Addr().String())
	if err != nil {
		return fmt.Errorf("find the port: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("read the port: %w", err)
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: SystemNamespace}},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: SystemNamespace, Name: "virt-api"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		},
		a.apiService(int64(number)), a.webhook(),
	}
	for _, object := range objects {
		if err := admin.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", object.GetName(), err)
		}
	}
	return a.waitServed(ctx, admin)
}

// Close stops to serve.
func (a *API) Close() {
	if a.server != nil {
		a.server.Close()
	}
}

func (a *API) apiService(port int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.subresources.kubevirt.io"},
		"spec": map[string]any{
			"group": "subresources.kubevirt.io", "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": SystemNamespace, "name": "virt-api", "port": port},
		},
	}}
}

// webhook is that of KubeVirt's virt-api-mutator which sees machines.
func (a *API) webhook() *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "virt-api-mutator"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "virtualmachineinstances-mutator.kubevirt.io",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(a.server.URL + "/virtualmachineinstances-mutate"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{Machine.Group}, APIVersions: []string{"v1"}, Resources: []string{"virtualmachineinstances"}},
			}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// waitServed waits until the API server calls both.
func (a *API) waitServed(ctx context.Context, admin client.Client) error {
	return waiting.For(ctx, "the API of subresources", func(ctx context.Context) error {
		service := a.apiService(0)
		if err := admin.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(service.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range conditions {
			if condition, ok := c.(map[string]any); ok && condition["type"] == "Available" && condition["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", conditions)
	})
}

// mutate is KubeVirt's mutator: a machine begins in phase Pending, and changes of its
// status by others than KubeVirt are silently reverted.
func (a *API) mutate(out http.ResponseWriter, in *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(in.Body).Decode(review); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	patch, err := mutation(review.Request)
	if err != nil {
		answer.Allowed, answer.Result = false, &metav1.Status{Message: err.Error()}
	} else if patch != nil {
		answer.Patch, answer.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	}
	review.Request, review.Response = nil, answer
	reply(out, review)
}

func mutation(request *admissionv1.AdmissionRequest) ([]byte, error) {
	var after, before map[string]any
	if err := json.Unmarshal(request.Object.Raw, &after); err != nil {
		return nil, fmt.Errorf("read the machine: %w", err)
	}
	if request.Operation == admissionv1.Create {
		status, ok := after["status"].(map[string]any)
		if !ok {
			status = map[string]any{}
		}
		status["phase"] = "Pending"
		return json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	}
	if err := json.Unmarshal(request.OldObject.Raw, &before); err != nil {
		return nil, fmt.Errorf("read the machine as it was: %w", err)
	}
	if slices.Contains(writers, request.UserInfo.Username) || reflect.DeepEqual(before["status"], after["status"]) {
		return nil, nil
	}
	return json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": before["status"]}})
}

func (a *API) discover(out http.ResponseWriter, _ *http.Request) {
	reply(out, metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "subresources.kubevirt.io/v1",
		APIResources: []metav1.APIResource{{Name: "virtualmachineinstances/evacuate/cancel", Namespaced: true}},
	})
}

// evacuateCancel removes KubeVirt's mark, unless the node has KubeVirt's taint.
func (a *API) evacuateCancel(out http.ResponseWriter, in *http.Request) {
	if err := a.cancel(in.Context(), client.ObjectKey{Namespace: in.PathValue("namespace"), Name: in.PathValue("name")}, in); err != nil {
		status := &apierrors.StatusError{}
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(int(status.Status().Code))
		reply(out, status.Status())
		return
	}
	out.WriteHeader(http.StatusOK)
}

func (a *API) cancel(ctx context.Context, key client.ObjectKey, in *http.Request) error {
	machine := New(Machine, key.Namespace, key.Name, nil)
	if err := a.Client.Get(ctx, key, machine); err != nil {
		return err
	}
	marked := Text(machine, "status.evacuationNodeName")
	name := marked
	if name == "" {
		name = Text(machine, "status.nodeName")
	}
	node := &corev1.Node{}
	if err := a.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return apierrors.NewInternalError(err)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == a.DrainTaint && taint.Effect == corev1.TaintEffectNoSchedule {
			return apierrors.NewBadRequest(fmt.Sprintf("Node %q has NodeDrainTaintKey %q", node.Name, taint.ToString()))
		}
	}
	if marked == "" {
		return nil
	}
	var options struct {
		EvacuationNodeName string `json:"evacuationNodeName"`
	}
	if err := json.NewDecoder(in.Body).Decode(&options); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	data := fmt.Appendf(nil, `[{"op":"test","path":"/status/evacuationNodeName","value":%q},{"op":"remove","path":"/status/evacuationNodeName"}]`, options.EvacuationNodeName)
	if err := a.Client.Patch(ctx, machine, client.RawPatch(types.JSONPatchType, data)); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// reply sends an answer, if the client is still connected.
func reply(out http.ResponseWriter, answer any) {
	var text strings.Builder
	if err := json.NewEncoder(&text).Encode(answer); err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_, _ = out.Write([]byte(text.String())) // The client may be gone.
}
