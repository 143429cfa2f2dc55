package app

import (
	"fmt"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// printTree prints the status as a tree. Lines are cut to the width of a terminal, but not with
// -o wide.
func (o *statusCommand) printTree(f statusFacts, now time.Time) error {
	s := f.status()
	if s.Node != nil {
		o.printNode(s.Node)
	}
	nodes, hidden := treeOf(f, o.all)
	if len(s.Maintenances) == 0 && len(nodes) == 0 {
		fmt.Fprintln(o.Out, "No maintenance, and no eviction in progress.")
		return nil
	}
	var lines []text.Line
	if len(s.Maintenances) > 0 {
		lines = o.maintenanceLines(s.Maintenances, now)
	}
	if len(nodes) > 0 {
		if len(lines) > 0 {
			lines = append(lines, text.Line{})
		}
		lines = append(lines, o.treeLines(nodes, now)...)
	}
	if hidden > 0 {
		lines = append(lines, text.Line{Text: "... and " + text.Counted(hidden, "node") + " without evictions in progress", Tone: text.Faint})
	}
	if s.Finished > 0 && !o.all {
		lines = append(lines, text.Line{}, text.Line{Text: text.Counted(s.Finished, "eviction") + " finished recently; --all shows them."})
	}
	return o.PrintLines(lines)
}

// width is how wide lines may be; 0 for any width.
func (o *statusCommand) width() int {
	if o.Output == cli.FormatWide {
		return 0
	}
	return o.Width()
}

func (o *statusCommand) maintenanceLines(maintenances []MaintenanceState, now time.Time) []text.Line {
	grid := text.Grid{
		Columns: []text.Column{
			{Heading: "MAINTENANCE", Share: 25}, {Heading: "STAGE"}, {Heading: "NODES"}, {Heading: "DRAINED"}, {Heading: "PODS"},
			{Heading: "MOVING"}, {Heading: "BLOCKED"}, {Heading: "AGE"}, {Heading: "REASON", Share: 8, Prose: true},
		},
		Gap: 2, Width: o.width(),
	}
	rows := make([]text.Row, 0, len(maintenances))
	for _, m := range maintenances {
		p := m.Progress
		row := text.Row{Cells: []string{
			m.Name, m.Stage, number(p.Nodes), number(p.NodesDrained), number(p.PodsPendingEvacuation), number(p.PodsEvacuating), number(p.PodsBlocking),
			cli.Age(now, m.Created), text.Clean(m.Reason),
		}}
		if p.PodsBlocking > 0 {
			row.Tone = text.Bad
		}
		rows = append(rows, row)
	}
	lines := grid.Lines(rows)
	for _, m := range maintenances {
		if m.Trouble != "" {
			line := "  " + m.Name + ": " + text.Clean(m.Trouble)
			if grid.Width > 0 {
				line = text.Cut(line, grid.Width)
			}
			lines = append(lines, text.Line{Text: line, Tone: text.Bad})
		}
	}
	return lines
}

func (o *statusCommand) treeLines(nodes []branch, now time.Time) []text.Line {
	wide := o.Output == cli.FormatWide
	grid := text.Grid{Gap: 2, Width: o.width(), Columns: []text.Column{{Heading: "NAME", Share: 32}, {Heading: "STATE"}, {Heading: "SINCE"}}}
	if wide {
		grid.Columns = append(grid.Columns, text.Column{Heading: "ETA"}, text.Column{Heading: "DEADLINE"}, text.Column{Heading: "REQUESTERS"})
	}
	grid.Columns = append(grid.Columns, text.Column{Heading: "MESSAGE", Share: 30, Prose: true})
	var rows []text.Row
	tree := twigs{"├─ ", "└─ ", "│  "}
	if o.ASCIIOnly() {
		tree = twigs{"|- ", "`- ", "|  "}
	}
	for _, node := range nodes {
		rows = append(rows, tree.rows(node, "", "", wide, now)...)
	}
	return grid.Lines(rows)
}

// twigs are what is in front of a branch, of the last one, and of what is below another one.
type twigs struct{ branch, last, through string }

// rows are those of a branch and of all that is below it. First is in front of the branch, and
// rest in front of what is below.
func (t twigs) rows(b branch, first, rest string, wide bool, now time.Time) []text.Row {
	row := text.Row{Cells: []string{first + b.name, b.state, cli.Age(now, b.since)}, Tone: b.tone}
	if wide {
		row.Cells = append(row.Cells, left(now, b.eta), left(now, b.deadline), strings.Join(b.requesters, ","), b.message)
	} else {
		row.Cells = append(row.Cells, text.Hurried(b.message, b.deadline, now))
	}
	rows := []text.Row{row}
	for i, below := range b.below {
		if i == len(b.below)-1 {
			rows = append(rows, t.rows(below, rest+t.last, rest+strings.Repeat(" ", text.Cells(t.last)), wide, now)...)
		} else {
			rows = append(rows, t.rows(below, rest+t.branch, rest+t.through, wide, now)...)
		}
	}
	return rows
}
