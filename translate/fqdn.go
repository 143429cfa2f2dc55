package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits of DNS names (RFC 1123, as Kubernetes checks them).
const (
	maxLabel  = validation.DNS1123LabelMaxLength
	maxDomain = validation.DNS1123SubdomainMaxLength
)

// IsFQDN reports whether name is a fully qualified domain name as the API wants
// it: at least two labels of 1 to 63 lower-case letters, digits and hyphens, 253
// characters in all, no trailing dot (statement 11).
func IsFQDN(name string) bool {
	if len(name) > maxDomain || !strings.Contains(name, ".") {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isLabel reports whether s is a DNS label. It does not use the library because that
// builds its messages on every call, and this runs for each eviction.
func isLabel(s string) bool {
	if len(s) == 0 || len(s) > maxLabel {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// shortHash is the first n hexadecimal digits of the SHA-256 of the parts. The
// parts are kept apart by a zero byte, so that ("a", "bc") and ("ab", "c") differ.
func shortHash(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:n]
}

// sanitize makes a DNS label out of s, or "" if nothing of it can be kept: what
// does not belong in a label becomes one hyphen, and the rest is cut at limit.
func sanitize(s string, limit int) string {
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() < limit; i++ {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-")
}

// shorten cuts s at limit characters (runes) and says so with three dots.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	runes := []rune(s)
	if len(runes) <= limit {
		return s
	}
	return string(runes[:limit-3]) + "..."
}
