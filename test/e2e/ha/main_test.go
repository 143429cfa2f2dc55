//go:build unix

// Package ha runs two replicas of the manager behind something like a Service, and
// does to them what happens to an add-on in production: its leader dies, it is rolled
// over, its certificate changes under load, it is disabled and enabled, and removed.
//
// The load of TestCertificatesRotateUnderLoad lasts ten seconds; a longer one is asked
// for by a flag: go test ./test/e2e/ha -run Rotate -args -load=60s.
package ha

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/failurepolicy"
	"github.com/drawbridge-dev/drawbridge/test/framework/audit"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

var (
	loadFor = flag.Duration("load", 10*time.Second, "how long evictions are called while certificates rotate")

	kube   *cluster.Cluster
	admin  client.Client
	scheme = cluster.Scheme(certmanagerv1.AddToScheme)
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cluster.MainThen(m, cluster.Options{Nodes: 2, RequestLog: true}, func(c *cluster.Cluster) (err error) {
		kube = c
		admin, err = client.New(c.Config(), client.Options{Scheme: scheme})
		return err
	}, func(c *cluster.Cluster) error {
		return audit.After(c, install.DefaultNamespace, nil)
	}))
}

type values = map[string]any

// installed installs the chart for the test, and uninstalls it at its end.
func installed(t *testing.T, v values) *manager.Installation {
	t.Helper()
	inst := must(manager.Install(t.Context(), kube, manager.InstallOptions{Values: v}))(t)
	t.Cleanup(func() {
		uninstall(t)
		// A leader that was killed still holds it, and the replicas of the next test would wait.
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.DefaultNamespace, Name: leaderLease}}
		if err := admin.Delete(context.WithoutCancel(t.Context()), lease); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return inst
}

func kubeconfig(t *testing.T) string {
	t.Helper()
	return must(kube.KubeconfigFile("drawbridge-installer", "system:masters"))(t)
}

// uninstall removes the release, if it is there.
func uninstall(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	account := &corev1.ServiceAccount{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: install.DefaultNamespace, Name: install.DefaultRelease}, account); apierrors.IsNotFound(err) {
		return
	}
	if err := install.Uninstall(ctx, install.Options{Kubeconfig: kubeconfig(t)}); err != nil {
		t.Error(err)
	}
	if err := admin.Get(ctx, client.ObjectKey{Name: install.DefaultRelease}, conf); !apierrors.IsNotFound(err) {
		t.Errorf("the webhook configuration should be gone, got %v", err)
	}
}

func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

var eventually = cluster.Eventually

// start starts a replica, which is killed at the end of the test at the latest.
func start(t *testing.T, inst *manager.Installation, args ...string) *manager.Process {
	t.Helper()
	return startWith(t, inst, manager.ProcessOptions{Args: args})
}

func startWith(t *testing.T, inst *manager.Installation, o manager.ProcessOptions) *manager.Process {
	t.Helper()
	p := must(inst.StartProcess(t.Context(), o))(t)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// stop ends a replica as a kubelet does.
func stop(t *testing.T, p *manager.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop replica: %v", err)
	}
}

// createPod creates a pod and waits for it to be Ready.
func createPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	eventually(t, "pod "+pod.Name+" to be accepted", func(ctx context.Context) error {
		return admin.Create(ctx, pod)
	})
	return cluster.ReadyPod(t, admin, pod.Namespace, pod.Name)
}

// intercepted is a Ready pod of which nobody takes care although it has an interceptor.
func intercepted(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return createPod(t, builder.Pod(namespace, name).Interceptors("nobody.example.com").Obj())
}

// evict calls the eviction subresource once.
func evict(ctx context.Context, pod *corev1.Pod, dryRun bool) error {
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if dryRun {
		eviction.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	}
	return admin.SubResource("eviction").Create(ctx, pod, eviction)
}

func gone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	cluster.Gone(t, admin, pod)
}

// policy is the failure policy of the eviction webhook.
func policy(ctx context.Context) (admissionregistrationv1.FailurePolicyType, error) {
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := admin.Get(ctx, client.ObjectKey{Name: install.DefaultRelease}, conf); err != nil {
		return "", err
	}
	for _, webhook := range conf.Webhooks {
		if webhook.Name == failurepolicy.EvictionWebhook {
			return *webhook.FailurePolicy, nil
		}
	}
	return "", fmt.Errorf("there is no webhook %s", failurepolicy.EvictionWebhook)
}

// setPolicy writes the failure policy as an administrator would.
func setPolicy(t *testing.T, to admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	eventually(t, "the failure policy to be written", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: install.DefaultRelease}, conf); err != nil {
			return err
		}
		for i := range conf.Webhooks {
			if conf.Webhooks[i].Name == failurepolicy.EvictionWebhook {
				conf.Webhooks[i].FailurePolicy = &to
			}
		}
		return admin.Update(ctx, conf)
	})
}

func waitPolicy(t *testing.T, want admissionregistrationv1.FailurePolicyType) {
	t.Helper()
	eventually(t, "the failure policy "+string(want), func(ctx context.Context) error {
		got, err := policy(ctx)
		if err == nil && got != want {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
}

func itoa(n int) string { return strconv.Itoa(n) }
