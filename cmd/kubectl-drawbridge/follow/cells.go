package follow

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// ellipsis stands where a text was cut.
const ellipsis = "…"

// runeCells is how many columns of a terminal a character takes: 2 for wide ones, 0
// for those that stand on the one before.
func runeCells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100:
		if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
			return 2
		}
	}
	return 1
}

// cells is how many columns a text takes.
func cells(text string) int {
	n := 0
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

// cut shortens a text to at most n columns.
func cut(text string, n int) string {
	if cells(text) <= n {
		return text
	}
	if n <= 0 {
		return ""
	}
	var b strings.Builder
	used := 0
	for _, r := range text {
		if used+runeCells(r) > n-1 {
			break
		}
		used += runeCells(r)
		b.WriteRune(r)
	}
	return b.String() + ellipsis
}

// fit makes a text take exactly n columns.
func fit(text string, n int) string {
	text = cut(text, n)
	return text + strings.Repeat(" ", max(0, n-cells(text)))
}
