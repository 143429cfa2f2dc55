package maintenance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/maintenance"
)

const (
	planning = v1alpha1.StagePlanning
	cordon   = v1alpha1.StageCordon
	drain    = v1alpha1.StageDrain
	drained  = v1alpha1.StageDrainComplete
	complete = v1alpha1.StageMaintenanceComplete
)

// facts are those of a node in that stage, unschedulable if that is at least Cordon.
func facts(name string, stage v1alpha1.MaintenanceStage, pending int32) maintenance.NodeFacts {
	return maintenance.NodeFacts{
		Name: name, Stage: stage, Unschedulable: stage != "" && stage != planning,
		Pods: maintenance.Count{Pending: pending}, Empty: stage == drain && pending == 0,
	}
}

// lost is a lost node, of whose pods so many are deleted.
func lost(name string, stage v1alpha1.MaintenanceStage, pending, deleting int32) maintenance.NodeFacts {
	n := facts(name, stage, pending)
	n.Lost, n.Pods.Deleting, n.Empty = true, deleting, stage == drain && pending == deleting
	return n
}

// back is a node that was lost.
func back(n maintenance.NodeFacts) maintenance.NodeFacts {
	n.Lost = false
	return n
}

func TestPlanStep(t *testing.T) {
	type nodes = []maintenance.NodeFacts
	type decided = map[string]v1alpha1.MaintenanceStage
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	plan := v1alpha1.NodeMaintenanceSpec{}
	cordons := v1alpha1.NodeMaintenanceSpec{Cordon: true}
	drains := v1alpha1.NodeMaintenanceSpec{Cordon: true, Drain: true}
	oneByOne := v1alpha1.NodeMaintenanceSpec{Cordon: true, Drain: true, MaxParallelNodes: ptr.To[int32](1)}
	begun := v1alpha1.NodeMaintenanceStatus{StartTime: &earlier}
	cases := map[string]struct {
		spec   v1alpha1.NodeMaintenanceSpec
		nodes  nodes
		status v1alpha1.NodeMaintenanceStatus
		rest   int
		want   decided
		stage  v1alpha1.MaintenanceStage
		// drained is the condition's reason.
		drained string
	}{
		"planning": {
			spec: plan, nodes: nodes{facts("a", "", 0)},
			want: decided{"a": planning}, stage: planning, drained: v1alpha1.ReasonNotRequested,
		},
		"cordoning": {
			spec: cordons, nodes: nodes{facts("a", planning, 0), facts("b", "", 0)},
			want: decided{"a": cordon, "b": cordon}, stage: cordon, drained: v1alpha1.ReasonNotRequested,
		},
		"no drain before all nodes are cordoned": {
			spec: drains, nodes: nodes{facts("a", cordon, 0), facts("b", "", 0)}, status: begun,
			want: decided{"a": cordon, "b": cordon}, stage: cordon, drained: v1alpha1.ReasonCordoning,
		},
		"nor before a node is unschedulable again": {
			spec: drains, nodes: nodes{facts("a", cordon, 0), {Name: "b", Stage: cordon}}, status: begun,
			want: decided{"a": cordon, "b": cordon}, stage: cordon, drained: v1alpha1.ReasonCordoning,
		},
		"then all at once": {
			spec: drains, nodes: nodes{facts("a", cordon, 0), facts("b", cordon, 0)}, status: begun,
			want: decided{"a": drain, "b": drain}, stage: cordon, drained: v1alpha1.ReasonCordoning,
		},
		"or one by one": {
			spec: oneByOne, nodes: nodes{facts("a", cordon, 0), facts("b", cordon, 0)}, status: begun,
			want: decided{"a": drain, "b": cordon}, stage: cordon, drained: v1alpha1.ReasonCordoning,
		},
		"the next one has to wait": {
			spec: oneByOne, nodes: nodes{facts("a", cordon, 0), facts("b", drain, 3)}, status: begun,
			want: decided{"a": cordon, "b": drain}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"and takes the place of one that is done": {
			spec: oneByOne, nodes: nodes{facts("a", cordon, 0), facts("b", drain, 0)}, status: begun,
			want: decided{"a": drain, "b": drained}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"a lower limit stops nobody": {
			spec: oneByOne, nodes: nodes{facts("a", drain, 1), facts("b", drain, 1), facts("c", cordon, 0)}, status: begun,
			want: decided{"a": drain, "b": drain, "c": cordon}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"a node that appears is cordoned, and the others go on": {
			spec: drains, nodes: nodes{facts("a", drain, 1), facts("b", "", 0), facts("c", cordon, 0)}, status: begun,
			want: decided{"a": drain, "b": cordon, "c": cordon}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"a node without pods counts once that is confirmed": {
			spec: drains, nodes: nodes{{Name: "a", Stage: drain, Unschedulable: true}}, status: begun,
			want: decided{"a": drain}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"a pod comes to a drained node": {
			spec: drains, nodes: nodes{facts("a", drained, 1)}, status: begun,
			want: decided{"a": drain}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"all are drained": {
			spec: drains, nodes: nodes{facts("a", drained, 0), facts("b", drained, 0)}, status: begun,
			want: decided{"a": drained, "b": drained}, stage: drained, drained: v1alpha1.ReasonDrained,
		},
		"on a lost node deleted pods count as gone once that is confirmed": {
			spec: drains, nodes: nodes{lost("a", drain, 2, 2), lost("b", drain, 2, 1)}, status: begun,
			want: decided{"a": drained, "b": drain}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"then it is drained": {
			spec: drains, nodes: nodes{facts("a", drained, 0), lost("b", drained, 2, 2)}, status: begun,
			want: decided{"a": drained, "b": drained}, stage: drained, drained: v1alpha1.ReasonDrained,
		},
		"and when it comes back they have to end": {
			spec: drains, nodes: nodes{back(lost("b", drained, 2, 2))}, status: begun,
			want: decided{"b": drain}, stage: drain, drained: v1alpha1.ReasonDraining,
		},
		"drain is taken back": {
			spec: cordons, nodes: nodes{facts("a", drained, 0), facts("b", drain, 2)}, status: begun,
			want: decided{"a": cordon, "b": cordon}, stage: cordon, drained: v1alpha1.ReasonNotRequested,
		},
		"everything is taken back": {
			spec: plan, nodes: nodes{facts("a", drained, 0)}, status: begun,
			want: decided{}, stage: cordon, drained: v1alpha1.ReasonNotRequested,
		},
		"a node that it does not select any more is not released yet": {
			spec: plan, nodes: nodes{facts("a", "", 0)}, status: begun, rest: 1,
			want: decided{}, stage: cordon, drained: v1alpha1.ReasonNotRequested,
		},
		"all nodes are given back": {
			spec: plan, nodes: nodes{facts("a", "", 0)}, status: begun,
			want: decided{}, stage: complete, drained: v1alpha1.ReasonNotRequested,
		},
		"no node is selected": {
			spec: drains, want: decided{}, stage: cordon, drained: v1alpha1.ReasonNoMatchingNodes,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := maintenance.PlanStep(maintenance.PlanInput{Spec: tc.spec, Nodes: tc.nodes, Status: tc.status, Releasing: tc.rest, Generation: 7, Now: noon})
			if diff := cmp.Diff(tc.want, got.Stages); diff != "" {
				t.Errorf("stages of the nodes (-want +got):\n%s", diff)
			}
			if got.Status.Stage != tc.stage || got.Status.ObservedGeneration != 7 {
				t.Errorf("stage %s of generation %d, want %s of 7", got.Status.Stage, got.Status.ObservedGeneration, tc.stage)
			}
			condition := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionDrained)
			if condition.Reason != tc.drained || (condition.Status == metav1.ConditionTrue) != (tc.drained == v1alpha1.ReasonDrained) {
				t.Errorf("condition Drained: %+v, want reason %s", condition, tc.drained)
			}
			// Without new facts the status stays as it is, so that nothing is written.
			again := maintenance.PlanStep(maintenance.PlanInput{Spec: tc.spec, Nodes: tc.nodes, Status: got.Status, Releasing: tc.rest, Generation: 7, Now: noon.Add(time.Hour)})
			if diff := cmp.Diff(got.Status, again.Status, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the status changes by itself (-before +after):\n%s", diff)
			}
		})
	}
}

// A maintenance that was complete begins another round.
func TestAnotherRoundBegins(t *testing.T) {
	earlier := metav1.NewTime(noon.Add(-time.Hour))
	before := v1alpha1.NodeMaintenanceStatus{
		StartTime: &earlier, CompletionTime: &earlier, Stage: complete,
		Nodes: []v1alpha1.MaintenanceNodeStatus{{Name: "a", Stage: complete, StartTime: &earlier, CompletionTime: &earlier}},
	}
	got := maintenance.PlanStep(maintenance.PlanInput{
		Spec: v1alpha1.NodeMaintenanceSpec{Cordon: true}, Nodes: []maintenance.NodeFacts{facts("a", "", 0)}, Status: before, Now: noon,
	}).Status
	now := metav1.NewTime(noon)
	if diff := cmp.Diff(&now, got.StartTime); diff != "" || got.CompletionTime != nil {
		t.Errorf("completion time %v, start time (-want +got):\n%s", got.CompletionTime, diff)
	}
	want := []v1alpha1.MaintenanceNodeStatus{{Name: "a", Stage: planning}}
	if diff := cmp.Diff(want, got.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// A status of many nodes with many blocking pods stays far below the 1.5 MiB that
// etcd takes, and the nodes that matter are in it.
func TestTheStatusIsBounded(t *testing.T) {
	in := maintenance.PlanInput{Spec: v1alpha1.NodeMaintenanceSpec{Cordon: true, Drain: true}, Now: noon}
	for i := range 2000 {
		n := facts(fmt.Sprintf("node-%04d", i), drained, 0)
		if i >= 1700 {
			n = facts(n.Name, drain, 100)
			n.Pods.Blocking = 100
			for j := range 3 {
				n.Pods.Blocked = append(n.Pods.Blocked, v1alpha1.BlockingPod{
					Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%0253d", j), Reason: v1alpha1.BlockEvictionRefused, Message: strings.Repeat("m", 256),
				})
			}
		}
		in.Nodes = append(in.Nodes, n)
	}
	got := maintenance.PlanStep(in).Status
	open, names := 0, 0
	for _, n := range got.Nodes {
		if n.Stage == drain {
			open++
		}
		names += len(n.BlockingPods)
	}
	if len(got.Nodes) != 500 || open != 300 || names != 100 {
		t.Errorf("%d nodes, %d of them open, with %d names; want 500, 300 and 100", len(got.Nodes), open, names)
	}
	if got.Progress.Nodes != 2000 || got.Progress.PodsBlocking != 30000 {
		t.Errorf("progress counts %+v, want 2000 nodes and 30000 blocking pods", got.Progress)
	}
	data, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 300<<10 {
		t.Errorf("the status has %d bytes", len(data))
	}
}
