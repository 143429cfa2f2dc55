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

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// middle is a cluster in the middle of a drain: on one node there is a pod of everything
// that Drawbridge may have in hand.
type middle struct {
	admin           client.Client
	namespace, node string
	// handedUp is a Deployment's pod whose replacement cannot start, held has a closed
	// guard, last is in the last stage and waits for its budget, launcher is a machine's.
	handedUp, held, last, launcher *corev1.Pod
	deployment                     *appsv1.Deployment
	machine                        *unstructured.Unstructured
}

// newMiddle creates the pods; nothing of Drawbridge has to be there.
func newMiddle(ctx context.Context, t *testing.T) *middle {
	t.Helper()
	m := &middle{admin: administrator(t), namespace: kube.Namespace(t)}
	if err := vmcrds.Install(ctx, m.admin, vmcrds.KubeVirt()); err != nil {
		t.Fatal(err)
	}
	m.node = addNodes(t, 1)[0]
	m.deployment = builder.Deployment(m.namespace, "web").Replicas(1).Rolling("1", "0").Pods(func(p *builder.PodWrapper) {
		p.Label(surge.OptInLabel, "enabled").NodeSelector(corev1.LabelHostname, m.node)
	}).Obj()
	m.create(ctx, t, m.deployment)
	m.create(ctx, t, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "last"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "last"}},
		},
	})
	m.machine = vmcrds.New(vmcrds.Machine, m.namespace, "vm", map[string]any{
		"spec.evictionStrategy": "LiveMigrate", "status.nodeName": m.node, "status.phase": "Running",
		"status.conditions": []any{map[string]any{"type": "LiveMigratable", "status": "True"}},
	})
	m.create(ctx, t, m.machine)
	m.held = m.pod(ctx, t, builder.Pod(m.namespace, "held").Node(m.node).Interceptors("nobody.example.com"))
	m.last = m.pod(ctx, t, builder.Pod(m.namespace, "last").Node(m.node).Label("app", "last"))
	m.launcher = m.pod(ctx, t, builder.Pod(m.namespace, "virt-launcher-vm").Node(m.node).
		Label("kubevirt.io", "virt-launcher").Annotation("kubevirt.io/domain", "vm"))
	cluster.Eventually(t, "the Deployment's pod", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := m.admin.List(ctx, pods, client.InNamespace(m.namespace), client.MatchingLabels(m.deployment.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("there are %d", len(pods.Items))
		}
		m.handedUp = &pods.Items[0]
		return nil
	})
	return m
}

func (m *middle) create(ctx context.Context, t *testing.T, object client.Object) {
	t.Helper()
	if err := m.admin.Create(ctx, object); err != nil {
		t.Fatal(err)
	}
}

func (m *middle) pod(ctx context.Context, t *testing.T, p *builder.PodWrapper) *corev1.Pod {
	t.Helper()
	created, err := createPod(ctx, kube.Client(), m.namespace, p.Obj())
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// drain begins a maintenance of the node, and an eviction by somebody who knows nothing
// of it, and waits until everything is going on.
func (m *middle) drain(ctx context.Context, t *testing.T, system string) {
	t.Helper()
	m.create(ctx, t, builder.NodeMaintenance("reboot").Nodes(m.node).Cordon().Drain().Reason("kernel").Obj())
	cluster.Eventually(t, "everything to be going on", func(ctx context.Context) error {
		if err := m.admin.SubResource("eviction").Create(ctx, m.held, &policyv1.Eviction{}); !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("the eviction is answered: %w", err)
		}
		return m.goesOn(ctx, system)
	})
}

// goesOn returns nil if everything is in the middle.
func (m *middle) goesOn(ctx context.Context, system string) error {
	pod, err := m.now(ctx, m.handedUp)
	if err != nil || pod.Annotations[surge.HandedUpAnnotation] == "" {
		return errors.Join(err, errors.New("the Deployment's pod is not handed up"))
	}
	if err := guardClosed(ctx, m.admin, client.ObjectKeyFromObject(m.held)); err != nil {
		return err
	}
	request := &v1alpha1.EvictionRequest{}
	if err := m.admin.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: string(m.last.UID)}, request); err != nil {
		return err
	}
	if !slices.Equal(request.Status.ActiveInterceptors, []string{v1alpha1.ImperativeEvictionInterceptor}) {
		return fmt.Errorf("the last stage is not reached: %q", request.Status.ActiveInterceptors)
	}
	machine, err := m.readMachine(ctx)
	if err != nil || machine.GetAnnotations()["drawbridge.dev/evacuate-node"] != m.node {
		return errors.Join(err, errors.New("the machine is not marked"))
	}
	leases, err := kube.Client().CoordinationV1().Leases(system).List(ctx, metav1.ListOptions{})
	if err != nil || len(leases.Items) < 2 {
		return errors.Join(err, errors.New("the caller has no lease"))
	}
	return nil
}

func (m *middle) now(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	now := &corev1.Pod{}
	return now, m.admin.Get(ctx, client.ObjectKeyFromObject(pod), now)
}

func (m *middle) readMachine(ctx context.Context) (*unstructured.Unstructured, error) {
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(vmcrds.Machine)
	return machine, m.admin.Get(ctx, client.ObjectKeyFromObject(m.machine), machine)
}

// leftovers are all that Drawbridge has left, in the namespace of a release as well.
func (m *middle) leftovers(ctx context.Context, system string) ([]string, error) {
	var left []string
	for _, before := range []*corev1.Pod{m.handedUp, m.held, m.last, m.launcher} {
		now, err := m.now(ctx, before)
		if err != nil {
			return nil, err
		}
		for _, key := range marksOf(now) {
			left = append(left, "pod "+now.Name+": "+key)
		}
		if diff := cmp.Diff(before.OwnerReferences, now.OwnerReferences); diff != "" || now.UID != before.UID || now.DeletionTimestamp != nil {
			left = append(left, "pod "+now.Name+" is another: "+diff)
		}
	}
	pods := &corev1.PodList{}
	if err := m.admin.List(ctx, pods, client.InNamespace(m.namespace)); err != nil {
		return nil, err
	}
	if len(pods.Items) != 4 {
		left = append(left, fmt.Sprintf("%d pods", len(pods.Items)))
	}
	node := &corev1.Node{}
	if err := m.admin.Get(ctx, client.ObjectKey{Name: m.node}, node); err != nil {
		return nil, err
	}
	if node.Spec.Unschedulable {
		left = append(left, "the cordon")
	}
	machine, err := m.readMachine(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range []client.Object{node, machine} {
		for key := range object.GetAnnotations() {
			if strings.HasPrefix(key, v1alpha1.GroupName) {
				left = append(left, object.GetName()+": "+key)
			}
		}
	}
	for _, kind := range []string{
		"drawbridge.dev/v1alpha1 EvictionRequest", "drawbridge.dev/v1alpha1 NodeMaintenance", "drawbridge.dev/v1alpha1 EvictionInterceptor",
		"drawbridge.dev/v1alpha1 EvacuationPolicy", "kubevirt.io/v1 VirtualMachineInstanceMigration", "policy/v1 PodDisruptionBudget",
		"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
		"rbac.authorization.k8s.io/v1 ClusterRole", "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
	} {
		names, err := m.list(ctx, kind, "")
		if err != nil {
			return nil, err
		}
		left = append(left, names...)
	}
	for _, kind := range []string{"coordination.k8s.io/v1 Lease", "v1 Secret", "v1 Service", "apps/v1 Deployment", "batch/v1 Job", "rbac.authorization.k8s.io/v1 Role"} {
		names, err := m.list(ctx, kind, system)
		if err != nil {
			return nil, err
		}
		left = append(left, names...)
	}
	return left, nil
}

// list names the objects of a kind; those of Kubernetes and of this test are left out.
func (m *middle) list(ctx context.Context, kind, namespace string) ([]string, error) {
	version, name, _ := strings.Cut(kind, " ")
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(version)
	list.SetKind(name + "List")
	if err := m.admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Items {
		ours := strings.Contains(item.GetName(), "drawbridge") || strings.HasPrefix(version, v1alpha1.GroupName) || namespace != "" || name == "VirtualMachineInstanceMigration"
		if ours {
			names = append(names, name+" "+item.GetName())
		}
	}
	return names, nil
}

// marksOf are what Drawbridge has written to a pod.
func marksOf(pod *corev1.Pod) []string {
	var keys []string
	for key := range pod.Labels {
		if key == v1alpha1.GuardLabel {
			keys = append(keys, key)
		}
	}
	for key := range pod.Annotations {
		if key == surge.HandedUpAnnotation || key == surge.FailedAnnotation || strings.HasPrefix(key, "descheduler.") {
			keys = append(keys, key)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if strings.HasPrefix(string(condition.Type), "Evacuation") {
			keys = append(keys, string(condition.Type))
		}
	}
	return keys
}

// isClean waits until nothing is left but the definitions.
func (m *middle) isClean(t *testing.T, when, system string) {
	t.Helper()
	cluster.Eventually(t, "nothing to be left "+when, func(ctx context.Context) error {
		left, err := m.leftovers(ctx, system)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("left are %q", left)
		}
		return nil
	})
}

// remove uninstalls a release while its manager runs, which ends a little later than it
// is told to, as managers do.
func (m *middle) remove(ctx context.Context, t *testing.T, inst *manager.Installation, process *manager.Process) {
	t.Helper()
	job, done := uninstallForReal(ctx, t, inst)
	stopManager(t, process)
	if err := <-done; err != nil {
		t.Fatalf("uninstall: %v\n%s", err, said(job))
	}
	t.Logf("the Job says:\n%s", said(job))
}

// Installed, upgraded, rolled back, uninstalled and installed again under another name,
// while everything is going on: docs/operations/uninstall.md says what stays, and that is
// the definitions.
func TestHelmInTheMiddleOfADrain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	chart := values{
		"deployment": values{"enabled": true, "nodeSelector": noNode}, "uninstall": values{"wait": "45s"}, "certificates": values{"settle": "1s"},
		"vm": values{"kubevirt": values{"enabled": true}},
	}
	ownDefinitions(t)
	m := newMiddle(ctx, t)
	inst, err := manager.Install(ctx, kube, manager.InstallOptions{Values: chart})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstallIfThere(t) })
	process := startManager(t, inst)
	m.drain(ctx, t, inst.Namespace)

	helm := byHelm{kubeconfig(t)}
	if _, err := helm.helm(ctx, "upgrade", install.DefaultRelease, chartFolder(t), "--reuse-values", "--set", "webhook.timeoutSeconds=4"); err != nil {
		t.Fatal(err)
	}
	waitTimeout(t, 4)
	if err := helm.rollback(ctx, nil); err != nil {
		t.Fatal(err)
	}
	waitTimeout(t, 30)
	if err := m.goesOn(ctx, inst.Namespace); err != nil {
		t.Errorf("after upgrade and rollback: %v", err)
	}
	m.remove(ctx, t, inst, process)
	m.isClean(t, "after the removal", inst.Namespace)

	again := &manager.Installation{
		Cluster: kube, Release: "drawbridge-again", Namespace: "drawbridge-elsewhere", ServiceAccount: "drawbridge-again", WebhookPort: inst.WebhookPort,
	}
	chart["webhook"] = values{"url": fmt.Sprintf("https://localhost:%d", inst.WebhookPort), "failurePolicy": "Fail", "timeoutSeconds": 30}
	options := install.Options{Kubeconfig: kubeconfig(t), Release: again.Release, Namespace: again.Namespace, Values: chart}
	if err := install.Run(ctx, options); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		t.Fatalf("under another name: want a refusal, got %v", err)
	}
	options.TakeOwnership = true
	if err := install.Run(ctx, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if _, err := kube.Client().CoreV1().ServiceAccounts(again.Namespace).Get(ctx, again.ServiceAccount, metav1.GetOptions{}); err == nil {
			options.NoHooks = true
			if err := install.Uninstall(ctx, options); err != nil {
				t.Error(err)
			}
		}
	})
	if err := install.WaitReady(ctx, kube.Config()); err != nil {
		t.Fatal(err)
	}
	process = startManager(t, again)
	m.drain(ctx, t, again.Namespace)
	m.remove(ctx, t, again, process)
	m.isClean(t, "after the second removal", again.Namespace)
}

// waitTimeout waits until the upgrade, or rollback, shows in the configuration.
func waitTimeout(t *testing.T, seconds int32) {
	t.Helper()
	cluster.Eventually(t, "the timeout of the webhook", func(ctx context.Context) error {
		conf, err := kube.Client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, install.DefaultRelease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range conf.Webhooks {
			if err := managed(&conf.Webhooks[i], seconds); err != nil {
				return err
			}
		}
		return nil
	})
}

func chartFolder(t *testing.T) string {
	t.Helper()
	chart, err := install.Chart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return chart
}
