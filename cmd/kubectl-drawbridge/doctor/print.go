package doctor

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// narrowest is the smallest width for wrapping.
const narrowest = 60

// Print writes a report for people, in lines of at most width columns if words allow.
func Print(out io.Writer, r Report, width int) error {
	w := &printer{out: out, width: max(width, narrowest)}
	where := "Drawbridge in namespace " + r.Namespace
	if r.Kubernetes != "" {
		where += ", Kubernetes " + r.Kubernetes
	}
	w.linef("%s\n\n", where)
	longest := 0
	for _, c := range r.Checks {
		longest = max(longest, len(c.Check))
	}
	for _, c := range r.Checks {
		w.linef("%s\n", strings.TrimRight(fmt.Sprintf("%-4s  %-*s  %s", c.Severity, longest, c.Check, c.Summary), " "))
		for _, f := range c.Findings {
			text := f.What
			if f.Object != "" {
				text = f.Object + ": " + text
			}
			w.wrap("      ", "- ", text)
			w.wrap("        ", "> ", f.Do)
		}
	}
	w.linef("\n%s\n", total(r))
	return w.err
}

func total(r Report) string {
	return fmt.Sprintf("%s: %d OK, %d skipped, %d with warnings, %d failed",
		text.Counted(len(r.Checks), "check"), r.Count(OK), r.Count(Skip), r.Count(Warn), r.Count(Fail))
}

type printer struct {
	out   io.Writer
	width int
	err   error
}

func (w *printer) linef(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format, args...)
	}
}

// wrap wraps a text at spaces; further lines are indented to the first word.
func (w *printer) wrap(indent, mark, text string) {
	prefix := indent + mark
	line := prefix
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > w.width {
			w.linef("%s\n", line)
			line, empty = indent+strings.Repeat(" ", len(mark)), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	w.linef("%s\n", line)
}
