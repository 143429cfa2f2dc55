package drain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

const last = v1alpha1.ImperativeEvictionInterceptor

// maintenance is one that drains, with these nodes.
func maintenance(nodes ...v1alpha1.MaintenanceNodeStatus) *v1alpha1.NodeMaintenance {
	m := builder.NodeMaintenance("drain-blue").Obj()
	m.Generation, m.Spec.Cordon, m.Spec.Drain = 1, true, true
	m.Status.ObservedGeneration, m.Status.Stage, m.Status.Nodes = 1, v1alpha1.StageDrain, nodes
	for _, n := range nodes {
		m.Status.Progress.Nodes++
		m.Status.Progress.PodsPendingEvacuation += n.PodsPendingEvacuation
		m.Status.Progress.PodsBlocking += n.PodsBlocking
		if n.Stage == v1alpha1.StageDrainComplete {
			m.Status.Progress.NodesDrained++
		}
	}
	return m
}

func condition(m *v1alpha1.NodeMaintenance, kind string, status metav1.ConditionStatus) *v1alpha1.NodeMaintenance {
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status})
	return m
}

func intercepting(name, node, who string, eta time.Duration, message string) movingPod {
	p := movingPod{UID: name, Name: name, Node: node, Update: requester.Update{State: v1alpha1.StateIntercepting, Interceptor: who, Position: 1, Total: 2, Message: message}}
	if eta > 0 {
		p.ExpectedFinishTime = now.Add(eta)
	}
	return p
}

func blocked(name, node string) movingPod {
	return movingPod{UID: name, Name: name, Node: node, Update: requester.Update{State: v1alpha1.StateBlocked, Interceptor: last, Position: 2, Total: 2, Message: "waiting for budget queue: The disruption budget queue needs 1 healthy pods and has 1 currently."}}
}

func evicted(name, node string) movingPod {
	return movingPod{UID: name, Name: name, Node: node, Update: requester.Update{State: v1alpha1.StateEvicted}}
}

// middle is a drain in the middle of it.
func middle() snapshot {
	return snapshot{
		Now: now, Began: now.Add(-72 * time.Second),
		Maintenance: maintenance(
			v1alpha1.MaintenanceNodeStatus{Name: "node-1", Stage: v1alpha1.StageDrainComplete, PodsEvacuated: 18},
			v1alpha1.MaintenanceNodeStatus{Name: "node-2", Stage: v1alpha1.StageDrain, PodsEvacuated: 11, PodsPendingEvacuation: 4, PodsEvacuating: 3, PodsBlocking: 1},
			v1alpha1.MaintenanceNodeStatus{Name: "node-3", Stage: v1alpha1.StageCordon, PodsPendingEvacuation: 20},
		),
		Pods: []movingPod{
			evicted("shop/web-1", "node-2"),
			intercepting("shop/storefront-6fcbf75594-q28jh", "node-2", "surge.drawbridge.dev", 0, "Waiting for a replacement to become available."),
			intercepting("vms/virt-launcher-日本語-x7", "node-2", "kubevirt.drawbridge.dev", 95*time.Second, "移行中 42 %\x1b[2J\nof 8 GiB"),
			blocked("shop/queue-0", "node-2"),
			{UID: "new", Name: "shop/new", Node: "node-2", Update: requester.Update{State: v1alpha1.StatePending}},
		},
	}
}

func render(lines []text.Line) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%s|%s\n", [...]string{" ", "good", "bad", "faint"}[line.Tone], line.Text)
	}
	return b.String()
}

func TestTheView(t *testing.T) {
	many := middle()
	for i := range 40 {
		many.Maintenance.Status.Nodes = append(many.Maintenance.Status.Nodes, v1alpha1.MaintenanceNodeStatus{Name: fmt.Sprintf("node-%d", i+10), Stage: v1alpha1.StageCordon, PodsPendingEvacuation: 1})
		many.Maintenance.Status.Progress.Nodes++
		many.Pods = append(many.Pods, intercepting(fmt.Sprintf("shop/web-%02d", i), "node-2", "a.example.com", 0, ""))
	}
	hurried := middle()
	for i := range hurried.Pods[1:3] {
		hurried.Pods[i+1].Deadline = now.Add(time.Duration(i) * 25 * time.Second)
	}
	waves := middle()
	waves.Maintenance.Status.Nodes[1].Wave, waves.Maintenance.Status.Nodes[1].PodsInLaterWaves = "databases", 2
	long := middle()
	long.Maintenance.Name = "drain-ip-10-0-12-34-eu-central-1-compute-internal-28bb2304"
	for i := range long.Maintenance.Status.Nodes {
		long.Maintenance.Status.Nodes[i].Name = fmt.Sprintf("ip-10-0-12-3%d.eu-central-1.compute.internal", i)
	}
	for i := range long.Pods {
		long.Pods[i].Node = "ip-10-0-12-31.eu-central-1.compute.internal"
		long.Pods[i].Name = fmt.Sprintf("payments-production/settlement-reconciliation-worker-7d9c5b6f4d-x%dz9q", i)
	}
	cases := map[string]struct {
		snapshot snapshot
		screen   screen
	}{
		"terminal":     {middle(), screen{Width: 80, Height: 24}},
		"long":         {long, screen{Width: 80, Height: 24}},
		"long-minimal": {long, screen{Width: 40, Height: 24, ASCII: true}},
		"waves":        {waves, screen{Width: 120, Height: 40}},
		"wide":         {middle(), screen{Width: 120, Height: 40}},
		"narrow":       {middle(), screen{Width: 60, Height: 40}},
		"ascii":        {middle(), screen{Width: 100, Height: 40, ASCII: true}},
		"many":         {many, screen{Width: 100, Height: 20}},
		"hurry":        {hurried, screen{Width: 100, Height: 40}},
		"begin":        {snapshot{Now: now, Began: now, Maintenance: maintenance()}, screen{Width: 80, Height: 24}},
		"done": {snapshot{Now: now, Began: now.Add(-time.Hour), Maintenance: condition(maintenance(
			v1alpha1.MaintenanceNodeStatus{Name: "node-1", Stage: v1alpha1.StageDrainComplete}), v1alpha1.ConditionDrained, metav1.ConditionTrue)}, screen{Width: 80, Height: 24}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			lines := view(tc.snapshot, tc.screen)
			if len(lines) >= tc.screen.Height {
				t.Errorf("%d lines do not fit on a screen of %d", len(lines), tc.screen.Height)
			}
			for _, line := range lines {
				if got := text.Cells(line.Text); got > tc.screen.Width {
					t.Errorf("%q takes %d columns of %d", line.Text, got, tc.screen.Width)
				}
			}
			golden.Equal(t, "view-"+name+".golden.txt", render(lines))
		})
	}
}

func TestNothingIsDrawnOfNothing(t *testing.T) {
	if lines := view(snapshot{Now: now}, screen{Width: 80, Height: 24}); lines != nil {
		t.Errorf("lines %v", lines)
	}
}
