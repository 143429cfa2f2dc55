// Package hack checks the scripts of this folder.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// No answer must not look like a good one.
func TestVulncheckSaysWhenTheDatabaseCannotBeReached(t *testing.T) {
	command := exec.CommandContext(t.Context(), "./vulncheck.sh", "./hack/sbom")
	command.Env = append(os.Environ(), "VULNDB=https://localhost:9") // Nothing listens on the discard port.
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("want exit code 2, have %v:\n%s", err, out)
	}
	if !strings.Contains(string(out), "(https://localhost:9) cannot be reached, so NOTHING was checked") {
		t.Errorf("it does not say so:\n%s", out)
	}
}
