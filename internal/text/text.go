// Package text shortens texts.
package text

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Cut shortens s to at most n characters, n being at least 3. Dots mark what is cut.
func Cut(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(slices.Concat(runes[:n-3], []rune("...")))
	}
	return s
}

// Few names at most some of several, at least one, and counts the rest.
func Few(names []string, most int) string {
	few := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		few += fmt.Sprintf(" and %d more", more)
	}
	return few
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

// Tail returns the end of data, at most n bytes of it, as valid UTF-8. It begins with a
// whole character, and what is no UTF-8 is replaced by �, within the n bytes.
func Tail(data []byte, n int) string {
	// A replacement is longer than what it replaces, so the end is cut twice.
	valid := strings.ToValidUTF8(string(last(data, n)), "\uFFFD")
	return string(last([]byte(valid), n))
}

// last returns the last n bytes of data, or less, so that it does not begin in the
// middle of a character.
func last(data []byte, n int) []byte {
	if len(data) <= n {
		return data
	}
	data = data[len(data)-n:]
	for i := range min(utf8.UTFMax, len(data)) {
		if utf8.RuneStart(data[i]) {
			return data[i:]
		}
	}
	return data
}
