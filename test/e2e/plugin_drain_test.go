//go:build unix

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// drainHolder keeps a pod that is deleted.
const drainHolder = "e2e.drawbridge.dev/hold"

// withEmptyDir gives a pod a volume whose data goes with it.
func withEmptyDir(w *builder.PodWrapper) {
	w.Spec.Volumes = append(w.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
}

// perilousPods puts pods on the nodes of the namespace that a drain must not take
// without being told to, and one of each kind that it may.
func perilousPods(t *testing.T, namespace string, nodes []string) {
	t.Helper()
	on := func(node string) func(*builder.PodWrapper) {
		return func(w *builder.PodWrapper) { w.NodeSelector(corev1.LabelHostname, node) }
	}
	daemons := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"}}
	daemons.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{builder.AppLabel: "agent"}}
	daemons.Spec.Template = builder.Deployment(namespace, "agent").Pods(onNodesOf(namespace)).Obj().Spec.Template
	create(t, daemons)
	for i, node := range nodes {
		name := func(kind string) string { return fmt.Sprintf("%s-%d", kind, i) }
		bare := func(kind string, change ...func(*builder.PodWrapper)) *corev1.Pod {
			w := builder.Pod(namespace, name(kind))
			for _, c := range append(change, on(node)) {
				c(w)
			}
			return createPod(t, w.Obj())
		}
		bare("bare")
		bare("bare-scratch", withEmptyDir)
		done := bare("done", withEmptyDir)
		if err := admin.Status().Patch(t.Context(), done, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))); err != nil {
			t.Fatal(err)
		}
		// The garbage collector deletes it, because its owner is not there.
		create(t, builder.Pod(namespace, name("orphan")).Node(node).DaemonSet("no-such").Finalizer(drainHolder).Obj())
		create(t, builder.Deployment(namespace, name("web")).Pods(on(node)).Obj())
		create(t, builder.Deployment(namespace, name("scratch")).Pods(func(w *builder.PodWrapper) { on(node)(w); withEmptyDir(w) }).Obj())
	}
	eventually(t, "all pods to run", func(ctx context.Context) error {
		for _, node := range nodes {
			if names := podsOn(ctx, namespace, node); len(names) != 7 {
				return fmt.Errorf("on %s are %v", node, names)
			}
		}
		return nil
	})
}

// podsOn are the kinds of pods on a node: their names without what makes them unique.
func podsOn(ctx context.Context, namespace, node string) []string {
	list := &corev1.PodList{}
	if err := admin.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return []string{err.Error()}
	}
	var kinds []string
	for _, pod := range list.Items {
		if pod.Spec.NodeName == node {
			kinds = append(kinds, regexp.MustCompile(`-[0-9].*$|-[a-z0-9]{5}$`).ReplaceAllString(pod.Name, ""))
		}
	}
	slices.Sort(kinds)
	return kinds
}

// refusals are the sentences in which a drain refuses, with the pods they name, sorted. The
// kubectl of older releases stammers: "cannot delete cannot delete Pods".
func refusals(said string) []string {
	found := regexp.MustCompile(`(?:cannot delete )*(cannot delete [^:]*): ([^\n\]]*?)(?:, cannot delete|\]|, continuing|\n|$)`)
	var all []string
	for rest := said; ; {
		at := found.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		pods := strings.Split(strings.TrimSpace(rest[at[4]:at[5]]), ", ")
		slices.Sort(pods)
		all = append(all, rest[at[2]:at[3]]+": "+strings.Join(pods, " "))
		rest = rest[at[5]:]
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The plugin's drain and kubectl's, side by side: what kubectl refuses, the plugin
// refuses in the same words, for the same pods, with the same flags.
func TestThePluginRefusesWhatKubectlRefuses(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	perilousPods(t, namespace, nodes)
	flags := []string{"--force", "--delete-emptydir-data", "--ignore-daemonsets"}
	for set := range 1 << len(flags) {
		var given []string
		for i, flag := range flags {
			if set&(1<<i) != 0 {
				given = append(given, flag)
			}
		}
		name := "with " + strings.Join(given, " ")
		if len(given) == 0 {
			name = "without flags"
		}
		t.Run(name, func(t *testing.T) {
			kubectl := must(kube.Kubectl(t.Context(), as("rex"), append([]string{"drain", nodes[0], "--dry-run=client"}, given...)...))(t)
			p := &pluginCall{user: "olga", group: operators}
			code, said := p.run(t.Context(), t, append([]string{"drain", nodes[0], "--dry-run=client"}, given...)...)
			want, got := refusals(kubectl.Stderr), refusals(said)
			if kubectl.ExitCode == 0 != (len(want) == 0) {
				t.Fatalf("this test does not understand kubectl: exit code %d, %q", kubectl.ExitCode, kubectl.Stderr)
			}
			if diff := cmp.Diff(want, got); diff != "" || code != kubectl.ExitCode {
				t.Errorf("exit code %d, kubectl has %d; refusals (-kubectl +plugin):\n%s\n%s\n%s", code, kubectl.ExitCode, diff, kubectl.Stderr, said)
			}
			if code == 0 {
				return
			}
			// Without the dry run it is refused just so, and nothing is changed.
			p = &pluginCall{user: "olga", group: operators}
			code, said = p.run(t.Context(), t, append([]string{"drain", "node/" + nodes[0]}, given...)...)
			if diff := cmp.Diff(want, refusals(said)); diff != "" || code != 1 || !strings.Contains(said, "nothing was changed") {
				t.Errorf("without the dry run: exit code %d, refusals (-kubectl +plugin):\n%s\n%s", code, diff, said)
			}
		})
	}
	waitNode(t, nodes[0], cordonIs{})

	// With all flags both drain, and leave the pods of the DaemonSet. What has ended
	// holds no node: kubectl deletes the object, a maintenance leaves it.
	for i := range nodes {
		orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("orphan-%d", i)}}
		if err := admin.Patch(t.Context(), orphan, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	finishWell(t, startDrain(t, "rex", nodes[0]))
	plugin(t, append([]string{"drain", nodes[1], "--timeout=2m"}, flags...)...)
	if diff := cmp.Diff([]string{"agent"}, podsOn(t.Context(), namespace, nodes[0])); diff != "" {
		t.Errorf("pods after kubectl's drain (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"agent", "done"}, podsOn(t.Context(), namespace, nodes[1])); diff != "" {
		t.Errorf("pods after the plugin's drain (-want +got):\n%s", diff)
	}
	kubectl(t, "rex", "uncordon", nodes[0])
	plugin(t, "uncordon", "node/"+nodes[1])
}

// Pods that come after the drain was begun are kept as well, and block it, as long as
// nobody has said that they may go.
func TestAMaintenanceKeepsPodsThatItIsToKeep(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	m := maintain(t, ofNamespace(namespace, "").Drain().Keeps())
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	// A scheduler that was late, or a pod that tolerates everything.
	late := func(name string, change func(*builder.PodWrapper)) *corev1.Pod {
		w := builder.Pod(namespace, name).Node(node).Tolerate()
		change(w)
		return createPod(t, w.Obj())
	}
	bare := late("bare", func(*builder.PodWrapper) {})
	scratch := late("scratch", func(w *builder.PodWrapper) { withEmptyDir(w) })
	blocking := func(want map[string]v1alpha1.BlockReason) func(*v1alpha1.NodeMaintenance) bool {
		return func(m *v1alpha1.NodeMaintenance) bool {
			got := map[string]v1alpha1.BlockReason{}
			for _, n := range m.Status.Nodes {
				for _, pod := range n.BlockingPods {
					got[pod.Name] = pod.Reason
				}
			}
			return cmp.Equal(want, got) && m.Status.Stage == v1alpha1.StageDrain
		}
	}
	waitMaintenance(t, m, "blocked by both", blocking(map[string]v1alpha1.BlockReason{"bare": v1alpha1.BlockUnmanagedPod, "scratch": v1alpha1.BlockEmptyDirData}))
	lives(t, bare)
	lives(t, scratch)
	noRequest(t, bare)

	change(t, m, func(spec *v1alpha1.NodeMaintenanceSpec) { spec.UnmanagedPods = v1alpha1.PodsEvict })
	gone(t, bare)
	waitMaintenance(t, m, "blocked by the data", blocking(map[string]v1alpha1.BlockReason{"scratch": v1alpha1.BlockEmptyDirData}))
	lives(t, scratch)
	change(t, m, func(spec *v1alpha1.NodeMaintenanceSpec) { spec.EmptyDirPods = "" })
	gone(t, scratch)
	waitMaintenance(t, m, "drained again", inStage(v1alpha1.StageDrainComplete))
}

// Whoever registers an interceptor for all pods hears so; nothing is refused.
func TestARegistrationForEveryPodIsWarnedOf(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	cases := map[string]struct {
		spec   string
		warned bool
	}{
		"an empty spec":         {spec: "{}", warned: true},
		"empty selectors":       {spec: `{"podSelector": {}, "namespaceSelector": {}}`, warned: true},
		"labels of pods":        {spec: `{"podSelector": {"matchLabels": {"app": "db"}}}`},
		"namespaces":            {spec: `{"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}`},
		"what a condition says": {spec: `{"matchConditions": [{"name": "no", "expression": "false"}]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := fmt.Sprintf(`{"apiVersion": "drawbridge.dev/v1alpha1", "kind": "EvictionInterceptor", "metadata": {"name": %q}, "spec": %s}`, nameIn(namespace, "warned"), tc.spec)
			// A dry run: one that selects every pod would get in the way of other tests.
			eventually(t, "the API server to warn as it is to", func(ctx context.Context) error {
				result, err := kube.Kubectl(ctx, cluster.KubectlOptions{Stdin: strings.NewReader(object)}, "create", "--dry-run=server", "-f", "-")
				if err != nil {
					return err
				}
				if err := result.Err(); err != nil {
					return err
				}
				if got := strings.Contains(result.Stderr, "it intercepts the eviction of every pod"); got != tc.warned {
					return fmt.Errorf("want a warning: %t, have %q", tc.warned, result.Stderr)
				}
				return nil
			})
		})
	}
}
