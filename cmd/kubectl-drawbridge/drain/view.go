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

// bar is the width of a node's bar, in columns.
const bar = 24

// view draws a snapshot.
func view(s snapshot, screen screen) []text.Line {
	wide, high := max(screen.Width, minWidth), max(screen.Height, minHeight)
	if s.Maintenance == nil {
		return nil
	}
	lines := []text.Line{title(s)}
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

	name := columnWidth(nodes, func(n v1alpha1.MaintenanceNodeStatus) string { return n.Name }, 8, wide/3)
	for _, node := range limited(nodes, forNodes) {
		lines = append(lines, nodeLine(node, name, screen.ASCII))
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

// title is the overall progress.
func title(s snapshot) text.Line {
	m := s.Maintenance
	p := m.Status.Progress
	line := fmt.Sprintf("%s  %s  %d of %d nodes drained", m.Name, cmp.Or(string(m.Status.Stage), string(v1alpha1.StagePlanning)), p.NodesDrained, p.Nodes)
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
	return text.Line{Text: line + "  " + duration.HumanDuration(s.Now.Sub(s.Began).Round(time.Second)), Tone: tone}
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

func columnWidth[T any](items []T, words func(T) string, least, most int) int {
	w := least
	for _, item := range items {
		w = max(w, text.Cells(words(item)))
	}
	return min(w, most)
}

// nodeLine is a node with its bar.
func nodeLine(n v1alpha1.MaintenanceNodeStatus, name int, ascii bool) text.Line {
	total := n.PodsEvacuated + n.PodsPendingEvacuation
	done := n.Stage == v1alpha1.StageDrainComplete || n.Stage == v1alpha1.StageMaintenanceComplete
	line := text.Line{Text: fmt.Sprintf("  %s %s %7s  ", text.Fit(n.Name, name), progressBar(n.PodsEvacuated, total, done, ascii), fmt.Sprintf("%d/%d", n.PodsEvacuated, total))}
	switch {
	case done:
		line.Text, line.Tone = line.Text+"drained", text.Good
	case n.Stage == v1alpha1.StageDrain:
		line.Text += "draining"
		if n.Wave != "" {
			line.Text += ", wave " + n.Wave
		}
	case n.Stage == v1alpha1.StageCordon:
		line.Text += "cordoned"
	default:
		line.Text += "planned"
	}
	if n.PodsEvacuating > 0 {
		line.Text += fmt.Sprintf(", %d on the way", n.PodsEvacuating)
	}
	if n.PodsInLaterWaves > 0 {
		line.Text += fmt.Sprintf(", %d in later waves", n.PodsInLaterWaves)
	}
	if n.PodsBlocking > 0 {
		line.Text, line.Tone = line.Text+fmt.Sprintf(", %d blocked", n.PodsBlocking), text.Bad
	}
	return line
}

func progressBar(done, total int32, all, ascii bool) string {
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
	const gap, eta = 2, 6
	shown := limited(pods, max(room, 1))
	name := columnWidth(shown, func(p movingPod) string { return p.Name }, 8, wide*3/10)
	node := columnWidth(shown, func(p movingPod) string { return p.Node }, 4, wide/6)
	turn := columnWidth(shown, turnOf, 11, wide*3/10)
	said := wide - 2 - name - node - turn - eta - 4*gap
	if said < len("MESSAGE") {
		said = 0
	}
	row := func(values ...string) string {
		space := strings.Repeat(" ", gap)
		return "  " + text.Fit(values[0], name) + space + text.Fit(values[1], node) + space + text.Fit(values[2], turn) + space + text.Fit(values[3], eta) + space + text.Cut(values[4], said)
	}
	lines := []text.Line{{Text: row("POD", "NODE", "INTERCEPTOR", "ETA", "MESSAGE"), Tone: text.Faint}}
	for _, p := range shown {
		line := text.Line{Text: row(p.Name, p.Node, turnOf(p), etaOf(p, now), text.Hurried(text.Clean(p.Message), p.Deadline, now))}
		if p.State == v1alpha1.StateBlocked {
			line.Tone = text.Bad
		}
		lines = append(lines, line)
	}
	if hidden := len(pods) - len(shown); hidden > 0 {
		lines = append(lines, text.Line{Text: fmt.Sprintf("  ... and %d more pods", hidden), Tone: text.Faint})
	}
	return lines
}

// turnOf says whose turn it is.
func turnOf(p movingPod) string {
	if p.Interceptor == "" {
		return "requested"
	}
	who := p.Interceptor
	if who == v1alpha1.ImperativeEvictionInterceptor {
		who = "eviction"
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
