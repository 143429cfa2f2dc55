//go:build unix

package gitops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// evictionWebhook is the webhook that drains meet.
const evictionWebhook = "eviction-requests.drawbridge.dev"

// callEvery is the pause between two evictions of a load.
const callEvery = 20 * time.Millisecond

// decode reads the objects of a file of several documents.
func decode(documents []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLToJSONDecoder(bytes.NewReader(documents))
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decode: %w", err)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// encode is the opposite of decode.
func encode(objects []*unstructured.Unstructured) (*bytes.Buffer, error) {
	documents := &bytes.Buffer{}
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		documents.WriteString("---\n")
		documents.Write(document)
	}
	return documents, nil
}

// withoutHooks leaves out what a release of helm runs at its end.
func withoutHooks(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] != "" })
}

// webhookTimeout is the longest that an API server waits for a webhook, in seconds: these tests
// get what others leave of the processors.
const webhookTimeout = 30

// patient lets the API server wait that long for the webhooks among objects.
func patient(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	for _, configuration := range webhooksOf(t, objects) {
		webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, webhook := range webhooks {
			webhook.(map[string]any)["timeoutSeconds"] = int64(webhookTimeout)
		}
		if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
			t.Fatal(err)
		}
	}
	return objects
}

// definitions are the CustomResourceDefinitions among objects. Argo CD and Flux apply them
// first, and so do we.
func definitions(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
}

// apply applies objects on the server's side, never by force.
func apply(ctx context.Context, objects []*unstructured.Unstructured, by string) error {
	for _, part := range [][]*unstructured.Unstructured{definitions(objects), objects} {
		if len(part) == 0 {
			continue
		}
		documents, err := encode(part)
		if err != nil {
			return err
		}
		if _, err := kubectl(ctx, cluster.KubectlOptions{Stdin: documents}, "apply", "--server-side", "--field-manager="+by, "-f", "-"); err != nil {
			return err
		}
		if _, err := kubectl(ctx, cluster.KubectlOptions{}, "wait", "--for=condition=Established", "--timeout=3m", "crd", "--all"); err != nil {
			return err
		}
	}
	return nil
}

// applyByClient applies objects as kubectl does without --server-side.
func applyByClient(ctx context.Context, objects []*unstructured.Unstructured) error {
	documents, err := encode(objects)
	if err != nil {
		return err
	}
	_, err = kubectl(ctx, cluster.KubectlOptions{Stdin: documents}, "apply", "-f", "-")
	return err
}

// drift is what the applier would change, which is how these tools compare; empty for
// nothing.
func drift(ctx context.Context, objects []*unstructured.Unstructured, by string) (string, error) {
	documents, err := encode(objects)
	if err != nil {
		return "", err
	}
	result, err := kube.Kubectl(ctx, cluster.KubectlOptions{Stdin: documents}, "diff", "--server-side", "--field-manager="+by, "-f", "-")
	if err != nil || result.ExitCode > 1 {
		return "", errors.Join(err, result.Err())
	}
	return result.Stdout, nil
}

// remove deletes objects, and what the manager has left.
func remove(ctx context.Context, objects []*unstructured.Unstructured) error {
	documents, err := encode(objects)
	if err != nil {
		return err
	}
	// Namespaces stay: nobody waits for their end.
	if _, err := kubectl(ctx, cluster.KubectlOptions{Stdin: documents}, "delete", "--ignore-not-found", "-f", "-"); err != nil {
		return err
	}
	_, err = kubectl(ctx, cluster.KubectlOptions{}, "delete", "leases", "--all", "-n", install.DefaultNamespace, "--ignore-not-found")
	return err
}

// createNamespace creates the namespace of the release, as the tools do.
func createNamespace(ctx context.Context) error {
	_, err := kube.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.DefaultNamespace}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// deploymentOf is the Deployment among objects.
func deploymentOf(t *testing.T, objects []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, deployment, true); err != nil {
			t.Fatal(err)
		}
		return deployment
	}
	t.Fatal("there is no Deployment")
	return nil
}

// startManager runs the manager with the arguments of the Deployment among the objects, and
// under its account. The Service leads to the one that was started last.
func startManager(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured) *manager.Process {
	t.Helper()
	deployment := deploymentOf(t, objects)
	port, err := manager.FreePort(ctx)
	if err != nil {
		t.Fatal(err)
	}
	health, err := manager.FreePort(ctx)
	if err != nil {
		t.Fatal(err)
	}
	way.port.Store(int64(port))
	inst := &manager.Installation{
		Cluster: kube, Release: deployment.Name, Namespace: install.DefaultNamespace,
		ServiceAccount: deployment.Spec.Template.Spec.ServiceAccountName, WebhookPort: port,
	}
	healthAddr := net.JoinHostPort("127.0.0.1", strconv.Itoa(health))
	process, err := inst.StartProcess(ctx, manager.ProcessOptions{HealthAddr: healthAddr, Args: append(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args),
		// What is otherwise on this machine than in a pod, and a shorter wait.
		"--webhook-host=127.0.0.1", "--webhook-port="+strconv.Itoa(port), "--health-addr="+healthAddr, "--metrics-addr=0",
		"--shutdown-delay=0s", "--certificate-settle=1s",
	)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	})
	return process
}

// configuration is the webhook configuration in the cluster.
func configuration(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return kube.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, install.DefaultRelease, metav1.GetOptions{})
}

// waitManaged waits until the configuration has all that the manager writes, and the policy
// that the example asks for.
func waitManaged(t *testing.T, when string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	var conf *admissionregistrationv1.ValidatingWebhookConfiguration
	cluster.Eventually(t, "the manager to have written its fields "+when, func(ctx context.Context) (err error) {
		if conf, err = configuration(ctx); err != nil {
			return err
		}
		for i := range conf.Webhooks {
			w := &conf.Webhooks[i]
			wanted := conf.Annotations["drawbridge.dev/failure-policy"]
			switch {
			case len(w.ClientConfig.CABundle) == 0:
				return fmt.Errorf("webhook %s has no CA", w.Name)
			case w.ClientConfig.Service.Path == nil || strings.Count(*w.ClientConfig.Service.Path, "/") != 2:
				return fmt.Errorf("webhook %s has no token in its path", w.Name)
			case w.Name == evictionWebhook && string(*w.FailurePolicy) != wanted:
				return fmt.Errorf("webhook %s has the policy %s, wanted is %s", w.Name, *w.FailurePolicy, wanted)
			}
		}
		for _, entry := range conf.ManagedFields {
			if entry.Manager == "drawbridge" && strings.Contains(entry.FieldsV1.GetRawString(), "f:webhooks") {
				return fmt.Errorf("the manager has not yet given up its fields: %s", entry.FieldsV1.GetRawString())
			}
		}
		return nil
	})
	return conf
}

// intercepted creates a pod with an interceptor that nobody runs, so every eviction of it
// gets a 429. It returns when the API server calls the manager as the configuration says.
func intercepted(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := builder.Pod(kube.Namespace(t), "ledger-0").Interceptors("nobody.example.com").Obj()
	cluster.Eventually(t, "the pod to run", func(ctx context.Context) error {
		pods := kube.Client().CoreV1().Pods(pod.Namespace)
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			now, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		}
		if err == nil && now.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", now.Status.Phase)
		}
		return err
	})
	cluster.Eventually(t, "the API server to reach the manager", func(ctx context.Context) error {
		return failurepolicy.Prove(ctx, kube.Client().PolicyV1(), install.DefaultNamespace)
	})
	return pod
}

// Causes in the webhook's answers.
const (
	// inProgress: the interceptors of the pod come first.
	inProgress metav1.CauseType = "EvictionRequestInProgress"
	// retry: the webhook could not decide.
	retry metav1.CauseType = "EvictionNotCoordinated"
)

// evict returns nil if the webhook denied the eviction for one of the causes, with a 429.
func evict(ctx context.Context, pod *corev1.Pod, causes ...metav1.CauseType) error {
	err := kube.Client().PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
	if apierrors.IsTooManyRequests(err) && slices.ContainsFunc(causes, func(cause metav1.CauseType) bool { return apierrors.HasStatusCause(err, cause) }) {
		return nil
	}
	return fmt.Errorf("the answer to an eviction is none of %q: %w", causes, err)
}

// load evicts the pod again and again until stop, which fails the test for every other
// answer than those.
func load(t *testing.T, pod *corev1.Pod, causes ...metav1.CauseType) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var calls int
	var wrong []error
	group.Go(func() {
		pace := time.NewTicker(callEvery)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			err := evict(ctx, pod, causes...)
			if ctx.Err() != nil {
				return
			}
			calls++
			if err != nil {
				wrong = append(wrong, err)
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
		t.Logf("%d evictions, %d wrong answers", calls, len(wrong))
		if calls == 0 || len(wrong) > 0 {
			t.Errorf("of %d evictions, %d got a wrong answer, such as: %v", calls, len(wrong), errors.Join(wrong[:min(len(wrong), 3)]...))
		}
	}
}
