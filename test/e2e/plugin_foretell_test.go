//go:build unix

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func deleteObject(t *testing.T, object client.Object) {
	t.Helper()
	if err := admin.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// wantForetold wants that an eviction call gets the answer that `why` has foretold.
func wantForetold(t *testing.T, pod *corev1.Pod) why.Story {
	t.Helper()
	told := storyOf(t, pod, 0)
	olga := must(client.New(must(kube.ConfigFor("olga", operators))(t), client.Options{Scheme: scheme}))(t)
	err := olga.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
	actual := "evicted"
	if err != nil {
		got := answer.Classify(err, len(told.Budgets))
		actual = got.Detail
		if _, text, ours := strings.Cut(actual, `"eviction-requests.drawbridge.dev" denied the request: `); ours {
			actual = "429: " + text
		} else {
			actual = fmt.Sprintf("refused (%s): %s", got.Result, actual)
		}
	}
	foretold := told.Answer.Text
	if told.Answer.Evicts {
		foretold = "evicted"
	}
	if diff := gocmp.Diff(foretold, actual); diff != "" {
		t.Errorf("answer to a call, %s: %s (-foretold +actual):\n%s", told.Verdict, told.Headline, diff)
	}
	return told
}

// planOf is what a dry run of a drain says of each pod of the node, by the pod's name.
func planOf(t *testing.T, node, dryRun string) map[string]string {
	t.Helper()
	text := plugin(t, "drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--dry-run="+dryRun)
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[0] == node {
			rows[fields[2]] = strings.Join(fields[3:], " ")
		}
	}
	return rows
}

// What `why` and the dry run of a drain foretell is what then happens, in every world
// that there is a test of.
func TestWhatThePluginForetellsHappens(t *testing.T) {
	manager, _ := startGuarded(t, func(o *app.Options) { o.Maintenance.EvacuationWait, o.Guard.Enabled = foretellWait, false })
	namespace := kube.Namespace(t)
	silent := nameIn(namespace, "silent")
	nodes := addNodes(t, namespace, 2)
	tellHowItWasInstalled(t)
	worlds := foretellWorlds(silent)
	maps.Copy(worlds, refusedWorlds(silent))
	pods := map[string][]*corev1.Pod{}
	for _, name := range slices.Sorted(maps.Keys(worlds)) {
		world := worlds[name]
		for i, node := range nodes {
			in := namespace
			if world.namespace != "" {
				in = world.namespace
			}
			if world.create != nil {
				pod := world.create(t, in, fmt.Sprintf("%s-%d", name, i), node)
				t.Cleanup(func() { clearPod(t, pod) })
				pods[name] = append(pods[name], pod)
				continue
			}
			w := builder.Pod(in, fmt.Sprintf("%s-%d", name, i)).Node(node).Label("app", fmt.Sprintf("%s-%d", name, i))
			if world.pod != nil {
				world.pod(w)
			}
			pod := createPod(t, w.Obj())
			t.Cleanup(func() { clearPod(t, pod) })
			if world.then != nil {
				world.then(t, pod)
			}
			pods[name] = append(pods[name], pod)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(worlds)) {
		t.Run("a call: "+name, func(t *testing.T) { wantForetold(t, pods[name][0]) })
	}

	planned := planOf(t, nodes[1], "server")
	unasked := planOf(t, nodes[1], "client")
	for name, world := range worlds {
		pod := pods[name][1]
		plain := strings.NewReplacer(string(pod.UID), "UID", pod.Namespace+".hooks", "NAMESPACE.hooks")
		if diff := gocmp.Diff(world.drained, plain.Replace(planned[pod.Name])); diff != "" {
			t.Errorf("plan for %s (-want +got):\n%s", name, diff)
		}
		if diff := gocmp.Diff(cmp.Or(world.unasked, world.drained), plain.Replace(unasked[pod.Name])); diff != "" {
			t.Errorf("plan for %s without asking (-want +got):\n%s", name, diff)
		}
	}
	m := maintain(t, builder.NodeMaintenance(namespace).Nodes(nodes[1]).Drain())
	drained := func(name string) *corev1.Pod { return pods[name][1] }
	for _, name := range []string{"plain", "budget", "two-budgets"} {
		pod := drained(name)
		waitCondition(t, pod, v1alpha1.PodEvacuationRequest, evacuationRequested(""))
		noRequest(t, pod)
		if name == "two-budgets" {
			wantForetoldOf(t, pod, why.VerdictSeveralBudgets)
			continue
		}
		if told := wantForetoldOf(t, pod, why.VerdictLeftToOwner); !strings.Contains(told.Headline, "for 3m0s (maintenance.evacuationWait)") {
			t.Errorf("headline %q", told.Headline)
		}
	}
	// A call does not wait for what the maintenance waits for, and nothing else says so.
	called := drained("plain-called")
	waitCondition(t, called, v1alpha1.PodEvacuationRequest, evacuationRequested(""))
	if told := wantForetold(t, called); told.Verdict != why.VerdictLeftToOwner || !told.Answer.Evicts {
		t.Errorf("%s: %s, answer %+v", told.Verdict, told.Headline, told.Answer)
	}
	gone(t, called)
	for _, name := range []string{"untouched", "canceled", "behind", "excluded"} {
		waitRequest(t, drained(name), "intercepted for the maintenance", func(er *v1alpha1.EvictionRequest) bool {
			return wantedBy(m.RequesterName())(er) && activeIs(silent)(er)
		})
	}
	waitRequest(t, drained("waiting"), "joined", func(er *v1alpha1.EvictionRequest) bool {
		return slices.Contains(requesters(er), m.RequesterName()) && activeIs(silent)(er)
	})
	noRequest(t, drained("ended"))
	waitMaintenance(t, m, "counting those that are left to their owners", func(m *v1alpha1.NodeMaintenance) bool {
		return m.Status.Progress.PodsWaiting == 4 && m.Status.Nodes[0].WaitingUntil != nil
	})
	manager.Clock.Advance(foretellWait)
	gone(t, drained("plain"))
	for _, name := range []string{"budget", "two-budgets"} {
		waitRequest(t, drained(name), "tried", func(er *v1alpha1.EvictionRequest) bool {
			return v1alpha1.Summarize(er).State == v1alpha1.StateBlocked
		})
		lives(t, drained(name))
	}

	for _, name := range []string{"machine", "held", "last-blocked"} {
		lives(t, drained(name))
	}
	endMaintenance(t, m) // While somebody can.

	// The webhook is deleted, and then there is no manager either. New pods, because
	// calls have done their work.
	fresh := func(name string, change func(*builder.PodWrapper)) *corev1.Pod {
		w := builder.Pod(namespace, name).Node(nodes[0]).Label("app", name)
		change(w)
		pod := createPod(t, w.Obj())
		t.Cleanup(func() { clearPod(t, pod) })
		return pod
	}
	outworlds := func(t *testing.T, suffix, because string) {
		t.Helper()
		intercepted := fresh("intercepted-"+suffix, func(w *builder.PodWrapper) { w.Interceptors(silent) })
		plain := fresh("plain-"+suffix, func(*builder.PodWrapper) {})
		eventually(t, "the API server not to ask the webhook", func(context.Context) error {
			dry := eviction(intercepted)
			dry.DeleteOptions.DryRun = []string{metav1.DryRunAll}
			if warned := evict(t, "kim", intercepted, dry).header.Get("Warning"); warned != "" {
				return fmt.Errorf("it warns: %s", warned)
			}
			return nil
		})
		if told := wantForetold(t, intercepted); told.Verdict != why.VerdictWebhookNotAsked || !strings.Contains(told.Headline, because) {
			t.Errorf("%s: %s, want it to say %q", told.Verdict, told.Headline, because)
		}
		if told := wantForetold(t, plain); told.Verdict != why.VerdictNothingBlocks {
			t.Errorf("%s: %s", told.Verdict, told.Headline)
		}
	}
	t.Run("the webhook is deleted", func(t *testing.T) {
		withoutWebhook(t, func() { outworlds(t, "deleted", "there is no webhook configuration of Drawbridge") })
	})
	outage(t, manager)
	t.Run("the manager is down", func(t *testing.T) { outworlds(t, "down", "does not reach a manager of Drawbridge") })
}

// wantForetoldOf is the story of a pod, with that verdict.
func wantForetoldOf(t *testing.T, pod *corev1.Pod, want why.Verdict) why.Story {
	t.Helper()
	told := storyOf(t, pod, 0)
	if told.Verdict != want {
		t.Errorf("%s: %s, want %s", told.Verdict, told.Headline, want)
	}
	return told
}

// tellHowItWasInstalled makes a Deployment without replicas that says how the test's
// manager was started: it runs in the test.
func tellHowItWasInstalled(t *testing.T) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "drawbridge"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: inst.Namespace, Name: "drawbridge", Labels: labels}}
	d.Spec.Replicas, d.Spec.Selector = new(int32), &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "manager", Image: "registry.example.com/drawbridge:1", Args: []string{"--maintenance=true", "--maintenance-evacuation-wait=" + foretellWait.String()},
	}}
	create(t, d)
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), d); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete the Deployment: %v", err)
		}
	})
}

// withoutWebhook does something while there is no webhook configuration. The API server may
// need a moment to forget it.
func withoutWebhook(t *testing.T, do func()) {
	t.Helper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: inst.Release}, config); err != nil {
		t.Fatal(err)
	}
	deleteObject(t, config.DeepCopy())
	defer func() {
		config.ResourceVersion, config.UID = "", ""
		if err := admin.Create(context.Background(), config); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("create the webhook configuration again: %v", err)
		}
	}()
	do()
}

// clearPod takes a pod away at the end of a test, whatever holds it.
func clearPod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	ctx := context.Background()
	err := admin.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if client.IgnoreNotFound(err) == nil {
		err = admin.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0))
	}
	if client.IgnoreNotFound(err) != nil {
		t.Errorf("delete pod %s: %v", pod.Name, err)
	}
}
