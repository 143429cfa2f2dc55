// Package text shortens texts.
package text

import (
	"slices"
	"strings"
)

// Cut shortens s to at most n characters, n being at least 3. Dots mark what is cut.
func Cut(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(slices.Concat(runes[:n-3], []rune("...")))
	}
	return s
}

// OneLine makes of s one line of at most n characters, n being at least 1. White space
// becomes one space, and a … stands for what is left out.
func OneLine(s string, n int) string {
	line := []rune(strings.Join(strings.Fields(s), " "))
	if len(line) > n {
		line = append(line[:n-1], '…')
	}
	return string(line)
}
