package text

import (
	"fmt"
	"io"
	"strings"
)

// Tone is the color of a line. It repeats what the words of the line say.
type Tone int

// Tones.
const (
	Plain Tone = iota
	Good
	Bad
	Faint
)

// Line is one line of a view, without a line feed.
type Line struct {
	Text string
	Tone Tone
}

// Terminal redraws views in place.
type Terminal struct {
	// Out is the terminal.
	Out io.Writer
	// Color enables colors.
	Color bool

	drawn int
}

// paint has the codes of the tones (ECMA-48, SGR).
var paint = map[Tone]string{Good: "\x1b[32m", Bad: "\x1b[31m", Faint: "\x1b[2m"}

// painted is the text of a line, with the codes of its tone if there are colors.
func (l Line) painted(color bool) string {
	if code := paint[l.Tone]; code != "" && color && l.Text != "" {
		return code + l.Text + "\x1b[0m"
	}
	return l.Text
}

// Draw replaces what was drawn before, in one write so that nothing flickers.
func (t *Terminal) Draw(lines []Line) error {
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line.painted(t.Color) + "\n")
	}
	b.WriteString("\x1b[J")
	t.drawn = len(lines)
	_, err := io.WriteString(t.Out, b.String())
	return err
}

// Print prints lines one after the other, and leaves the cursor alone.
func Print(out io.Writer, lines []Line, color bool) error {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(line.painted(color) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
