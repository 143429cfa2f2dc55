// Package text makes what others have written fit to be printed.
package text

import (
	"strings"
	"unicode"
)

// Clean takes out what would move the cursor: messages come from programs that are
// not ours.
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
