package text

import (
	"slices"
	"strings"
)

// Column is a column of a Grid.
type Column struct {
	Heading string
	// Share of the width that the column keeps while others give way, in percent; 0 if it
	// is never cut.
	Share int
	// Prose is cut at its end, names in their middle. Prose in the last column gets what
	// the names leave, and is left out if that is less than its share or its heading.
	Prose bool
	// Wish is the share, in percent, that prose in the last column gets if names can give
	// way; 0 for its share.
	Wish int
}

// Row is a line of a Grid. There is a cell for each column.
type Row struct {
	Cells []string
	Tone  Tone
}

// Grid aligns columns to their widest cell, within the width of a terminal.
type Grid struct {
	Columns []Column
	// Gap is how many spaces are between two columns, and Indent before the first.
	Gap, Indent int
	// Width of the terminal in columns; 0 if there is none, and then nothing is cut.
	Width int
	// Wrap continues what does not fit into the last column below, and loses nothing of it.
	Wrap bool
}

// Lines are the heading and the rows.
func (g Grid) Lines(rows []Row) []Line {
	heading := Row{Tone: Faint}
	for _, c := range g.Columns {
		heading.Cells = append(heading.Cells, c.Heading)
	}
	rows = append([]Row{heading}, rows...)
	widths := g.widths(rows)
	lines := make([]Line, 0, len(rows))
	for _, row := range rows {
		for _, text := range g.row(row.Cells, widths) {
			if g.Width > 0 {
				text = Cut(text, g.Width)
			}
			lines = append(lines, Line{Text: strings.TrimRight(text, " "), Tone: row.Tone})
		}
	}
	return lines
}

// row lays out a row: one line, or more if the last cell is continued.
func (g Grid) row(cells []string, widths []int) []string {
	text := strings.Repeat(" ", g.Indent)
	last := len(widths) - 1
	for i, width := range widths[:last] {
		if g.Columns[i].Prose {
			text += Fit(cells[i], width)
		} else {
			text += FitMiddle(cells[i], width)
		}
		text += strings.Repeat(" ", g.Gap)
	}
	switch {
	case g.Wrap && g.Width > 0 && last == len(g.Columns)-1:
		lines := Wrap(cells[last], widths[last])
		before := text
		for i := range lines {
			lines[i] = before + lines[i]
			before = strings.Repeat(" ", Cells(text))
		}
		return lines
	case g.Columns[last].Prose:
		return []string{text + Cut(cells[last], widths[last])}
	default:
		return []string{text + CutMiddle(cells[last], widths[last])}
	}
}

// widths are those of the columns. The last one is missing if there is no room for it.
func (g Grid) widths(rows []Row) []int {
	natural, floors := make([]int, len(g.Columns)), make([]int, len(g.Columns))
	for i, c := range g.Columns {
		floors[i] = g.Width * c.Share / 100
		for _, row := range rows {
			natural[i] = max(natural[i], Cells(row.Cells[i]))
		}
	}
	last := len(natural) - 1
	if g.Width <= 0 || g.taken(natural) <= g.Width {
		return natural
	}
	if g.Columns[last].Prose {
		// Names get their widths whatever the messages are: these change all the time, and
		// columns that move cannot be read.
		least := min(max(floors[last], Cells(g.Columns[last].Heading)), natural[last])
		wish := min(max(least, g.Width*g.Columns[last].Wish/100), natural[last])
		names := g.shrink(natural[:last], floors, g.Width-g.Gap-wish)
		if rest := g.Width - g.Gap - g.taken(names); rest >= least {
			return append(names, min(rest, natural[last]))
		}
		if !g.Wrap {
			natural = natural[:last]
		}
	}
	widths := g.shrink(natural, floors, g.Width)
	if g.taken(widths) <= g.Width {
		return widths
	}
	return g.shrink(widths, slices.Repeat([]int{1}, len(widths)), g.Width)
}

// taken is how wide a line of these columns is.
func (g Grid) taken(widths []int) int {
	n := g.Indent + g.Gap*(len(widths)-1)
	for _, w := range widths {
		n += w
	}
	return n
}

// shrink takes from the widest columns first until a line has that width, but from none
// what is below its floor.
func (g Grid) shrink(widths, floors []int, width int) []int {
	widths = slices.Clone(widths)
	for over := g.taken(widths) - width; over > 0; over-- {
		widest := -1
		for i, w := range widths {
			if g.Columns[i].Share > 0 && w > floors[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}
