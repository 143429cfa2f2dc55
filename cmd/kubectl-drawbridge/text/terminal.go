package text

import (
	"fmt"
	"io"
	"strings"
)

// Tone is the colour of a line.
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
	// Color enables colours.
	Color bool

	drawn int
}

// paint has the codes of the tones (ECMA-48, SGR).
var paint = map[Tone]string{Good: "\x1b[32m", Bad: "\x1b[31m", Faint: "\x1b[2m"}

// Draw replaces what was drawn before, in one write so that nothing flickers.
func (t *Terminal) Draw(lines []Line) error {
	var b strings.Builder
	if t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", t.drawn)
	}
	for _, line := range lines {
		b.WriteString("\r\x1b[2K")
		if code := paint[line.Tone]; code != "" && t.Color && line.Text != "" {
			b.WriteString(code + line.Text + "\x1b[0m")
		} else {
			b.WriteString(line.Text)
		}
		b.WriteString("\n")
	}
	b.WriteString("\x1b[J")
	t.drawn = len(lines)
	_, err := io.WriteString(t.Out, b.String())
	return err
}
