//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// The whole way over three nodes: a Deployment that surges, virtual machines, and
// pods that nobody intercepts.
func TestAMaintenanceOfThreeNodes(t *testing.T) {
	namespace, nodes := kubevirtReady(t) // Two nodes, one of which the machines go to.
	target := nodes[1]
	label(t, target, testLabel, "not-yet-of-"+namespace) // It takes no replicas yet.
	nodes = append([]string{nodes[0]}, addNodes(t, namespace, 2)...)
	slices.Sort(nodes)
	runPlatform(t, &vmcrds.Platform{Namespace: namespace, Target: target, Evacuates: true})

	surging := builder.Deployment(namespace, "web").Replicas(3).Rolling("1", "0").Pods(func(p *builder.PodWrapper) {
		p.Label(surge.OptInLabel, "enabled").Change(func(pod *corev1.Pod) {
			pod.Spec.Affinity = nodesOf(namespace, "spare-of-"+namespace)
		})
	}).Obj()
	machine := createMachine(t, namespace, "vm", nodes[0], "LiveMigrate", "True")
	plain := createPod(t, builder.Pod(namespace, "plain").Node(nodes[1]).Obj())
	create(t, surging)
	readyPods(t, namespace, 5, nodes...)
	label(t, target, testLabel, "spare-of-"+namespace)
	daemons := createDaemons(t, namespace, nodes...)

	m := maintain(t, ofNamespace(namespace, "-m").Drain().Reason("new kernel"))
	done := waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
	waitRequest(t, machine, "Evicted", isTrue(v1alpha1.ConditionEvicted))
	gone(t, plain)
	for i := range daemons {
		lives(t, &daemons[i])
	}
	readyPods(t, namespace, 3, target)
	want := v1alpha1.MaintenanceProgress{Nodes: 3, NodesCordoned: 3, NodesDrained: 3, PodsEvacuated: 5}
	if diff := cmp.Diff(want, done.Status.Progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if !drainedIs(metav1.ConditionTrue, v1alpha1.ReasonDrained)(done) || done.Status.StartTime == nil || done.Status.CompletionTime != nil {
		t.Errorf("status: %+v", done.Status)
	}
	for _, node := range nodes {
		waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=DrainComplete"})
	}

	change(t, m, func(s *v1alpha1.NodeMaintenanceSpec) { s.Cordon, s.Drain = false, false })
	done = waitMaintenance(t, m, "complete", inStage(v1alpha1.StageMaintenanceComplete))
	for i, name := range nodes {
		node := waitNode(t, name, cordonIs{})
		waitNodeEvent(t, node, "NodeUncordoned")
		if got := done.Status.Nodes[i]; got.Name != name || got.Stage != v1alpha1.StageMaintenanceComplete || got.StartTime == nil || got.CompletionTime == nil {
			t.Errorf("node %s: status %+v", name, got)
		}
	}
	if done.Status.CompletionTime == nil {
		t.Error("there is no completion time")
	}
}

// Planning touches nothing; the stages go forth and back.
func TestTheStagesOfAMaintenance(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	pod := createPod(t, builder.Pod(namespace, "db").Node(node).Interceptors("db.example.com").Obj())

	m := maintain(t, ofNamespace(namespace, "-m").Reason("new disks"))
	waitMaintenance(t, m, "planned", inStage(v1alpha1.StagePlanning))
	waitNode(t, node, cordonIs{false, "", m.Name + "=Planning"})

	change(t, m, func(s *v1alpha1.NodeMaintenanceSpec) { s.Cordon = true })
	waitMaintenance(t, m, "cordoned", inStage(v1alpha1.StageCordon))
	waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Cordon"})
	noRequest(t, pod)

	change(t, m, func(s *v1alpha1.NodeMaintenanceSpec) { s.Drain = true })
	waitMaintenance(t, m, "draining", inStage(v1alpha1.StageDrain))
	waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Drain"})
	waitRequest(t, pod, "wanted by the maintenance", wantedBy(m.RequesterName()))
	waitCondition(t, pod, v1alpha1.PodEvacuationRequest, evacuationRequested("new disks"))
	waitRequest(t, pod, "in the hands of the interceptor", activeIs("db.example.com"))
	report(t, pod, "db.example.com", begin)
	waitCondition(t, pod, v1alpha1.PodEvacuationInitiated, corev1.PodCondition{
		Type: v1alpha1.PodEvacuationInitiated, Status: corev1.ConditionTrue,
		Reason: v1alpha1.PodReasonInterceptorStarted, Message: "An interceptor is evacuating the pod.",
	})
	waitMaintenance(t, m, "counting the pod as evacuating", func(m *v1alpha1.NodeMaintenance) bool {
		return len(m.Status.Nodes) == 1 && m.Status.Nodes[0].PodsPendingEvacuation == 1 && m.Status.Nodes[0].PodsEvacuating == 1
	})

	// Another reason reaches the pod; drain: false withdraws everything.
	change(t, m, func(s *v1alpha1.NodeMaintenanceSpec) { s.Reason = "newer disks" })
	waitCondition(t, pod, v1alpha1.PodEvacuationRequest, evacuationRequested("newer disks"))
	change(t, m, func(s *v1alpha1.NodeMaintenanceSpec) { s.Drain = false })
	waitRequest(t, pod, "Canceled", isTrue(v1alpha1.ConditionCanceled))
	waitCondition(t, pod, v1alpha1.PodEvacuationRequest, corev1.PodCondition{})
	waitCondition(t, pod, v1alpha1.PodEvacuationInitiated, corev1.PodCondition{})
	waitNode(t, node, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Cordon"})
	waitMaintenance(t, m, "not drained", drainedIs(metav1.ConditionFalse, v1alpha1.ReasonNotRequested))
	lives(t, pod)
}

// A pod without interceptors is left to its owner for a while: three minutes, if that
// says nothing.
func TestPodsWithoutInterceptorsAreLeftToTheirOwners(t *testing.T) {
	manager := startManager(t, func(o *app.Options) { o.Maintenance.EvacuationWait = 3 * time.Minute })
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	silent := createPod(t, builder.Pod(namespace, "silent").Node(node).Obj())
	refuses := createPod(t, builder.Pod(namespace, "refuses").Node(node).Obj())
	moves := createPod(t, builder.Pod(namespace, "moves").Node(node).Obj())
	m := maintain(t, ofNamespace(namespace, "-m").Drain())
	for _, pod := range []*corev1.Pod{silent, refuses, moves} {
		waitCondition(t, pod, v1alpha1.PodEvacuationRequest, evacuationRequested(""))
	}

	setPodCondition(t, moves, v1alpha1.PodEvacuationInitiated, corev1.ConditionTrue, "OwnerMoves")
	waitMaintenance(t, m, "counting the pod that its owner moves", func(m *v1alpha1.NodeMaintenance) bool {
		return m.Status.Progress.PodsEvacuating == 1 && m.Status.Progress.PodsPendingEvacuation == 3
	})
	noRequest(t, silent)
	setPodCondition(t, refuses, v1alpha1.PodEvacuationInitiated, corev1.ConditionFalse, "OwnerCannot")
	gone(t, refuses)
	noRequest(t, silent)
	lives(t, silent)

	manager.Clock.Advance(3 * time.Minute)
	gone(t, silent)
	noRequest(t, moves)
	setPodCondition(t, moves, v1alpha1.PodEvacuationInitiated, corev1.ConditionFalse, "OwnerGaveUp")
	gone(t, moves)
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
}

// One node at a time, though all are cordoned from the start.
func TestNodesAreDrainedOneByOne(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 3)
	slices.Sort(nodes)
	var pods []*corev1.Pod
	for i, node := range nodes {
		pods = append(pods, createPod(t, builder.Pod(namespace, "db-"+string(rune('a'+i))).Node(node).Interceptors("db.example.com").Obj()))
	}
	m := maintain(t, ofNamespace(namespace, "-m").Drain().Parallel(1))
	for i, pod := range pods {
		waitRequest(t, pod, "wanted", wantedBy(m.RequesterName()))
		for _, later := range pods[i+1:] {
			noRequest(t, later)
		}
		for _, later := range nodes[i+1:] {
			waitNode(t, later, cordonIs{true, v1alpha1.CordonOurs, m.Name + "=Cordon"})
		}
		complete(t, pod, "db.example.com", time.Now)
		gone(t, pod)
	}
	waitMaintenance(t, m, "drained", inStage(v1alpha1.StageDrainComplete))
}

// What cannot work is refused, or said in a condition.
func TestMaintenancesThatCannotWork(t *testing.T) {
	shareManager(t)
	namespace := kube.Namespace(t)
	refused := map[string]struct {
		maintenance *builder.NodeMaintenanceWrapper
		want        string
	}{
		"drain without cordon": {
			func() *builder.NodeMaintenanceWrapper {
				w := ofNamespace(namespace, "-a").Drain()
				w.Spec.Cordon = false
				return w
			}(), "drain requires cordon",
		},
		"an empty selector":         {builder.NodeMaintenance(namespace + "-b"), "nodeSelectorTerms"},
		"an empty term":             {builder.NodeMaintenance(namespace + "-c").AnyTerm(corev1.NodeSelectorTerm{}), "an empty term matches no node"},
		"no node at a time":         {ofNamespace(namespace, "-d").Parallel(0), "spec.maxParallelNodes"},
		"a reason that is too long": {ofNamespace(namespace, "-e").Reason(strings.Repeat("x", 1025)), "spec.reason"},
		"a name that is too long":   {builder.NodeMaintenance(strings.Repeat("x", 64)).Nodes("n"), "at most 63 between two periods"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), tc.maintenance.Obj())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
		})
	}

	for reason, w := range map[string]*builder.NodeMaintenanceWrapper{
		v1alpha1.ReasonNoMatchingNodes: ofNamespace(namespace, "-none").Drain(),
		v1alpha1.ReasonInvalidSelector: builder.NodeMaintenance(namespace+"-bad").Term("x", "Resembles", "y").Drain(),
	} {
		m := maintain(t, w)
		waitMaintenance(t, m, "without nodes", func(m *v1alpha1.NodeMaintenance) bool {
			return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
				return c.Type == v1alpha1.ConditionNodesSelected && c.Status == metav1.ConditionFalse && c.Reason == reason
			}) && drainedIs(metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNodes)(m)
		})
		waitEvent(t, &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: m.Name, UID: m.UID}}, "MaintenanceWithoutNodes")
	}
}

// createDaemons runs a DaemonSet on the nodes of the namespace, and returns its pods.
func createDaemons(t *testing.T, namespace string, nodes ...string) []corev1.Pod {
	t.Helper()
	return createDaemonSet(t, namespace, "agent", func(*corev1.Pod) {}, nodes...)
}

// createDaemonSet is createDaemons with a name and other pods.
func createDaemonSet(t *testing.T, namespace, name string, change func(*corev1.Pod), nodes ...string) []corev1.Pod {
	t.Helper()
	labels := map[string]string{builder.AppLabel: name}
	template := builder.Pod(namespace, name).NodeSelector(testLabel, namespace).Change(change).Obj().Spec
	create(t, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
		},
	})
	var daemons []corev1.Pod
	eventually(t, "the pods of DaemonSet "+name, func(ctx context.Context) error {
		list := &corev1.PodList{}
		if err := admin.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
			return err
		}
		daemons = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !isReady(&pod) || !slices.Contains(nodes, pod.Spec.NodeName) })
		if len(daemons) != len(nodes) {
			return fmt.Errorf("%d of %d are Ready", len(daemons), len(nodes))
		}
		return nil
	})
	return daemons
}

// begin is the first report of an interceptor.
func begin(s *v1alpha1.InterceptorStatus) {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	s.StartTime, s.HeartbeatTime = &now, &now
}

// label sets a label of a node.
func label(t *testing.T, node, key, value string) {
	t.Helper()
	patchNode(t, node, func(n *corev1.Node) { n.Labels[key] = value })
}

// unschedulable cordons or uncordons a node as an admin would.
func unschedulable(t *testing.T, node string, is bool) {
	t.Helper()
	patchNode(t, node, func(n *corev1.Node) { n.Spec.Unschedulable = is })
}

func patchNode(t *testing.T, name string, how func(*corev1.Node)) {
	t.Helper()
	node := &corev1.Node{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	before := node.DeepCopy()
	how(node)
	if err := admin.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// nodesOf keeps a pod on nodes whose testLabel has one of the values.
func nodesOf(values ...string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: testLabel, Operator: corev1.NodeSelectorOpIn, Values: values},
		}}},
	}}}
}
