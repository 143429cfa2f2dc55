// Package hack checks the scripts of this folder.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// vulncheck looks at a small program of this repository and returns the exit code.
func vulncheck(t *testing.T, database string) (int, string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "./vulncheck.sh", "./hack/sbom")
	command.Env = append(os.Environ(), "VULNDB="+database)
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// No answer must not look like a good one.
func TestVulncheckSaysWhenTheDatabaseCannotBeReached(t *testing.T) {
	code, out := vulncheck(t, "https://localhost:9") // Nothing listens on the discard port.
	if code != 2 {
		t.Errorf("want exit code 2, have %d:\n%s", code, out)
	}
	if !strings.Contains(out, "(https://localhost:9) cannot be reached, so NOTHING was checked") {
		t.Errorf("it does not say so:\n%s", out)
	}
}

// The module golang.org/x/vulndb is a folder of reports like this one.
const report = `{"schema_version": "1.3.1", "id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
"summary": "A test", "details": "A test.", "affected": [{"package": {"name": "stdlib", "ecosystem": "Go"},
"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}], "ecosystem_specific": {"imports": [{"path": "PACKAGE", "symbols": ["SYMBOL"]}]}}],
"database_specific": {"url": "https://example.com/GO-2026-0001"}}`

func TestVulncheckReadsAFolderOfReports(t *testing.T) {
	cases := map[string]struct {
		imported, symbol string
		want             int
		says             string
	}{
		"a function that the program calls":         {"debug/buildinfo", "ReadFile", 1, "GO-2026-0001"},
		"a function that it does not, is no matter": {"net/url", "JoinPath", 0, "your code is affected by 0 vulnerabilities"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "GO-2026-0001.json"), []byte(strings.NewReplacer("PACKAGE", tc.imported, "SYMBOL", tc.symbol).Replace(report)), 0o600); err != nil {
				t.Fatal(err)
			}
			code, out := vulncheck(t, "file://"+folder)
			if code != tc.want || !strings.Contains(strings.ToLower(out), strings.ToLower(tc.says)) {
				t.Errorf("exit code %d, want %d, and %q in:\n%s", code, tc.want, tc.says, out)
			}
		})
	}
}
