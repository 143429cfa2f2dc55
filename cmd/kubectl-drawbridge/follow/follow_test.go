package follow

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/builder"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

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

func intercepting(name, node, who string, eta time.Duration, message string) Pod {
	p := Pod{UID: name, Name: name, Node: node, Update: interceptor.Update{State: v1alpha1.StateIntercepting, Interceptor: who, Position: 1, Total: 2, Message: message}}
	if eta > 0 {
		p.ExpectedFinishTime = now.Add(eta)
	}
	return p
}

func blocked(name, node string) Pod {
	return Pod{UID: name, Name: name, Node: node, Update: interceptor.Update{State: v1alpha1.StateBlocked, Interceptor: last, Position: 2, Total: 2, Message: "waiting for budget queue: The disruption budget queue needs 1 healthy pods and has 1 currently."}}
}

func evicted(name, node string) Pod {
	return Pod{UID: name, Name: name, Node: node, Update: interceptor.Update{State: v1alpha1.StateEvicted}}
}

// middle is a drain in the middle of it.
func middle() Snapshot {
	return Snapshot{
		Now: now, Began: now.Add(-72 * time.Second),
		Maintenance: maintenance(
			v1alpha1.MaintenanceNodeStatus{Name: "node-1", Stage: v1alpha1.StageDrainComplete, PodsEvacuated: 18},
			v1alpha1.MaintenanceNodeStatus{Name: "node-2", Stage: v1alpha1.StageDrain, PodsEvacuated: 11, PodsPendingEvacuation: 4, PodsEvacuating: 3, PodsBlocking: 1},
			v1alpha1.MaintenanceNodeStatus{Name: "node-3", Stage: v1alpha1.StageCordon, PodsPendingEvacuation: 20},
		),
		Pods: []Pod{
			evicted("shop/web-1", "node-2"),
			intercepting("shop/storefront-6fcbf75594-q28jh", "node-2", "surge.drawbridge.dev", 0, "Waiting for a replacement to become available."),
			intercepting("vms/virt-launcher-日本語-x7", "node-2", "kubevirt.drawbridge.dev", 95*time.Second, "移行中 42 %\x1b[2J\nof 8 GiB"),
			blocked("shop/queue-0", "node-2"),
			{UID: "new", Name: "shop/new", Node: "node-2", Update: interceptor.Update{State: v1alpha1.StatePending}},
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
	cases := map[string]struct {
		snapshot Snapshot
		screen   Screen
	}{
		"wide":   {middle(), Screen{Width: 120, Height: 40}},
		"narrow": {middle(), Screen{Width: 60, Height: 40}},
		"ascii":  {middle(), Screen{Width: 100, Height: 40, ASCII: true}},
		"many":   {many, Screen{Width: 100, Height: 20}},
		"begin":  {Snapshot{Now: now, Began: now, Maintenance: maintenance()}, Screen{Width: 80, Height: 24}},
		"done": {Snapshot{Now: now, Began: now.Add(-time.Hour), Maintenance: condition(maintenance(
			v1alpha1.MaintenanceNodeStatus{Name: "node-1", Stage: v1alpha1.StageDrainComplete}), v1alpha1.ConditionDrained, metav1.ConditionTrue)}, Screen{Width: 80, Height: 24}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			lines := View(tc.snapshot, tc.screen)
			if len(lines) >= tc.screen.Height {
				t.Errorf("%d lines do not fit on a screen of %d", len(lines), tc.screen.Height)
			}
			for _, line := range lines {
				if got := text.Cells(line.Text); got > tc.screen.Width {
					t.Errorf("%q takes %d columns of %d", line.Text, got, tc.screen.Width)
				}
			}
			golden(t, "view-"+name+".golden.txt", render(lines))
		})
	}
}

func TestNothingIsDrawnOfNothing(t *testing.T) {
	if lines := View(Snapshot{Now: now}, Screen{Width: 80, Height: 24}); lines != nil {
		t.Errorf("lines %v", lines)
	}
}

func TestPlainLines(t *testing.T) {
	var teller Teller
	var lines []string
	next := func(s Snapshot) { lines = append(lines, teller.Next(s)...) }
	node := func(stage v1alpha1.MaintenanceStage, pending int32) v1alpha1.MaintenanceNodeStatus {
		return v1alpha1.MaintenanceNodeStatus{Name: "node-1", Stage: stage, PodsPendingEvacuation: pending}
	}
	next(Snapshot{})
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StagePlanning, 0))})
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StageCordon, 0))})
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StageDrain, 2))})
	working := intercepting("shop/db-0", "node-1", "a.example.com", 0, "10 %")
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StageDrain, 2)), Pods: []Pod{working, {UID: "2", Name: "shop/web"}}})
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StageDrain, 2)), Pods: []Pod{working}})
	stuck := node(v1alpha1.StageDrain, 1)
	stuck.BlockingPods = []v1alpha1.BlockingPod{{Namespace: "shop", Name: "db-0", Reason: v1alpha1.BlockEvictionRefused, Message: "budget db"}}
	next(Snapshot{Maintenance: maintenance(stuck), Pods: []Pod{blocked("shop/db-0", "node-1"), evicted("shop/web", "node-1")}})
	next(Snapshot{Maintenance: maintenance(stuck), Pods: []Pod{blocked("shop/db-0", "node-1")}})
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StageDrainComplete, 0)), Pods: []Pod{evicted("shop/db-0", "node-1")}})
	next(Snapshot{Maintenance: maintenance(node(v1alpha1.StageDrainComplete, 0))})
	want := []string{
		"node/node-1 cordoned",
		"node/node-1 draining, 2 pods to go",
		"pod shop/db-0 waits for a.example.com 1/2: 10 %",
		"pod shop/db-0 is not let go: waiting for budget queue: The disruption budget queue needs 1 healthy pods and has 1 currently.",
		"pod shop/web evicted",
		"pod shop/db-0 is blocked: EvictionRefused: budget db",
		"pod shop/db-0 evicted",
		"node/node-1 drained",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestOutcome(t *testing.T) {
	drained := func() *v1alpha1.NodeMaintenance {
		return condition(maintenance(), v1alpha1.ConditionDrained, metav1.ConditionTrue)
	}
	changed := func(m *v1alpha1.NodeMaintenance, change func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
		change(m)
		return m
	}
	cases := map[string]struct {
		m    *v1alpha1.NodeMaintenance
		want Outcome
	}{
		"it is gone":                                {nil, Deleted},
		"it is being deleted":                       {changed(maintenance(), func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &metav1.Time{Time: now} }), Deleted},
		"it has just begun":                         {maintenance(), Running},
		"all pods have gone":                        {drained(), Drained},
		"the status is about an earlier generation": {changed(drained(), func(m *v1alpha1.NodeMaintenance) { m.Generation = 2 }), Running},
		"somebody stops it":                         {changed(drained(), func(m *v1alpha1.NodeMaintenance) { m.Spec.Drain = false }), Stopped},
		"no node is selected any more":              {condition(maintenance(), v1alpha1.ConditionNodesSelected, metav1.ConditionFalse), NoNodes},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := OutcomeOf(tc.m); got != tc.want {
				t.Errorf("want %d, have %d", tc.want, got)
			}
		})
	}
}

// golden compares with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
