//go:build unix

package install_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// manifestsTimeout bounds installation, drain, upgrade and removal.
const manifestsTimeout = 8 * time.Minute

// manifestsOf is a folder with the files of a release, as `make manifests` writes them.
func manifestsOf(ctx context.Context, t *testing.T, version string) string {
	t.Helper()
	out := t.TempDir()
	command := exec.CommandContext(ctx, "go", "run", "./hack/manifests", "--version="+version, "--out="+out)
	command.Dir = filepath.Dir(filepath.Dir(chartFolder(t)))
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("write the manifests: %v\n%s", err, said)
	}
	return out
}

// reachable changes what is not as in a cluster: a Service leads to no pod here, so the
// webhook's leads to this machine, at a port of ours; and nobody but [runJob] runs the pods
// of the Job, which waits for less than a minute. The API server waits longer for the webhook,
// which a busy machine holds up: it would let evictions pass.
func reachable(t *testing.T, folder string, port int) string {
	t.Helper()
	changed := t.TempDir()
	for _, name := range []string{"install.yaml", "install-crds.yaml", "cleanup.yaml"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		for _, object := range objectsOf(t, content) {
			switch object.GetKind() {
			case "Service":
				object.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
			case "Job":
				set(t, object.Object, noNode, "spec", "template", "spec", "nodeSelector")
				containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
				if err != nil {
					t.Fatal(err)
				}
				container := containers[0].(map[string]any)
				container["args"] = append(container["args"].([]any), "--wait=45s")
				set(t, object.Object, containers, "spec", "template", "spec", "containers")
			case "ValidatingWebhookConfiguration":
				webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
				if err != nil {
					t.Fatal(err)
				}
				for _, webhook := range webhooks {
					set(t, webhook.(map[string]any), int64(port), "clientConfig", "service", "port")
					set(t, webhook.(map[string]any), int64(30), "timeoutSeconds")
				}
				set(t, object.Object, webhooks, "webhooks")
			}
			document, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			file.WriteString("---\n")
			file.Write(document)
		}
		if err := os.WriteFile(filepath.Join(changed, name), file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return changed
}

func set(t *testing.T, object map[string]any, value any, fields ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object, value, fields...); err != nil {
		t.Fatal(err)
	}
}

func objectsOf(t *testing.T, file []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range bytes.SplitSeq(file, []byte("---\n")) {
		object := &unstructured.Unstructured{}
		if bytes.HasPrefix(bytes.TrimSpace(document), []byte("#")) {
			continue
		}
		if err := yaml.Unmarshal(document, object); err != nil && len(bytes.TrimSpace(document)) > 0 {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	result, err := kube.Kubectl(ctx, cluster.KubectlOptions{}, args...)
	return result.Stdout, errors.Join(err, result.Err())
}

func mustKubectl(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// startOfFile runs a manager with the arguments that the file gives it, under its account.
// Only where it listens, and how it logs, is not the file's.
func startOfFile(ctx context.Context, t *testing.T, inst *manager.Installation) *manager.Process {
	t.Helper()
	process := startWithout(t, inst, "--webhook-host", "--webhook-port", "--health-addr", "--metrics-", "--log-")
	cluster.Eventually(t, "the API server to reach the manager", func(context.Context) error { return reached(ctx, inst) })
	return process
}

// reached returns nil if the API server has just called the manager.
func reached(ctx context.Context, inst *manager.Installation) error {
	return failurepolicy.Prove(ctx, kube.Client().PolicyV1(), inst.Namespace)
}

// wantManaged checks that the webhook configuration has all that the manager has written.
func wantManaged(ctx context.Context, t *testing.T, when string) {
	t.Helper()
	conf, err := kube.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, install.DefaultRelease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range conf.Webhooks {
		w := &conf.Webhooks[i]
		if path := w.ClientConfig.Service.Path; path == nil || strings.Count(*path, "/") != 2 || len(w.ClientConfig.CABundle) == 0 {
			t.Errorf("%s the webhook %s is called at %v, and its CA has %d bytes", when, w.Name, path, len(w.ClientConfig.CABundle))
		}
		if w.Name == failurepolicy.EvictionWebhook && *w.FailurePolicy != admissionregistrationv1.Ignore {
			t.Errorf("%s the failure policy is %s", when, *w.FailurePolicy)
		}
	}
}

// Without helm: kubectl applies install.yaml, the manager runs as the file says, a drain is
// intercepted, the next release is applied in the middle of it, and the commands of
// docs/guides/install.md remove everything.
func TestInstallWithoutHelm(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), manifestsTimeout)
	defer cancel()
	ownDefinitions(t)
	port, err := manager.FreePort(ctx)
	if err != nil {
		t.Fatal(err)
	}
	original := manifestsOf(ctx, t, "v0.1.0")
	first, second := reachable(t, original, port), reachable(t, manifestsOf(ctx, t, "v0.2.0"), port)
	t.Cleanup(func() { removeManifests(t, first) })

	// As it is, in one go, on a cluster that has nothing of it; and once more.
	mustKubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(original, "install.yaml"))
	mustKubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(original, "install.yaml"))
	evictsFreely(ctx, t)
	if err := shellIn(ctx, t, first, commandsOf(t, "guides/install.md", "## Without helm", "kubectl apply")...); err != nil {
		t.Fatal(err)
	}
	if err := install.WaitReady(ctx, kube.Config()); err != nil {
		t.Fatal(err)
	}
	inst := &manager.Installation{
		Cluster: kube, Release: install.DefaultRelease, Namespace: install.DefaultNamespace, ServiceAccount: install.DefaultRelease, WebhookPort: port,
	}
	process := startOfFile(ctx, t, inst)
	wantManaged(ctx, t, "after the installation")
	wantConflict(ctx, t, filepath.Join(first, "install.yaml"))

	held := startHeldDrain(ctx, t)
	asker := held.ask(ctx)
	asker.more(t, 20)
	// The definitions first, as docs/operations/versions.md allows.
	mustKubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(second, "install-crds.yaml"))
	out, skew := pluginSays(ctx, t, "version")
	if want := "note: the CustomResourceDefinitions are of version 0.2.0, and the manager of 0.1.0"; !strings.Contains(skew, want) {
		t.Errorf("in the middle of the upgrade, version says %q, want %q\n%s", skew, want, out)
	}
	mustKubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(second, "install.yaml"))
	wantManaged(ctx, t, "after the upgrade")
	asker.more(t, 50)
	asker.stop(t, "during the upgrade")
	held.replaceManager(t, func() {
		stopManager(t, process)
		process = startOfFile(ctx, t, inst)
	})
	held.finish(ctx, t)
	out, skew = pluginSays(ctx, t, "version")
	for _, want := range []string{"Manager:    0.2.0\n", "Chart:      0.2.0\n", "API:        drawbridge.dev/v1alpha1, definitions 0.2.0\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("after the upgrade, version does not say %q:\n%s", want, out)
		}
	}
	if skew != "" {
		t.Errorf("after the upgrade, version says %q", skew)
	}

	left := somethingInHand(ctx, t, "held.example.com")
	removal := commandsOf(t, "guides/install.md", "## Without helm", "kubectl delete")
	if len(removal) != 2 {
		t.Fatalf("the page shows %d ways to delete, want 2", len(removal))
	}
	before := commandsOf(t, "operations/uninstall.md", "## Without helm", "kubectl")
	cleanUpForReal(ctx, t, second, process, before)
	if err := shellIn(ctx, t, second, removal[0]); err != nil {
		t.Fatal(err)
	}
	left.want(ctx, t, "with the definitions kept", append(slices.Clone(definitions), "the user's EvictionInterceptor"))
	// It can be installed again, and then be removed with everything.
	mustKubectl(ctx, t, "apply", "--server-side", "-f", filepath.Join(original, "install.yaml"))
	if err := shellIn(ctx, t, original, removal[1]); err != nil {
		t.Fatal(err)
	}
	left.want(ctx, t, "with everything deleted", nil)
}

// wantConflict checks that a change by hand is named, and that the file can be applied again
// after it was taken back.
func wantConflict(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	level := func(level string) {
		mustKubectl(ctx, t, "-n", install.DefaultNamespace, "patch", "configmap", "drawbridge-log", "--type=merge", "-p", `{"data":{"level":"`+level+`"}}`)
	}
	level("debug")
	if _, err := kubectl(ctx, "apply", "--server-side", "-f", file); err == nil || !strings.Contains(err.Error(), `conflict with "kubectl-patch"`) || !strings.Contains(err.Error(), ".data.level") {
		t.Errorf("after a change by hand: want a conflict that names it, got %v", err)
	}
	level("info")
	mustKubectl(ctx, t, "apply", "--server-side", "-f", file)
}

// evictsFreely checks that evictions pass while no manager has run yet.
func evictsFreely(ctx context.Context, t *testing.T) {
	t.Helper()
	namespace := kube.Namespace(t)
	pod, err := createPod(ctx, kube.Client(), namespace, builder.Pod(namespace, "free").Obj())
	if err != nil {
		t.Fatal(err)
	}
	if err := administrator(t).SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}); err != nil {
		t.Errorf("before a manager runs: %v", err)
	}
}

// pluginSays runs the plugin as kubectl does and returns both outputs.
func pluginSays(ctx context.Context, t *testing.T, args ...string) (out, errOut string) {
	t.Helper()
	plugin, err := manager.BuildPlugin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	program, err := kube.StartProgram(ctx, cluster.ProgramOptions{}, plugin, append([]string{"--kubeconfig=" + kubeconfig(t)}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	result, err := program.Wait()
	if err := errors.Join(err, result.Err()); err != nil {
		t.Fatal(err)
	}
	return result.Stdout, result.Stderr
}

// cleanUpForReal runs the commands of the page that come before the removal, while a manager
// runs. It plays the kubelet for the Job.
func cleanUpForReal(ctx context.Context, t *testing.T, folder string, process *manager.Process, commands []string) {
	t.Helper()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	begun, jobs, done := make(chan *cluster.Program, 1), make(chan error, 1), make(chan error, 1)
	go func() { jobs <- runJob(running, install.DefaultNamespace, begun) }()
	go func() { done <- shellIn(running, t, folder, commands...) }()
	select {
	case job := <-begun:
		if _, err := job.WaitLine(ctx, "waiting for the manager to end: "); err != nil {
			t.Fatal(err)
		}
		stopManager(t, process)
		if err := <-done; err != nil {
			t.Fatalf("%v\n%s", err, said(job))
		}
	case err := <-done:
		t.Fatalf("the commands ended without a Job: %v", err)
	}
	cancel()
	if err := <-jobs; !errors.Is(err, context.Canceled) {
		t.Errorf("the Job: %v", err)
	}
}

// removeManifests removes what a test that did not get so far has left.
func removeManifests(t *testing.T, folder string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if _, err := kube.Client().CoreV1().Namespaces().Get(ctx, install.DefaultNamespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return
	}
	out, err := kubectl(ctx, "delete", "--ignore-not-found", "--wait=false", "-f", filepath.Join(folder, "cleanup.yaml"), "-f", filepath.Join(folder, "install.yaml"))
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
