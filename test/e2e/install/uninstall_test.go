//go:build unix

package install_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// uninstallTimeout bounds an uninstallation, whose Job waits for the manager.
const uninstallTimeout = 4 * time.Minute

// administrator is a client that knows the kinds of Drawbridge.
func administrator(t *testing.T) client.Client {
	t.Helper()
	admin, err := client.New(kube.Config(), client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// addNodes adds nodes that go with the test.
func addNodes(t *testing.T, n int, change ...func(*corev1.Node)) []string {
	t.Helper()
	nodes, err := kube.AddNodes(t.Context(), n, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, node := range nodes {
			if err := kube.Client().CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	return nodes
}

// startManager runs a manager that leads, beside the Deployment whose pods run nowhere,
// with the arguments of the Deployment that are not about where it listens.
func startManager(t *testing.T, inst *manager.Installation) *manager.Process {
	t.Helper()
	return startWithout(t, inst, "--webhook-host", "--webhook-port", "--health-addr", "--metrics-", "--log-", "--webhook-dns-name")
}

// startWithout leaves out the arguments with these beginnings.
func startWithout(t *testing.T, inst *manager.Installation, prefixes ...string) *manager.Process {
	t.Helper()
	deployment, err := kube.Client().AppsV1().Deployments(inst.Namespace).Get(t.Context(), inst.Release, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := slices.DeleteFunc(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args), func(arg string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(arg, prefix) })
	})
	manager, err := inst.StartProcess(t.Context(), manager.ProcessOptions{Args: append(args, "--leader-elect=true")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := manager.Kill(); err != nil {
			t.Error(err)
		}
	})
	return manager
}

// stopManager ends a manager as a kubelet does.
func stopManager(t *testing.T, manager *manager.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := manager.Stop(ctx); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

// A manager goes on for a while after the Job has scaled it down, and would write again
// what the Job takes back. The Job waits for it, and says that nothing is left when that
// is so.
func TestTheUninstallWaitsForAManagerThatGoesOn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), uninstallTimeout)
	defer cancel()
	admin := administrator(t)
	addNodes(t, 1)
	inst, err := manager.Install(ctx, kube, manager.InstallOptions{Values: values{
		"deployment": values{"enabled": true, "nodeSelector": noNode}, "uninstall": values{"wait": "5s"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstallIfThere(t) })
	manager := startManager(t, inst)

	namespace := kube.Namespace(t)
	registration := builder.EvictionInterceptor("always.example.com").Pods("app", "web").InNamespace(namespace).Guard(v1alpha1.GuardAlways).Obj()
	if err := admin.Create(ctx, registration); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(ctx), registration); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	if _, err := createPod(ctx, kube.Client(), namespace, builder.Pod(namespace, "web").Label("app", "web").Obj()); err != nil {
		t.Fatal(err)
	}
	pod := client.ObjectKey{Namespace: namespace, Name: "web"}
	cluster.Eventually(t, "the guard to be closed", func(ctx context.Context) error { return guardClosed(ctx, admin, pod) })

	job, done := uninstallForReal(ctx, t, inst)
	waitRenewed(ctx, t, inst.Namespace)
	select {
	case <-job.Done():
		t.Errorf("the Job has ended while a manager leads:\n%s", said(job))
	default:
	}
	if err := guardClosed(ctx, admin, pod); err != nil {
		t.Errorf("while the manager goes on: %v", err)
	}
	stopManager(t, manager)
	if err := <-done; err != nil {
		t.Fatalf("uninstall: %v\n%s", err, said(job))
	}

	now := &corev1.Pod{}
	if err := admin.Get(ctx, pod, now); err != nil || now.Labels[v1alpha1.GuardLabel] != "" {
		t.Errorf("the pod's labels are %v, error %v", now.Labels, err)
	}
	budget := &policyv1.PodDisruptionBudget{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.GuardBudgetName}, budget); !apierrors.IsNotFound(err) {
		t.Errorf("the guard's budget: want none, got error %v", err)
	}
	leases, err := kube.Client().CoordinationV1().Leases(inst.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(leases.Items) > 0 {
		t.Errorf("%d leases are left, error %v", len(leases.Items), err)
	}
	if last := said(job); !strings.HasSuffix(last, "nothing of Drawbridge is left on the objects of others") || t.Failed() {
		t.Errorf("the Job says:\n%s", last)
	}
}

// waitRenewed waits until the leader has renewed its Lease twice, a few seconds.
func waitRenewed(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	var seen []time.Time
	cluster.Eventually(t, "the leader to renew its Lease", func(context.Context) error {
		lease, err := kube.Client().CoordinationV1().Leases(namespace).Get(ctx, "drawbridge-leader", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if renewed := lease.Spec.RenewTime.Time; len(seen) == 0 || renewed.After(seen[len(seen)-1]) {
			seen = append(seen, renewed)
		}
		if len(seen) < 3 {
			return fmt.Errorf("seen so far: %v", seen)
		}
		return nil
	})
}

// guardClosed returns nil if the guard protects the pod.
func guardClosed(ctx context.Context, admin client.Client, key client.ObjectKey) error {
	pod := &corev1.Pod{}
	if err := admin.Get(ctx, key, pod); err != nil {
		return err
	}
	if pod.Labels[v1alpha1.GuardLabel] != v1alpha1.GuardClosed {
		return fmt.Errorf("its labels are %v", pod.Labels)
	}
	err := admin.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: v1alpha1.GuardBudgetName}, &policyv1.PodDisruptionBudget{})
	if err != nil {
		return errors.Join(errors.New("no budget"), err)
	}
	return nil
}

// uninstallIfThere removes the release after a test that did not get so far.
func uninstallIfThere(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, err := kube.Client().CoreV1().ServiceAccounts(install.DefaultNamespace).Get(ctx, install.DefaultRelease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return
	}
	if err := install.Uninstall(ctx, install.Options{Kubeconfig: kubeconfig(t), NoHooks: true}); err != nil {
		t.Error(err)
	}
}
