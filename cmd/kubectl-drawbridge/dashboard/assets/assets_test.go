package assets

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files of others are those that were published: an edit by hand would be lost with the
// next version, and nobody would look for it there.
func TestFilesOfOthersAreUnchanged(t *testing.T) {
	sums, err := os.Open("vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sums.Close() }()
	var known []string
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		content, err := os.ReadFile(filepath.Join("vendor", name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is not the published file: see vendor/README.md", name)
		}
		known = append(known, name)
	}
	entries, err := os.ReadDir("vendor")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "README.md" && e.Name() != "SHA256SUMS" && !slices.Contains(known, e.Name()) {
			t.Errorf("%s has no checksum", e.Name())
		}
	}
}

var elsewhere = regexp.MustCompile(`url\([^#]|@import|https?://`)

// Our own files load nothing from elsewhere, and what a browser gets has the right type.
func TestOurFiles(t *testing.T) {
	server := httptest.NewServer(Handler())
	defer server.Close()
	for name, kind := range map[string]string{"style.css": "text/css", "dashboard.js": "text/javascript", "vendor/htmx.min.js": "text/javascript", "vendor/htmx-ext-sse.min.js": "text/javascript"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %d, %s", name, response.StatusCode, response.Header.Get("Content-Type"))
		}
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		content, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := elsewhere.Find(content); found != nil {
			t.Errorf("%s has %q", name, found)
		}
	}
}
