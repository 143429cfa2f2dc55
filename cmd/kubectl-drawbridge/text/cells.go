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

// prefix is the beginning of a text, at most n columns of it.
func prefix(text string, n int) string {
	used := 0
	for i, r := range text {
		if used += runeCells(r); used > n {
			return text[:i]
		}
	}
	return text
}

// Cut shortens a text to at most n columns.
func Cut(text string, n int) string {
	switch {
	case Cells(text) <= n:
		return text
	case n <= 0:
		return ""
	default:
		return prefix(text, n-1) + ellipsis
	}
}

// CutMiddle shortens a text to at most n columns and keeps both ends: the names of a
// workload's pods differ in their last characters.
func CutMiddle(text string, n int) string {
	if Cells(text) <= n || n <= 0 {
		return Cut(text, n)
	}
	tail := (n - 1) / 2
	front := prefix(text, n-1-tail)
	runes := []rune(text)
	from := len(runes)
	for used := 0; from > 0; from-- {
		if used += runeCells(runes[from-1]); used > tail {
			break
		}
	}
	for from < len(runes) && runeCells(runes[from]) == 0 {
		from++ // It belongs to a character that is left out.
	}
	return front + ellipsis + string(runes[from:])
}

// Fit makes a text take exactly n columns.
func Fit(text string, n int) string {
	return pad(Cut(text, n), n)
}

// FitMiddle is Fit, with both ends of what is too long.
func FitMiddle(text string, n int) string {
	return pad(CutMiddle(text, n), n)
}

func pad(text string, n int) string {
	return text + strings.Repeat(" ", max(0, n-Cells(text)))
}

// ASCII puts another mark where texts were cut, for terminals that cannot show ours.
func ASCII(text string) string { return strings.ReplaceAll(text, ellipsis, "~") }

// Wrap breaks a text into lines of at most n columns, at least 2, between words where that
// is possible. There is always one.
func Wrap(text string, n int) []string {
	n = max(n, 2)
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && Cells(line)+1+Cells(word) <= n {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for Cells(word) > n {
			part := prefix(word, n)
			lines, word = append(lines, part), word[len(part):]
		}
		line = word
	}
	return append(lines, line)
}
