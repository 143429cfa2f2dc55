package text

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// ellipsis marks where a text was cut.
const ellipsis = "…"

// runeCells is how many columns of a terminal a character takes: 2 for wide ones, 0 for
// combining ones.
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

// Cells is how many columns a text takes.
func Cells(text string) int {
	n := 0
	for _, r := range text {
		n += runeCells(r)
	}
	return n
}

// Cut shortens a text to at most n columns.
func Cut(text string, n int) string {
	if Cells(text) <= n {
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

// Fit makes a text take exactly n columns.
func Fit(text string, n int) string {
	text = Cut(text, n)
	return text + strings.Repeat(" ", max(0, n-Cells(text)))
}
