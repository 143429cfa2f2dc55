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
	Waiting     int
	// Bar has the pods by state.
	Bar podBar
	// ETA is when the last interceptor expects to be done; Least says that others do not say.
	ETA   *moment
	Least bool
	// held is what has waited longest, and stuck the same of what is blocked.
	held
	stuck held
	// Draining says that somebody drains it, Cordoned that it takes no pods.
	Draining, Cordoned bool
	rank               int
}

// held is a pod that waits, with why and since when; empty if none does.
type held struct {
	Pod, Href, Why string
	Since          *moment
	since          time.Time
}

// nodeRow is any node.
type nodeRow struct {
	ID, Node, State, Tone string
	Pods                  int
	// Bar is nil where no pod was asked to leave.
	Bar *podBar
	Act bool
}

// rankInPeace is that of nodes that nobody drains.
const rankInPeace = 4

// counts are the numbers at the top.
type counts struct{ Draining, Running, Waiting, Blocked, Finished int }

func renderDrains(_ context.Context, r Request) (Content, error) {
	s := r.Snapshot
	f := nodeFilterOf(r.Query)
	every, count := drainsOf(s)
	act := !r.ReadOnly && !r.Export
	found := f.Of(every)
	var draining []drainRow
	wanted := map[string]bool{}
	for _, d := range found {
		wanted[d.Node] = true
		if d.Draining {
			draining = append(draining, d)
		}
	}
	fragments := []live.Fragment{
		fragment("lead", "lead", leadOf(every, count, act)), fragment("counts", "counts", cardsOf(count, r.Query, f)), unknownFragment(f.Unknown...),
	}
	if !r.Export {
		fragments = append(fragments, fragment("filter", "filter", f))
	}
	var rows []live.Fragment
	busy, pages := paged(draining, r, "drains")
	for _, d := range busy {
		rows = append(rows, fragment(d.ID, "drain-row", d))
	}
	fragments = append(fragments, tableOf{ID: "draining", Title: "Draining nodes", Heads: []string{"Node", "State", "Pods", "Requested by", "Expected end", "Waiting longest", "Since"},
		Empty: f.empty("No node is draining. kubectl drawbridge drain NODE drains one.", "No draining node matches."), Pager: pages}.with(rows))
	rows = nil
	shown, pages := paged(maintenancesOf(s, f, wanted), r, "maintenances")
	for _, m := range shown {
		rows = append(rows, fragment(m.ID, "maintenance-row", m))
	}
	fragments = append(fragments, tableOf{ID: "maintenances", Title: "Maintenances", Heads: []string{"Name", "Stage", "Pods", "Nodes", "Blocked", "Problem", "Started"},
		Empty: f.empty("There is no NodeMaintenance. kubectl drawbridge drain creates one.", "No NodeMaintenance matches."), Pager: pages}.with(rows))
	rows = nil
	nodes, pages := paged(nodesOf(s, f, found, act), r, "page")
	for _, n := range nodes {
		rows = append(rows, fragment(n.ID, "node-row", n))
	}
	fragments = append(fragments, tableOf{ID: "nodes", Title: "All nodes", Heads: []string{"Node", "State", "Pods", "Have left", ""},
		Empty: f.empty("There is no node.", "No node matches. Show all nodes, or look for another name or state."), Pager: pages}.with(rows))
	return Content{Title: "Drains", Section: SectionDrains, Fragments: fragments}, nil
}

// empty is what is said if nothing is there, or if nothing matches.
func (f nodeFilter) empty(none, unmatched string) string {
	if f.Active() {
		return unmatched
	}
	return none
}

// maintenancesOf are the maintenances that are wanted, blocked ones first, then those that go on.
func maintenancesOf(s *state.Snapshot, f nodeFilter, wanted map[string]bool) []maintenanceRow {
	rows := make([]maintenanceRow, 0, len(s.Maintenances))
	for _, m := range s.Maintenances {
		if !f.Touches(m, wanted) {
			continue
		}
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

// drainsOf are all nodes. Somebody drains those with running requests, those under a maintenance
// that drains, and those with the mark of a drainer.
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
		row.Cordoned = node.Spec.Unschedulable
		count.Running += row.Running
		count.Waiting += row.Waiting
		count.Finished += row.Done
		markers := translate.NodeMarkers(node)
		if row.Running == 0 && len(markers) == 0 && len(by[node.Name]) == 0 {
			row.rank = rankInPeace
			rows = append(rows, row)
			continue
		}
		row.Draining = true
		row.By = unique(append(append(slices.Clone(by[node.Name]), row.By...), markers...))
		if p, ok := progress[node.Name]; ok {
			row.under(p)
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
		count.Blocked += row.Blocked
		if row.State != "drained" {
			count.Draining++
		}
		rows = append(rows, row)
	}
	return rows, count
}

// under adds what a maintenance says of the node.
func (d *drainRow) under(p v1alpha1.MaintenanceNodeStatus) {
	d.Done, d.Total = int(p.PodsEvacuated), int(p.PodsEvacuated+p.PodsPendingEvacuation)
	d.Blocked = max(d.Blocked, int(p.PodsBlocking))
	d.Bar = podBarOf(d.Done, d.Running, d.Waiting, d.Blocked, d.Total)
	for _, b := range p.BlockingPods {
		one := held{Pod: b.Namespace + "/" + b.Name, Href: podHref(b.Namespace, b.Name), Why: text.Clean(cmp.Or(b.Message, string(b.Reason)))}
		if d.Pod == "" {
			d.held = one
		}
		if d.stuck.Pod == "" {
			d.stuck = one
		}
	}
}

// drainOf is what the requests say about a node.
func drainOf(s *state.Snapshot, node string) drainRow {
	row := drainRow{ID: idOf("drain", node), Node: node}
	var eta time.Time
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
		if u.Interceptor == v1alpha1.BudgetInterceptor {
			row.Waiting++
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
		pod, _ := p.Pod()
		one := held{Pod: pod.Namespace + "/" + pod.Name, Href: podHref(pod.Namespace, pod.Name), Why: text.Clean(strings.Trim(u.Interceptor+": "+u.Message, ": ")), since: turnBegan(p)}
		one.Since = momentOf(one.since, s.Now)
		if row.Pod == "" || one.since.Before(row.since) {
			row.held = one
		}
		if u.State != v1alpha1.StateBlocked {
			continue
		}
		row.Blocked++
		if row.stuck.Pod == "" || one.since.Before(row.stuck.since) {
			row.stuck = one
		}
	}
	row.ETA = momentOf(eta, s.Now)
	row.Bar = podBarOf(row.Done, row.Running, row.Waiting, row.Blocked, row.Total)
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

// nodesOf are the nodes that are wanted: in the order of their names, or of how long they wait.
func nodesOf(s *state.Snapshot, f nodeFilter, found []drainRow, act bool) []nodeRow {
	rows := make([]nodeRow, 0, len(found))
	for _, d := range found {
		row := nodeRow{ID: idOf("node", d.Node), Node: d.Node, State: "schedulable", Tone: toneGood, Pods: len(s.PodsByNode[d.Node]), Act: act}
		if d.Cordoned {
			row.State, row.Tone = "cordoned", toneWait
		}
		if d.Bar.Total > 0 {
			row.Bar = &d.Bar
		}
		rows = append(rows, row)
	}
	if f.Sort == "" {
		slices.SortFunc(rows, func(a, b nodeRow) int { return strings.Compare(a.Node, b.Node) })
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
