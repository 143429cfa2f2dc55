package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Tones of a state, which are also classes of the stylesheet.
const (
	toneGood  = "good"
	toneBad   = "bad"
	toneBusy  = "busy"
	toneWait  = "wait"
	toneFaint = "faint"
)

// maintenanceRow is a maintenance in one line.
type maintenanceRow struct {
	ID, Name, Reason    string
	Stage, Tone         string
	Done, Total         int32
	Nodes, NodesDrained int32
	Blocked             int32
	Trouble             string
	Since               *moment
	rank                int
}

// drainRow is a node that somebody drains.
type drainRow struct {
	ID, Node    string
	State, Tone string
	// By are those who want it.
	By          []string
	Done, Total int
	Running     int
	Blocked     int
	// ETA is when the last interceptor expects to be done; Least says that others do not say.
	ETA   *moment
	Least bool
	// Holder is the pod that holds it up the longest, with why and since when.
	Holder, HolderHref, Why string
	Since                   *moment
	rank                    int
}

// nodeRow is any node.
type nodeRow struct {
	ID, Node, State, Tone string
	Pods                  int
	Act                   bool
}

// counts are the numbers at the top.
type counts struct{ Draining, Running, Blocked, Finished int }

func renderDrains(_ context.Context, r Request) (Content, error) {
	s := r.Snapshot
	draining, count := drainsOf(s)
	maintenances := maintenancesOf(s)
	fragments := []live.Fragment{fragment("counts", "counts", count)}
	var rows []live.Fragment
	shown, pages := paged(maintenances, r, "maintenances")
	for _, m := range shown {
		rows = append(rows, fragment(m.ID, "maintenance-row", m))
	}
	fragments = append(fragments, tableOf{ID: "maintenances", Title: "Maintenances", Heads: []string{"Name", "Stage", "Pods", "Nodes", "Blocked", "Problem", "Started"},
		Empty: "There is no NodeMaintenance. kubectl drawbridge drain creates one.", Pager: pages}.with(rows))
	rows = nil
	busy, pages := paged(draining, r, "drains")
	for _, d := range busy {
		rows = append(rows, fragment(d.ID, "drain-row", d))
	}
	fragments = append(fragments, tableOf{ID: "draining", Title: "Draining nodes", Heads: []string{"Node", "State", "Pods", "Requested by", "Expected end", "Waiting longest", "Since"},
		Empty: "No node is draining.", Pager: pages}.with(rows))
	rows = nil
	wanted := r.Query.Get("q")
	nodes, pages := paged(nodesOf(s, wanted, !r.ReadOnly && !r.Export), r, "page")
	for _, n := range nodes {
		rows = append(rows, fragment(n.ID, "node-row", n))
	}
	empty := "There is no node."
	if wanted != "" {
		empty = "No node has a name like that."
	}
	if !r.Export {
		fragments = append(fragments, fragment("filter", "filter", wanted))
	}
	fragments = append(fragments,
		tableOf{ID: "nodes", Title: "All nodes", Heads: []string{"Node", "State", "Pods", ""}, Empty: empty, Pager: pages}.with(rows))
	return Content{Title: "Drains", Section: SectionDrains, Fragments: fragments}, nil
}

// maintenancesOf are all maintenances, blocked ones first, then those that go on.
func maintenancesOf(s *state.Snapshot) []maintenanceRow {
	rows := make([]maintenanceRow, 0, len(s.Maintenances))
	for _, m := range s.Maintenances {
		p := m.Status.Progress
		row := maintenanceRow{
			ID: idOf("maintenance", m.Name), Name: m.Name, Reason: text.Clean(m.Spec.Reason),
			Done: p.PodsEvacuated, Total: p.PodsEvacuated + p.PodsPendingEvacuation, Nodes: p.Nodes, NodesDrained: p.NodesDrained, Blocked: p.PodsBlocking,
			Since: momentOf(m.CreationTimestamp.Time, s.Now),
		}
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionNodesSelected); c != nil && c.Status == "False" {
			row.Trouble = text.Clean(c.Message)
		}
		for _, n := range m.Status.Nodes {
			for _, b := range n.BlockingPods {
				if row.Trouble == "" {
					row.Trouble = text.Clean(b.Namespace + "/" + b.Name + ": " + cmp.Or(b.Message, string(b.Reason)))
				}
			}
		}
		row.Stage, row.Tone, row.rank = stageOf(m, row.Trouble != "" || row.Blocked > 0)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b maintenanceRow) int { return cmp.Compare(a.rank, b.rank) })
	return rows
}

// stageOf is a maintenance's stage in a word.
func stageOf(m *v1alpha1.NodeMaintenance, trouble bool) (stage, tone string, rank int) {
	switch {
	case m.DeletionTimestamp != nil:
		return "being released", toneFaint, 2
	case meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionDrained):
		return "drained", toneGood, 3
	case m.Status.Stage == v1alpha1.StageMaintenanceComplete:
		return "complete", toneGood, 3
	case trouble:
		return "blocked", toneBad, 0
	case m.Status.Stage == v1alpha1.StageDrain:
		return "draining", toneBusy, 1
	case m.Status.Stage == v1alpha1.StageCordon:
		return "cordoned", toneWait, 1
	case !m.Spec.Drain:
		return "not draining", toneFaint, 2
	default:
		return "planned", toneWait, 1
	}
}

// drainsOf are the nodes that somebody drains: with running requests, under a maintenance
// that drains, or with the mark of a drainer.
func drainsOf(s *state.Snapshot) ([]drainRow, counts) {
	progress := map[string]v1alpha1.MaintenanceNodeStatus{}
	by := map[string][]string{}
	for _, m := range s.Maintenances {
		for _, n := range m.Status.Nodes {
			progress[n.Name] = n
			if m.Spec.Drain && m.DeletionTimestamp == nil {
				by[n.Name] = append(by[n.Name], "maintenance "+m.Name)
			}
		}
	}
	count := counts{}
	var rows []drainRow
	for _, node := range s.Nodes {
		row := drainOf(s, node.Name)
		count.Running += row.Running
		count.Blocked += row.Blocked
		count.Finished += row.Done
		markers := translate.NodeMarkers(node)
		if row.Running == 0 && len(markers) == 0 && len(by[node.Name]) == 0 {
			continue
		}
		row.By = unique(append(append(slices.Clone(by[node.Name]), row.By...), markers...))
		if p, ok := progress[node.Name]; ok {
			row.Done, row.Total = int(p.PodsEvacuated), int(p.PodsEvacuated+p.PodsPendingEvacuation)
			row.Blocked = max(row.Blocked, int(p.PodsBlocking))
			if row.Holder == "" && len(p.BlockingPods) > 0 {
				b := p.BlockingPods[0]
				row.Holder, row.HolderHref, row.Why = b.Namespace+"/"+b.Name, podHref(b.Namespace, b.Name), text.Clean(cmp.Or(b.Message, string(b.Reason)))
			}
			if p.Stage == v1alpha1.StageDrainComplete {
				row.State, row.Tone, row.rank = "drained", toneGood, 3
			}
		}
		switch {
		case row.State != "":
		case row.Blocked > 0:
			row.State, row.Tone, row.rank = "blocked", toneBad, 0
		case row.Running > 0:
			row.State, row.Tone, row.rank = "draining", toneBusy, 1
		case len(by[node.Name]) > 0:
			row.State, row.Tone, row.rank = "draining", toneBusy, 1
		default:
			row.State, row.Tone, row.rank = "cordoned", toneWait, 2
		}
		count.Draining++
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b drainRow) int { return cmp.Compare(a.rank, b.rank) })
	return rows, count
}

// drainOf is what the requests say about a node.
func drainOf(s *state.Snapshot, node string) drainRow {
	row := drainRow{ID: idOf("drain", node), Node: node}
	var eta, since time.Time
	for _, p := range s.ProcessesByNode[node] {
		u := p.Observe()
		row.Total++
		if u.State == v1alpha1.StateEvicted || u.State == v1alpha1.StateCanceled {
			if u.State == v1alpha1.StateCanceled {
				row.Total--
				continue
			}
			row.Done++
			continue
		}
		row.Running++
		if u.State == v1alpha1.StateBlocked {
			row.Blocked++
		}
		for _, name := range p.Requesters() {
			if !strings.HasSuffix(name, "."+v1alpha1.MaintenanceRequesterSuffix) {
				row.By = append(row.By, name)
			}
		}
		switch {
		case u.ExpectedFinishTime.IsZero():
			row.Least = true
		case u.ExpectedFinishTime.After(eta):
			eta = u.ExpectedFinishTime
		}
		if turn := turnBegan(p); since.IsZero() || turn.Before(since) {
			since = turn
			pod, _ := p.Pod()
			row.Holder, row.HolderHref = pod.Namespace+"/"+pod.Name, podHref(pod.Namespace, pod.Name)
			row.Why = text.Clean(strings.Trim(u.Interceptor+": "+u.Message, ": "))
		}
	}
	row.ETA, row.Since = momentOf(eta, s.Now), momentOf(since, s.Now)
	return row
}

// turnBegan is since when the pod waits for who has its turn.
func turnBegan(p turns.Process) time.Time {
	for _, t := range p.Turns(nil) {
		if t.State == turns.Active && t.Since != nil {
			return *t.Since
		}
	}
	if p.Request != nil {
		return p.Request.CreationTimestamp.Time
	}
	return p.Eviction.CreationTimestamp.Time
}

// nodesOf are all nodes that have the wanted text in their names.
func nodesOf(s *state.Snapshot, wanted string, act bool) []nodeRow {
	var rows []nodeRow
	for _, n := range s.Nodes {
		if !strings.Contains(n.Name, wanted) {
			continue
		}
		row := nodeRow{ID: idOf("node", n.Name), Node: n.Name, State: "schedulable", Tone: toneGood, Pods: len(s.PodsByNode[n.Name]), Act: act}
		if n.Spec.Unschedulable {
			row.State, row.Tone = "cordoned", toneWait
		}
		rows = append(rows, row)
	}
	return rows
}

// unique removes repetitions, and keeps the order.
func unique(all []string) []string {
	var found []string
	for _, one := range all {
		if one = text.Clean(one); !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found
}
