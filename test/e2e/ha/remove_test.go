//go:build unix

package ha

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// scene is everything that Drawbridge leaves on the objects of others, in the middle of
// drains.
type scene struct {
	namespace string
	// handedUp is a Deployment's pod whose replacement cannot start, held is a pod with a
	// label of the guard's and an annotation of the descheduler's.
	handedUp, held *corev1.Pod
	deployment     *appsv1.Deployment
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{namespace: kube.Namespace(t)}
	s.deployment = builder.Deployment(s.namespace, "web").Replicas(1).Rolling("1", "0").Pods(func(p *builder.PodWrapper) {
		// The replacement would stand on the same node, which the host port forbids.
		p.Label(surge.OptInLabel, "enabled").NodeSelector("e2e.drawbridge.dev/scene", s.namespace).Change(func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		})
	}).Obj()
	must(kube.AddNodes(t.Context(), 1, func(node *corev1.Node) { node.Labels["e2e.drawbridge.dev/scene"] = s.namespace }))(t)
	eventually(t, "the Deployment", func(ctx context.Context) error { return admin.Create(ctx, s.deployment) })
	eventually(t, "its pod", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := admin.List(ctx, pods, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for i := range pods.Items {
			if slices.ContainsFunc(pods.Items[i].Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == "True" }) {
				s.handedUp = &pods.Items[i]
				return nil
			}
		}
		return fmt.Errorf("none of %d is Ready", len(pods.Items))
	})
	s.held = intercepted(t, s.namespace, "held")
	for _, pod := range []*corev1.Pod{s.handedUp, s.held} {
		eventually(t, "the eviction of "+pod.Name+" to be held up", func(ctx context.Context) error {
			if err := evict(ctx, pod, false); !apierrors.IsTooManyRequests(err) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	eventually(t, "the pods to be marked", func(ctx context.Context) error {
		handedUp, held := s.now(ctx, s.handedUp), s.now(ctx, s.held)
		if handedUp.Annotations[surge.HandedUpAnnotation] == "" || held.Labels[v1alpha1.GuardLabel] == "" || len(ours(held)) < 2 {
			return fmt.Errorf("%v and %v", ours(handedUp), ours(held))
		}
		return admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.GuardBudgetName}, &policyv1.PodDisruptionBudget{})
	})
	return s
}

// now is the pod as it is; empty when it is gone.
func (s *scene) now(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	now := &corev1.Pod{}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
		return &corev1.Pod{}
	}
	return now
}

// ours are the labels and annotations of a pod that Drawbridge has put on.
func ours(pod *corev1.Pod) []string {
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
	return keys
}

// isAsBefore waits until nothing of Drawbridge is left on the pods, and both still run.
func (s *scene) isAsBefore(t *testing.T) {
	t.Helper()
	eventually(t, "the pods to be as before", func(ctx context.Context) error {
		for _, before := range []*corev1.Pod{s.handedUp, s.held} {
			now := s.now(ctx, before)
			if now.UID != before.UID || now.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is gone", before.Name)
			}
			if left := ours(now); len(left) > 0 {
				return fmt.Errorf("pod %s still has %v", now.Name, left)
			}
			if diff := cmp.Diff(before.OwnerReferences, now.OwnerReferences); diff != "" {
				return fmt.Errorf("owners of pod %s (-before +now):\n%s", now.Name, diff)
			}
		}
		pods := &corev1.PodList{}
		if err := admin.List(ctx, pods, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		if len(pods.Items) != 2 {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		err := admin.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.GuardBudgetName}, &policyv1.PodDisruptionBudget{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the guard's budget: %w", err)
		}
		return nil
	})
}

// cleanupCommand runs the program's command as the chart's hook does: under the
// manager's account, with the hook's permissions and for as long as it runs. It returns
// what the command prints.
func cleanupCommand(t *testing.T, inst *manager.Installation, args ...string) string {
	t.Helper()
	return cleanedUp(t, startCleanup(t, inst, args...))
}

// startCleanup starts the command.
func startCleanup(t *testing.T, inst *manager.Installation, args ...string) *cluster.Program {
	t.Helper()
	grantHook(t)
	binary := must(manager.Build(t.Context()))(t)
	config := must(kube.KubeconfigFileForServiceAccount(t.Context(), inst.Namespace, inst.ServiceAccount))(t)
	args = append([]string{"cleanup", "--kubeconfig=" + config, "--namespace=" + inst.Namespace, "--wait=15s"}, args...)
	return must(kube.StartProgram(t.Context(), cluster.ProgramOptions{}, binary, args...))(t)
}

// cleanedUp waits for the command to end well, and returns what it printed.
func cleanedUp(t *testing.T, command *cluster.Program) string {
	t.Helper()
	result, err := command.Wait()
	if err := errors.Join(err, result.Err()); err != nil {
		t.Errorf("clean up: %v", err)
	}
	return result.Stdout + result.Stderr
}

// grantHook creates the permissions of the chart's hook, which helm would.
func grantHook(t *testing.T) {
	t.Helper()
	objects := must(install.Render(t.Context(), install.Options{}))(t)
	for _, object := range objects {
		if object.GetAnnotations()["helm.sh/hook"] == "" || object.GetKind() == "Job" {
			continue
		}
		hook := object.DeepCopy()
		if err := admin.Create(t.Context(), hook); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), hook) })
	}
}

func countRequests(t *testing.T, namespace string) (running, all int) {
	t.Helper()
	list := &v1alpha1.EvictionRequestList{}
	if err := admin.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if len(list.Items[i].Status.Conditions) == 0 {
			running++
		}
	}
	return running, len(list.Items)
}

// The hook leaves nothing behind, whether a manager still runs or not, and can be run
// again.
func TestCleanup(t *testing.T) {
	cases := map[string]struct {
		running, keep bool
	}{
		"while the manager runs":               {running: true},
		"when the manager is gone":             {},
		"that keeps the requests for a sequel": {keep: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inst := installed(t, nil)
			p := start(t, inst, manager.PatientLease...)
			s := newScene(t)
			if !tc.running {
				stop(t, p)
			}
			var args []string
			if tc.keep {
				args = []string{"--keep"}
			}
			command := startCleanup(t, inst, args...)
			if tc.running {
				must(command.WaitLine(t.Context(), "waiting for the manager to end: "))(t)
				stop(t, p) // With a Deployment the hook does that itself.
			}
			t.Logf("it says:\n%s", cleanedUp(t, command))
			s.isAsBefore(t)
			running, all := countRequests(t, s.namespace)
			if tc.keep && running != 2 || !tc.keep && all != 0 {
				t.Errorf("%d requests are left, %d of them run", all, running)
			}
			again := cleanupCommand(t, inst, args...)
			if diff := cmp.Diff("nothing of Drawbridge is left on the objects of others\n", again); diff != "" {
				t.Errorf("run again, it says (-want +got):\n%s", diff)
			}
			uninstall(t)
			leftovers(t, tc.keep)
			for _, er := range []*corev1.Pod{s.handedUp, s.held} {
				_ = admin.Delete(t.Context(), &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: er.Namespace, Name: string(er.UID)}})
			}
		})
	}
}

// leftovers fails the test if the cluster has objects of Drawbridge besides the
// CustomResourceDefinitions.
func leftovers(t *testing.T, keep bool) {
	t.Helper()
	leases := &coordinationv1.LeaseList{}
	if err := admin.List(t.Context(), leases, client.InNamespace(install.DefaultNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if !keep || lease.Name == leaderLease {
			t.Errorf("lease %s is left", lease.Name)
		}
	}
	for _, kind := range []string{
		"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
		"rbac.authorization.k8s.io/v1 ClusterRole", "rbac.authorization.k8s.io/v1 ClusterRoleBinding", "rbac.authorization.k8s.io/v1 Role",
		"v1 Secret", "v1 ServiceAccount", "v1 ConfigMap", "policy/v1 PodDisruptionBudget", "drawbridge.dev/v1alpha1 EvictionInterceptor",
	} {
		version, name, _ := strings.Cut(kind, " ")
		eventually(t, "no "+name+" to be left", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(version)
			list.SetKind(name + "List")
			if err := admin.List(ctx, list); err != nil {
				return err
			}
			for _, item := range list.Items {
				if (strings.Contains(item.GetName(), "drawbridge") || strings.Contains(item.GetLabels()["app.kubernetes.io/name"], "drawbridge")) &&
					item.GetAnnotations()["helm.sh/hook"] == "" {
					return errors.New(item.GetName())
				}
			}
			return nil
		})
	}
}

// changesOf leaves out what is said of leases, which other tests' callers have left, and
// of waiting, which depends on when it looks.
func changesOf(told string) string {
	var lines strings.Builder
	for line := range strings.Lines(told) {
		if !strings.HasPrefix(line, "Lease ") && !strings.HasPrefix(line, "waiting for ") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// With the chart's Deployment the hook stops the manager itself. The pods are kwok's:
// the Deployment's run nothing, and the Job's is done at once, so the command is run
// here, and then helm goes through its hook.
func TestTheHookStopsTheManager(t *testing.T) {
	// They take a while to end, as a manager does that finishes what it has begun, and longer than
	// the command may need until it looks.
	slow := values{"deployment": values{"podAnnotations": values{cluster.StopDelayAnnotation: "10s"}}}
	if err := install.Run(t.Context(), install.Options{Kubeconfig: kubeconfig(t), Values: slow}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstall(t) })
	key := client.ObjectKey{Namespace: install.DefaultNamespace, Name: install.DefaultRelease}
	deployment := &appsv1.Deployment{}
	eventually(t, "the manager's pods", func(ctx context.Context) error {
		if err := admin.Get(ctx, key, deployment); err != nil {
			return err
		}
		if deployment.Status.ReadyReplicas != 2 {
			return fmt.Errorf("%d are Ready", deployment.Status.ReadyReplicas)
		}
		return nil
	})
	inst := &manager.Installation{Cluster: kube, Release: install.DefaultRelease, Namespace: install.DefaultNamespace, ServiceAccount: install.DefaultRelease}
	all := cleanupCommand(t, inst, "--deployment="+install.DefaultRelease)
	pods := &corev1.PodList{}
	if err := admin.List(t.Context(), pods, client.InNamespace(key.Namespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels)); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods were left when it had ended, error %v", len(pods.Items), err)
	}
	if !strings.Contains(all, "waiting for the manager to end: ") {
		t.Errorf("it says nothing of the pods that terminate:\n%s", all)
	}
	told := changesOf(all)
	want := "ValidatingWebhookConfiguration drawbridge: deleted\nDeployment drawbridge-system/drawbridge: scaled to 0\nnothing of Drawbridge is left on the objects of others\n"
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what it says (-want +got):\n%s", diff)
	}
	if err := admin.Get(t.Context(), key, deployment); err != nil || deployment.Status.Replicas != 0 {
		t.Errorf("%d pods are left, error %v", deployment.Status.Replicas, err)
	}
	uninstall(t)
	leftovers(t, false)
}
