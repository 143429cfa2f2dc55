// Package text prepares texts for printing and draws lines on a terminal.
package text

import (
	"fmt"
	"strings"
	"unicode"
)

// Clean removes characters that would move the cursor: messages come from other
// programs.
func Clean(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, text))
}

// Counted is a number with its noun, which takes an s.
func Counted[N int | int32](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
