package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// screen is the available space.
type screen struct {
	// Width and Height in columns and lines, at least minWidth and minHeight.
	Width, Height int
	// ASCII leaves out block characters.
	ASCII bool
}

// The smallest supported screen; on a smaller one lines are cut.
const (
	minWidth  = 40
	minHeight = 8
)

// maxBar is the width of a node's bar, in columns, on a screen that is wide enough.
const maxBar = 24

// view draws a snapshot.
func view(s snapshot, screen screen) []text.Line {
	wide, high := max(screen.Width, minWidth), max(screen.Height, minHeight)
	if s.Maintenance == nil {
		return nil
	}
	lines := []text.Line{title(s, wide)}
	if s.Trouble != "" {
		lines = append(lines, text.Line{Text: "  " + s.Trouble, Tone: text.Bad})
	}
	for _, node := range s.Maintenance.Status.Nodes {
		if waiting := s.waiting(node); waiting != "" {
			lines = append(lines, text.Line{Text: "  " + node.Name + ": " + waiting, Tone: text.Faint})
			break // The others wait for the same.
		}
	}
	extra := len(lines) - 1
	pods := inFlight(s.Pods)
	nodes := unfinishedFirst(s.Maintenance.Status.Nodes)

	// Title, a blank line, the heading of the pods and the cursor's line; pods get at
	// most half of the rest.
	room := max(2, high-4-extra)
	forPods := min(len(pods), room/2)
	forNodes := min(len(nodes), room-forPods)
	forPods = min(len(pods), room-forNodes)

	name := 8
	for _, n := range nodes {
		name = max(name, text.Cells(n.Name))
	}
	name = min(name, wide/3)
	for _, node := range limited(nodes, forNodes) {
		lines = append(lines, nodeLine(node, name, min(maxBar, wide/5), screen.ASCII))
	}
	if hidden := int(s.Maintenance.Status.Progress.Nodes) - min(len(nodes), fitting(len(nodes), forNodes)); hidden > 0 {
		lines = append(lines, text.Line{Text: fmt.Sprintf("  ... and %d more nodes", hidden), Tone: text.Faint})
	}
	if len(pods) > 0 {
		lines = append(lines, text.Line{})
		lines = append(lines, podLines(pods, forPods, s.Now, wide)...)
	}
	for i := range lines {
		lines[i].Text = strings.TrimRight(text.Cut(lines[i].Text, screen.Width), " ")
		if screen.ASCII {
			lines[i].Text = text.ASCII(lines[i].Text)
		}
	}
	return lines
}

// fitting is how many of n items fit into the room: one line less if some are left out,
// for a line that says so.
func fitting(n, room int) int {
	if n <= room {
		return n
	}
	return max(0, room-1)
}

func limited[T any](items []T, room int) []T { return items[:fitting(len(items), room)] }

// title is the overall progress. A long name gives way to it.
func title(s snapshot, wide int) text.Line {
	m := s.Maintenance
	p := m.Status.Progress
	line := fmt.Sprintf("  %s  %d of %d nodes drained", cmp.Or(string(m.Status.Stage), string(v1alpha1.StagePlanning)), p.NodesDrained, p.Nodes)
	if p.PodsPendingEvacuation > 0 {
		line += fmt.Sprintf(", %s to go", text.Counted(p.PodsPendingEvacuation, "pod"))
	}
	tone := text.Plain
	if p.PodsBlocking > 0 {
		line += fmt.Sprintf(", %d blocked", p.PodsBlocking)
		tone = text.Bad
	}
	if outcomeOf(m) == drained {
		tone = text.Good
	}
	line += "  " + duration.HumanDuration(s.Now.Sub(s.Began).Round(time.Second))
	return text.Line{Text: text.CutMiddle(m.Name, max(wide-text.Cells(line), wide/6)) + line, Tone: tone}
}

// unfinishedFirst sorts nodes: draining, waiting, done; each by name.
func unfinishedFirst(nodes []v1alpha1.MaintenanceNodeStatus) []v1alpha1.MaintenanceNodeStatus {
	stages := v1alpha1.MaintenanceStages()
	drained := slices.Index(stages, v1alpha1.StageDrainComplete)
	rank := func(n v1alpha1.MaintenanceNodeStatus) int {
		at := slices.Index(stages, n.Stage)
		switch {
		case at < 0:
			return at
		case at < drained:
			return drained - at // The further on, the earlier.
		default:
			return drained + 1
		}
	}
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b v1alpha1.MaintenanceNodeStatus) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
	})
	return sorted
}

// nodeLine is a node with its bar. What is blocked comes first: the end may be cut.
func nodeLine(n v1alpha1.MaintenanceNodeStatus, name, bar int, ascii bool) text.Line {
	total := n.PodsEvacuated + n.PodsPendingEvacuation
	done := n.Stage == v1alpha1.StageDrainComplete || n.Stage == v1alpha1.StageMaintenanceComplete
	var line text.Line
	var said []string
	if n.PodsBlocking > 0 {
		said = append(said, fmt.Sprintf("%d blocked", n.PodsBlocking))
	}
	switch {
	case done:
		said, line.Tone = append(said, "drained"), text.Good
	case n.Stage == v1alpha1.StageDrain:
		said = append(said, "draining")
		if n.Wave != "" {
			said = append(said, "wave "+n.Wave)
		}
	case n.Stage == v1alpha1.StageCordon:
		said = append(said, "cordoned")
	default:
		said = append(said, "planned")
	}
	if n.PodsEvacuating > 0 {
		said = append(said, fmt.Sprintf("%d on the way", n.PodsEvacuating))
	}
	if n.PodsInLaterWaves > 0 {
		said = append(said, fmt.Sprintf("%d in later waves", n.PodsInLaterWaves))
	}
	if n.PodsBlocking > 0 {
		line.Tone = text.Bad
	}
	line.Text = fmt.Sprintf("  %s %s %7s  %s", text.FitMiddle(n.Name, name), progressBar(n.PodsEvacuated, total, bar, done, ascii), fmt.Sprintf("%d/%d", n.PodsEvacuated, total), strings.Join(said, ", "))
	return line
}

// progressBar is that many columns wide.
func progressBar(done, total int32, bar int, all, ascii bool) string {
	full, empty := "█", "░"
	if ascii {
		full, empty = "#", "-"
	}
	filled := bar
	if !all && total > 0 {
		filled = int(int64(bar) * int64(done) / int64(total))
	} else if !all {
		filled = 0
	}
	return strings.Repeat(full, filled) + strings.Repeat(empty, bar-filled)
}

// podLines is the table of the pods that are being evacuated.
func podLines(pods []movingPod, room int, now time.Time, wide int) []text.Line {
	shown := limited(pods, max(room, 1))
	rows := make([]text.Row, 0, len(shown))
	for _, p := range shown {
		row := text.Row{Cells: []string{p.Name, p.Node, turnOf(p), etaOf(p, now), text.Hurried(text.Clean(p.Message), p.Deadline, now)}}
		if p.State == v1alpha1.StateBlocked {
			row.Tone = text.Bad
		}
		rows = append(rows, row)
	}
	lines := text.Grid{
		Columns: []text.Column{
			{Heading: "POD", Share: 28}, {Heading: "NODE", Share: 12}, {Heading: "INTERCEPTOR", Share: 25},
			{Heading: "ETA   "}, // As wide as any, so that what follows does not move.
			{Heading: "MESSAGE", Share: 15, Wish: 20, Prose: true},
		},
		Gap: 2, Indent: 2, Width: wide,
	}.Lines(rows)
	if hidden := len(pods) - len(shown); hidden > 0 {
		lines = append(lines, text.Line{Text: fmt.Sprintf("  ... and %d more pods", hidden), Tone: text.Faint})
	}
	return lines
}

// turnOf says whose turn it is, and whether it is blocked: a message may have no room.
func turnOf(p movingPod) string {
	if p.Interceptor == "" {
		return "requested"
	}
	who := p.Interceptor
	if who == v1alpha1.ImperativeEvictionInterceptor {
		who = "eviction"
	}
	if p.State == v1alpha1.StateBlocked {
		who += " blocked"
	}
	return fmt.Sprintf("%s %d/%d", who, p.Position, p.Total)
}

// etaOf is the remaining time that the interceptor reports.
func etaOf(p movingPod, now time.Time) string {
	if p.ExpectedFinishTime.IsZero() {
		return "-"
	}
	if left := p.ExpectedFinishTime.Sub(now); left > 0 {
		return duration.HumanDuration(left.Round(time.Second))
	}
	return "late"
}
