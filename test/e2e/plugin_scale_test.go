//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// scalers is the group of those who scale; it has no permissions.
const scalers = "scalers"

// spreadApp is a Deployment of nine pods over three zones with maxSkew 1. Those of zone a
// share one node, and all others are alone, so that Kubernetes takes those of zone a first.
type spreadApp struct {
	namespace string
	// zones of the nodes.
	zones map[string]string
	pods  []corev1.Pod
}

func newSpreadApp(t *testing.T, change ...func(*builder.PodWrapper)) *spreadApp {
	t.Helper()
	a := &spreadApp{namespace: kube.Namespace(t), zones: map[string]string{}}
	var nodes []string
	for zone, n := range map[string]int{"a": 1, "b": 3, "c": 3} {
		added := must(kube.AddNodes(t.Context(), n, func(node *corev1.Node) {
			node.Labels[testLabel], node.Labels[corev1.LabelTopologyZone] = a.namespace, zone
			// Room for three pods in the node of zone a, and for one in each of the others.
			cpu := resource.MustParse("12")
			if zone == "a" {
				cpu = resource.MustParse("32")
			}
			node.Status.Capacity[corev1.ResourceCPU], node.Status.Allocatable[corev1.ResourceCPU] = cpu, cpu
		}))(t)
		for _, node := range added {
			a.zones[node] = zone
		}
		nodes = append(nodes, added...)
	}
	create(t, builder.Deployment(a.namespace, "web").Replicas(9).Pods(onNodesOf(a.namespace, append(change, func(w *builder.PodWrapper) {
		w.CPU("10")
		w.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: "web"}},
		}}
	})...)).Obj())
	// The ReplicaSet's controller knows by then, which takes those first that are not Ready.
	a.waitCounted(t, "web", 9)
	a.pods = readyPods(t, a.namespace, 9, nodes...)
	if diff := cmp.Diff("3-3-3", a.spread(a.pods)); diff != "" {
		t.Fatalf("pods in the zones before (-want +got):\n%s", diff)
	}
	return a
}

// waitCounted waits until a Deployment says that so many of its pods are Ready.
func (a *spreadApp) waitCounted(t *testing.T, name string, n int32) {
	t.Helper()
	eventually(t, "the pods of Deployment "+name, func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: name}, d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != n {
			return fmt.Errorf("%d are Ready", d.Status.ReadyReplicas)
		}
		return nil
	})
}

// spread is how many of the pods are in each zone.
func (a *spreadApp) spread(pods []corev1.Pod) string {
	n := map[string]int{}
	for i := range pods {
		n[a.zones[pods[i].Spec.NodeName]]++
	}
	return fmt.Sprintf("%d-%d-%d", n["a"], n["b"], n["c"])
}

// waitFor waits until so many pods are left, and returns them.
func (a *spreadApp) waitFor(t *testing.T, n int) []corev1.Pod {
	t.Helper()
	var left []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods to be left", n), func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		left = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
		if len(left) != n {
			return fmt.Errorf("there are %d", len(left))
		}
		return nil
	})
	return left
}

// costs are the deletion costs of pods by their names, of those that have one.
func costs(pods []corev1.Pod) map[string]string {
	all := map[string]string{}
	for i := range pods {
		if cost, ok := pods[i].Annotations[corev1.PodDeletionCost]; ok {
			all[pods[i].Name] = cost
		}
	}
	return all
}

// setCost annotates a pod as a person does.
func setCost(t *testing.T, pod *corev1.Pod, cost string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, corev1.PodDeletionCost, cost)
	if err := admin.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// scaler makes a user who has what the guide says that one needs to scale, without what
// leave names, as resource.
func scaler(t *testing.T, namespace, user string, leave ...string) *pluginCall {
	t.Helper()
	page := string(must(os.ReadFile("../../docs/guides/plugin.md"))(t))
	_, page, found := strings.Cut(page, "## Scale down in balance")
	if !found {
		t.Fatal("the guide does not say how to scale")
	}
	_, page, _ = strings.Cut(page, "```yaml\n")
	manifest, _, _ := strings.Cut(page, "```")
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(manifest), role); err != nil {
		t.Fatal(err)
	}
	role.Name = user
	for i := range role.Rules {
		role.Rules[i].Resources = slices.DeleteFunc(role.Rules[i].Resources, func(r string) bool { return slices.Contains(leave, r) })
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) == 0 })
	create(t, role)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	})
	// The API server's authorizer learns of roles by a watch.
	eventually(t, user+" to have the role", func(ctx context.Context) error {
		p := &pluginCall{user: user, group: scalers}
		if code, said := p.run(ctx, t, "scale", "deployment/nobody", "--replicas=1", "--balanced", "-n", namespace); code != 1 || !strings.Contains(said, "there is no deployment") {
			return textError(said)
		}
		return nil
	})
	return &pluginCall{user: user, group: scalers}
}

// Story 5 of KEP-4563, beside what Kubernetes does by itself.
func TestScaleBalanced(t *testing.T) {
	t.Run("without it, the zones are out of balance", func(t *testing.T) {
		shareManager(t)
		a := newSpreadApp(t)
		result := must(kube.Kubectl(t.Context(), cluster.KubectlOptions{}, "scale", "deployment/web", "--replicas=6", "-n", a.namespace))(t)
		if err := result.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("0-3-3", a.spread(a.waitFor(t, 6))); diff != "" {
			t.Errorf("pods in the zones (-want +got):\n%s", diff)
		}
	})
	t.Run("with it, they are in balance", func(t *testing.T) {
		shareManager(t)
		a := newSpreadApp(t)
		args := []string{"scale", "deployment/web", "--replicas=6", "--balanced", "-n", a.namespace}
		p := scaler(t, a.namespace, "sam-"+a.namespace)
		for _, dryRun := range []string{"--dry-run", "--dry-run=server"} {
			if code, said := p.run(t.Context(), t, append(args, dryRun)...); code != 0 || !strings.Contains(p.printed(), "nothing was changed") {
				t.Fatalf("%s: exit code %d, %s\n%s", dryRun, code, said, p.printed())
			}
			now := a.waitFor(t, 9)
			if diff := cmp.Diff(map[string]string{}, costs(now)); diff != "" {
				t.Errorf("%s: deletion costs (-want +got):\n%s", dryRun, diff)
			}
		}
		p = &pluginCall{user: p.user, group: p.group}
		code, said := p.run(t.Context(), t, args...)
		t.Log(p.printed())
		if code != 0 {
			t.Fatalf("exit code %d, %s", code, said)
		}
		left := a.waitFor(t, 6)
		if diff := cmp.Diff("2-2-2", a.spread(left)); diff != "" {
			t.Errorf("pods in the zones (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{}, costs(left)); diff != "" {
			t.Errorf("deletion costs of those that stay (-want +got):\n%s", diff)
		}
		// What was printed before is what has happened.
		_, table, _ := strings.Cut(p.printed(), "WHY\n")
		table, _, _ = strings.Cut(table, "\n\n")
		for _, line := range strings.Split(table, "\n") {
			name := strings.Fields(line)[0]
			if slices.ContainsFunc(left, func(pod corev1.Pod) bool { return pod.Name == name }) {
				t.Errorf("pod %s was to go, and is there", name)
			}
		}
		if n := strings.Count(table, "\n") + 1; n != 3 {
			t.Errorf("%d pods were to go, want 3:\n%s", n, p.printed())
		}
	})
}

// What was written is taken back exactly if the number of replicas cannot be changed.
func TestScaleBalancedTakesBackItsMarks(t *testing.T) {
	shareManager(t)
	a := newSpreadApp(t)
	setCost(t, &a.pods[0], "7")
	setCost(t, &a.pods[1], "-3")
	before := costs(a.waitFor(t, 9))
	p := scaler(t, a.namespace, "pat-"+a.namespace, "deployments/scale")
	mark := kube.RequestLog().Mark()
	// So few stay that all of these pods are marked.
	code, said := p.run(t.Context(), t, "scale", "deployment/web", "--replicas=0", "--balanced", "-n", a.namespace)
	if code != 1 || !strings.Contains(said, `cannot update resource "deployments/scale"`) {
		t.Errorf("exit code %d, %q", code, said)
	}
	if diff := cmp.Diff(before, costs(a.waitFor(t, 9))); diff != "" {
		t.Errorf("deletion costs (-want +got):\n%s", diff)
	}
	patches := since(t, mark).By(p.user).Where(func(r cluster.Request) bool { return r.Verb == "patch" && r.Code == http.StatusOK })
	if len(patches) != 18 {
		t.Errorf("%d patches of pods, want one and its undoing for each of 9:\n%v", len(patches), patches)
	}
}

// What holds is not broken: pods that are not Ready go first, whatever is chosen.
func TestScaleBalancedBreaksNothing(t *testing.T) {
	shareManager(t)
	a := newSpreadApp(t)
	for i := range a.pods {
		if pod := &a.pods[i]; a.zones[pod.Spec.NodeName] == "b" {
			patch(t, pod, func() { pod.Annotations = map[string]string{cluster.ReadyAnnotation: "false"} })
		}
	}
	eventually(t, "the pods of zone b to be not Ready", func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if a.zones[list.Items[i].Spec.NodeName] == "b" && isReady(&list.Items[i]) {
				return fmt.Errorf("%s is", list.Items[i].Name)
			}
		}
		return nil
	})
	p := scaler(t, a.namespace, "una-"+a.namespace)
	code, said := p.run(t.Context(), t, "scale", "deployment/web", "--replicas=6", "--balanced", "-n", a.namespace)
	if want := "deployment/web is not scaled: the constraint for topology.kubernetes.io/zone holds now, and would not with 6 replicas"; code != 1 || !strings.Contains(said, want) {
		t.Errorf("exit code %d, want 1, and %q in:\n%s", code, want, said)
	}
	if diff := cmp.Diff("3-3-3", a.spread(a.waitFor(t, 9))); diff != "" {
		t.Errorf("pods in the zones (-want +got):\n%s", diff)
	}
}

func TestScaleBalancedRefuses(t *testing.T) {
	shareManager(t)
	a := newSpreadApp(t)
	deployment := func(name string, change ...func(*builder.PodWrapper)) *builder.DeploymentWrapper {
		return builder.Deployment(a.namespace, name).Replicas(0).Pods(func(w *builder.PodWrapper) {
			for _, f := range change {
				f(w)
			}
		})
	}
	// In the middle of a rollout that cannot go on: its new pods never become Ready.
	create(t, deployment("rolling").Replicas(2).Rolling("1", "0").Obj())
	rollingPods := func(what string, n int) {
		eventually(t, what, func(ctx context.Context) error {
			list := &appsv1.ReplicaSetList{}
			if err := admin.List(ctx, list, client.InNamespace(a.namespace), client.MatchingLabels{builder.AppLabel: "rolling"}); err != nil {
				return err
			}
			with := 0
			for _, set := range list.Items {
				if set.Status.Replicas > 0 {
					with++
				}
			}
			if with != n {
				return fmt.Errorf("%d replicasets have pods", with)
			}
			return nil
		})
	}
	rollingPods("the first version", 1)
	rolling := deployment("rolling", func(w *builder.PodWrapper) { w.Annotation(cluster.ReadyAnnotation, "false") }).Replicas(2).Rolling("1", "0").Obj()
	if err := admin.Update(t.Context(), rolling); err != nil {
		t.Fatal(err)
	}
	rollingPods("the second version", 2)
	create(t, deployment("plain").Replicas(2).Obj())
	a.waitCounted(t, "plain", 2)
	set := metav1.GetControllerOf(&a.pods[0]).Name
	cases := map[string]struct {
		args []string
		want string
	}{
		"more replicas":                  {[]string{"deployment/web", "--replicas=10", "--balanced"}, "only a scale-down chooses pods: kubectl scale deployment/web --replicas=10"},
		"without --balanced":             {[]string{"deploy/web", "--replicas=6"}, "without --balanced there is nothing to choose: kubectl scale deploy/web --replicas=6"},
		"without a number":               {[]string{"deploy/web", "--balanced"}, "--replicas is required"},
		"a StatefulSet":                  {[]string{"statefulset/db", "--replicas=1", "--balanced"}, `"statefulset/db" cannot be scaled in balance`},
		"an unknown Deployment":          {[]string{"deployment", "nobody", "--replicas=1", "--balanced"}, `there is no deployment "nobody" in namespace "` + a.namespace + `"`},
		"the ReplicaSet of a Deployment": {[]string{"rs/" + set, "--replicas=6", "--balanced"}, "belongs to Deployment web, which would undo it: scale that"},
		"a rollout":                      {[]string{"deployment/rolling", "--replicas=1", "--balanced"}, "deployment/rolling is in the middle of a rollout"},
		"no constraints":                 {[]string{"deployment/plain", "--replicas=1", "--balanced"}, "have no topology spread constraints"},
		"a dry run that nobody knows":    {[]string{"deployment/web", "--replicas=6", "--balanced", "--dry-run=maybe"}, `--dry-run must be none, client or server, not "maybe"`},
	}
	p := scaler(t, a.namespace, "rex-"+a.namespace)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &pluginCall{user: p.user, group: p.group}
			code, said := p.run(t.Context(), t, append([]string{"scale", "-n", a.namespace}, tc.args...)...)
			if code != 1 || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, want 1, and %q in:\n%s", code, tc.want, said)
			}
		})
	}
	// As many as there are is no failure.
	if code, said := p.run(t.Context(), t, "scale", "deployment/web", "--replicas=9", "--balanced", "-n", a.namespace); code != 0 || p.printed() != "deployment/web has 9 replicas already\n" {
		t.Errorf("exit code %d, %q, %q", code, said, p.printed())
	}
	create(t, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: "web-auto"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 20,
		},
	})
	p = &pluginCall{user: p.user, group: p.group}
	want := "deployment/web is scaled by HorizontalPodAutoscaler web-auto, which would undo it"
	if code, said := p.run(t.Context(), t, "scale", "deployment/web", "--replicas=6", "--balanced", "-n", a.namespace); code != 1 || !strings.Contains(said, want) {
		t.Errorf("exit code %d, want 1, and %q in:\n%s", code, want, said)
	}
	if diff := cmp.Diff(map[string]string{}, costs(a.waitFor(t, 9+3+2))); diff != "" {
		t.Errorf("deletion costs (-want +got):\n%s", diff)
	}
}
