package site

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// The files of others are those that were published: an edit by hand would be lost with the next version.
func TestFilesOfOthersAreUnchanged(t *testing.T) {
	count := 0
	for line := range strings.Lines(source(t, "assets/vendor/SHA256SUMS")) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if sum := sha256.Sum256([]byte(source(t, "assets/vendor/"+name))); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is not the published file: see assets/vendor/README.md", name)
		}
		count++
	}
	if count != 2 {
		t.Errorf("%d files have a checksum, want 2", count)
	}
}
