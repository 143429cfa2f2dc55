// Package text fits text into the room there is for it.
package text

import "slices"

// Cut shortens s to at most n characters, n being at least 3. Dots stand for what is
// left out.
func Cut(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(slices.Concat(runes[:n-3], []rune("...")))
	}
	return s
}
