//go:build unix

package cloudnativepg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// The Clusters of the recipe: one with two replicas, and one alone.
	ledger, wiki = "ledger", "wiki"
	healthy      = "Cluster in healthy state"
)

// databases are the Clusters of the recipe in a namespace, each on nodes of its own.
type databases struct {
	namespace string
	scripts   *scripts
}

// newDatabases creates them, and waits until they are healthy.
func newDatabases(t *testing.T) *databases {
	t.Helper()
	d := &databases{namespace: world.Kube.Namespace(t)}
	playInstances(t, d.namespace)
	d.scripts = runScripts(t, d.namespace, "switchover")
	for name, size := range map[string]int64{ledger: 3, wiki: 1} {
		label := name + ".example.com/test"
		_, err := world.Kube.AddNodes(t.Context(), int(size)+1, func(n *corev1.Node) {
			n.Labels[label] = d.namespace
			// Addresses of this machine, where the instance managers are played.
			_, number, _ := strings.Cut(n.Name, "-")
			n.Spec.PodCIDR = "127.0." + number + ".0/24"
			n.Spec.PodCIDRs = []string{n.Spec.PodCIDR}
		})
		if err != nil {
			t.Fatal(err)
		}
		object := d.object(name)
		object.Object["spec"] = map[string]any{
			"instances": size, "storage": map[string]any{"size": "1Gi"},
			"affinity": map[string]any{"nodeSelector": map[string]any{label: d.namespace}},
		}
		cluster.Eventually(t, name+" to be created", func(ctx context.Context) error { // Its webhooks may be a moment late.
			return world.Client.Create(ctx, object)
		})
		t.Cleanup(func() { // Before its pods, which it would make again.
			if err := world.Client.Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
	}
	d.healthy(t, ledger, 3)
	d.healthy(t, wiki, 1)
	return d
}

func (d *databases) object(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(clusterKind)
	object.SetNamespace(d.namespace)
	object.SetName(name)
	return object
}

// primaries are the primary of a Cluster, and the one it is to have.
func (d *databases) primaries(ctx context.Context, name string) (current, target, phase string, err error) {
	object := d.object(name)
	if err := world.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return "", "", "", err
	}
	current, _, _ = unstructured.NestedString(object.Object, "status", "currentPrimary")
	target, _, _ = unstructured.NestedString(object.Object, "status", "targetPrimary")
	phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	return current, target, phase, nil
}

// healthy waits until the operator says so, with so many pods that are Ready, and returns the primary.
func (d *databases) healthy(t *testing.T, name string, size int) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	cluster.Eventually(t, name+" to be healthy", func(ctx context.Context) error {
		if err := world.StillRun(); err != nil {
			return err
		}
		current, target, phase, err := d.primaries(ctx, name)
		if err != nil {
			return err
		}
		pods := &corev1.PodList{}
		if err := world.Client.List(ctx, pods, client.InNamespace(d.namespace), client.MatchingLabels{clusterLabel: name, podRoleLabel: "instance"}); err != nil {
			return err
		}
		var roles []string
		ready := 0
		for i := range pods.Items {
			if cluster.IsReady(&pods.Items[i]) {
				ready++
			}
			if pods.Items[i].Name == current {
				*pod = pods.Items[i]
			}
			roles = append(roles, pods.Items[i].Name+" "+pods.Items[i].Labels[roleLabel])
		}
		want := size
		for _, role := range roles {
			if role == current+" primary" || !strings.HasPrefix(role, current+" ") && strings.HasSuffix(role, " replica") {
				want--
			}
		}
		if phase != healthy || current == "" || current != target || ready != size || want != 0 {
			return fmt.Errorf("phase %q, primary %q, target %q, %d ready, %q", phase, current, target, ready, roles)
		}
		return nil
	})
	return pod
}

// budget is what a PodDisruptionBudget selects and allows.
type budget struct {
	Selects      map[string]string
	MinAvailable int
	Healthy      int32
	Allowed      int32
}

// budgets waits until those of the operator are as wanted.
func (d *databases) budgets(t *testing.T, want map[string]budget) {
	t.Helper()
	cluster.Eventually(t, "the operator's budgets", func(ctx context.Context) error {
		list := &policyv1.PodDisruptionBudgetList{}
		if err := world.Client.List(ctx, list, client.InNamespace(d.namespace)); err != nil {
			return err
		}
		got := map[string]budget{}
		for i := range list.Items {
			b := &list.Items[i]
			got[b.Name] = budget{b.Spec.Selector.MatchLabels, b.Spec.MinAvailable.IntValue(), b.Status.CurrentHealthy, b.Status.DisruptionsAllowed}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// evict asks for the eviction of a pod every second, without a cordon, until it is carried out or
// somebody has had enough. It returns what was answered at last.
func (d *databases) evict(t *testing.T, pod *corev1.Pod, enough func(times int) bool) (code int, says string) {
	t.Helper()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for times := 1; ; times++ {
		var body []byte
		code, _, body = world.Kube.PostEviction(t, pod, cluster.Eviction(pod), alice, drainers)
		says = string(body)
		if code != http.StatusTooManyRequests || enough(times) {
			return code, says
		}
		<-ticker.C
	}
}

// cordon makes a node unschedulable or not.
func cordon(t *testing.T, node string, cordoned bool) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
	object := &corev1.Node{}
	object.Name = node
	if err := world.Client.Patch(t.Context(), object, patch); err != nil {
		t.Fatal(err)
	}
}

// apply applies the recipe and binds its role, as the recipe says. Only the fake kubelet is told that
// the pods of its Jobs take longer than a moment.
func (d *databases) apply(t *testing.T) {
	t.Helper()
	content := cluster.Must(os.ReadFile("../../../examples/recipes/cloudnative-pg.yaml"))(t)
	const spec = "        template:\n          spec:\n"
	if bytes.Count(content, []byte(spec)) != 1 {
		t.Fatal("the recipe has no template of one Job")
	}
	content = bytes.Replace(content, []byte(spec), []byte("        template:\n          metadata: {annotations: {"+cluster.CompleteAfterAnnotation+": 1h}}\n          spec:\n"), 1)
	for _, args := range [][]string{
		{"apply", "--validate=strict", "--namespace", d.namespace, "-f", "-"},
		{"create", "rolebinding", "cnpg-switchover", "--role=cnpg-switchover", "--serviceaccount=" + d.namespace + ":cnpg-switchover", "--namespace", d.namespace},
	} {
		result, err := world.Kube.Kubectl(t.Context(), cluster.KubectlOptions{Stdin: bytes.NewReader(content)}, args...)
		if err := errors.Join(err, result.Err()); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Eventually(t, "the recipe to cover the pods", func(ctx context.Context) error {
		hook, b := &v1alpha1.EvacuationHook{}, &v1alpha1.EvictionBudget{}
		if err := errors.Join(
			world.Client.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: "switchover"}, hook),
			world.Client.Get(ctx, client.ObjectKey{Namespace: d.namespace, Name: "wiki-at-night"}, b),
		); err != nil {
			return err
		}
		accepted := meta.IsStatusConditionTrue(hook.Status.Conditions, v1alpha1.ConditionAccepted) && meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionAccepted)
		if covers, too := hook.Status.MatchingPods, b.Status.MatchingPods; !accepted || covers == nil || *covers != 3 || too == nil || *too != 1 {
			return fmt.Errorf("status %+v and %+v", hook.Status, b.Status)
		}
		return nil
	})
}

// drain starts to drain a node, until the test ends.
func drain(t *testing.T, node string) *cluster.Program {
	t.Helper()
	program := cluster.Must(world.Kube.StartKubectl(t.Context(), asAlice, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data"))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubectl said: %v", program.Lines())
		}
	})
	return program
}

// said waits for a line of a drain.
func said(t *testing.T, drain *cluster.Program, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
	defer cancel()
	if _, err := drain.WaitLine(ctx, text); err != nil {
		t.Fatal(err)
	}
}

// patches are how often an account of the namespace has changed the status of a Cluster since a mark.
func (d *databases) patches(t *testing.T, mark cluster.Mark, account string) int {
	t.Helper()
	since := cluster.Must(world.Kube.RequestLog().Since(t.Context(), mark))(t)
	return len(since.By("system:serviceaccount:" + d.namespace + ":" + account).Where(func(r cluster.Request) bool {
		return r.Resource == "clusters" && r.Subresource == "status" && r.Verb == "patch"
	}))
}

// The parts are one test: it takes minutes until the operator has made its Clusters.
func TestRecipe(t *testing.T) {
	if world == nil {
		peer.Skip(t, peerName)
	}
	d := newDatabases(t)
	t.Run("without Drawbridge", func(t *testing.T) {
		t.Run("the operator's budgets", d.testBudgets)
		t.Run("an eviction without a cordon", d.testAloneEvicted)
		t.Run("a cordon", d.testAloneCordoned)
	})
	inst := cluster.Must(manager.Install(t.Context(), world.Kube, manager.InstallOptions{Values: map[string]any{
		"budgets": map[string]any{"exhausted": map[string]any{"enabled": true}},
	}}))(t)
	m := inst.ForTest(t, manager.Options{Change: func(o *app.Options) { o.Budgets.Exhausted = true }})
	d.apply(t)
	t.Run("a drain", d.testDrain)
	t.Run("an eviction without a cordon", d.testEvicted)
	t.Run("the single instance", func(t *testing.T) { d.testSingle(t, m) })
	if err := world.StillRun(); err != nil {
		t.Error(err)
	}
}

func (d *databases) testBudgets(t *testing.T) {
	selects := func(name, role string) map[string]string {
		return map[string]string{clusterLabel: name, roleLabel: role}
	}
	d.budgets(t, map[string]budget{
		ledger:              {Selects: selects(ledger, "replica"), MinAvailable: 1, Healthy: 2, Allowed: 1},
		ledger + "-primary": {Selects: selects(ledger, "primary"), MinAvailable: 1, Healthy: 1},
		wiki + "-primary":   {Selects: selects(wiki, "primary"), MinAvailable: 1, Healthy: 1},
	})
}

func (d *databases) testAloneEvicted(t *testing.T) {
	primary := d.healthy(t, ledger, 3)
	code, says := d.evict(t, primary, func(times int) bool { return times == 10 })
	current, target, _, err := d.primaries(t.Context(), ledger)
	if code != http.StatusTooManyRequests || !strings.Contains(says, ledger+"-primary") || current != primary.Name || target != primary.Name || err != nil {
		t.Errorf("%d %s; the primary is %s, to be %s (%v)", code, says, current, target, err)
	}
}

func (d *databases) testAloneCordoned(t *testing.T) {
	primary := d.healthy(t, ledger, 3)
	cordon(t, primary.Spec.NodeName, true)
	code, says := d.evict(t, primary, func(times int) bool { return times == 120 })
	// Its budget does not hold the old primary to the end: meanwhile that has another role.
	current, target, phase, err := d.primaries(t.Context(), ledger)
	if code != http.StatusCreated || current != primary.Name || target == primary.Name || err != nil {
		t.Errorf("%d %s; the primary is %s, to be %s: %s (%v)", code, says, current, target, phase, err)
	}
	cluster.Gone(t, world.Client, primary)
	cordon(t, primary.Spec.NodeName, false)
	if now := d.healthy(t, ledger, 3); now.Name == primary.Name {
		t.Errorf("the primary is still %s", now.Name)
	}
}

// A drain cordons, so the operator switches over by itself, and the hook waits for it.
func (d *databases) testDrain(t *testing.T) {
	primary := d.healthy(t, ledger, 3)
	mark := world.Kube.RequestLog().Mark()
	program := drain(t, primary.Spec.NodeName)
	said(t, program, "Eviction triggered evacuation: ")
	situations.Ended(t, program)
	cluster.Gone(t, world.Client, primary)
	d.switched(t, primary)
	if n := d.patches(t, mark, "cnpg-switchover"); n != 0 {
		t.Errorf("the Job has promoted somebody %d times", n)
	}
	cordon(t, primary.Spec.NodeName, false)
}

// Nobody cordons, so the Job asks the operator.
func (d *databases) testEvicted(t *testing.T) {
	primary := d.healthy(t, ledger, 3)
	mark := world.Kube.RequestLog().Mark()
	code, says := d.evict(t, primary, func(times int) bool { return times == 120 })
	if code != http.StatusCreated && code != http.StatusNotFound { // Not found if Drawbridge has evicted it meanwhile.
		t.Fatalf("%d %s", code, says)
	}
	cluster.Gone(t, world.Client, primary)
	d.switched(t, primary)
	if n := d.patches(t, mark, "cnpg-switchover"); n != 1 {
		t.Errorf("the Job has promoted somebody %d times", n)
	}
}

// switched wants that the Cluster is healthy with another primary than before, as the Job has said.
func (d *databases) switched(t *testing.T, before *corev1.Pod) {
	t.Helper()
	er := cluster.WaitRequest(t, world.Client, before, "evicted", cluster.IsTrue(v1alpha1.ConditionEvicted))
	hook := v1alpha1.HookInterceptor(client.ObjectKey{Namespace: d.namespace, Name: "switchover"})
	message := v1alpha1.ReportOf(er, hook).Message
	now := d.healthy(t, ledger, 3)
	ran, done := d.scripts.last()
	if !done || ran.said != now.Name+" is the primary" || !strings.HasSuffix(message, "has completed: "+ran.said+".") || now.Name == before.Name {
		t.Errorf("the script says %q (%t), the hook %q; the primary was %s and is %s", ran.said, done, message, before.Name, now.Name)
	}
	t.Logf("the script took %s and says %q; the hook says %q", ran.ended.Sub(ran.began).Round(time.Second), ran.said, message)
}

// It goes at night, half an hour after the window has opened, and the operator makes it again.
func (d *databases) testSingle(t *testing.T, m *manager.Manager) {
	pod := d.healthy(t, wiki, 1)
	b := &v1alpha1.EvictionBudget{}
	if err := world.Client.Get(t.Context(), client.ObjectKey{Namespace: d.namespace, Name: "wiki-at-night"}, b); err != nil {
		t.Fatal(err)
	}
	opens := b.Status.Window.Start.Time
	waits := opens.After(m.Clock.Now().Add(time.Hour))
	if waits {
		m.Clock.AdvanceTo(opens.Add(-10 * time.Minute))
	}
	program := drain(t, pod.Spec.NodeName)
	said(t, program, "Eviction triggered evacuation: ")
	cluster.ApplyWish(t, world.Client, "night.example.com", pod, true)
	if waits {
		said(t, program, `waiting for interceptor "budgets.drawbridge.dev" (1 of 2)`)
		cluster.WaitRequest(t, world.Client, pod, "told of the window", func(er *v1alpha1.EvictionRequest) bool {
			return strings.HasPrefix(v1alpha1.ReportOf(er, v1alpha1.BudgetInterceptor).Message, "EvictionBudget wiki-at-night: no window is open, the next one opens at ")
		})
	}
	// The clock jumps, and kubectl would seem to be silent for long. Somebody else waits, who need not call.
	if err := program.Interrupt(); err != nil {
		t.Fatal(err)
	}
	<-program.Done()
	if waits {
		m.Clock.AdvanceTo(opens)
	}
	er := cluster.WaitRequest(t, world.Client, pod, "told when it goes", func(er *v1alpha1.EvictionRequest) bool {
		last := er.Status.Interceptors[len(er.Status.Interceptors)-1]
		return last.Refusal != nil && last.ExpectedFinishTime != nil
	})
	last := er.Status.Interceptors[len(er.Status.Interceptors)-1]
	if !strings.HasPrefix(last.Refusal.Message, "PodDisruptionBudget "+wiki+"-primary can never allow a disruption (minAvailable is 1 of 1 pod). EvictionBudget wiki-at-night has the pod deleted from ") {
		t.Errorf("it is refused because: %s", last.Refusal.Message)
	}
	m.Clock.AdvanceTo(last.ExpectedFinishTime.Time)
	cluster.Gone(t, world.Client, pod)
	cluster.WaitRequest(t, world.Client, pod, "evicted", cluster.IsTrue(v1alpha1.ConditionEvicted))
	if now := d.healthy(t, wiki, 1); now.Name != pod.Name || now.Spec.NodeName == pod.Spec.NodeName {
		t.Errorf("%s of %s is now %s of %s", pod.Name, pod.Spec.NodeName, now.Name, now.Spec.NodeName)
	}
}
