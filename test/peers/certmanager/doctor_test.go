//go:build unix

package certmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	plugin "github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/doctor"
)

// The doctor reads the real Certificate, before and after a rotation of everything. The
// pods of the Deployment are kwok's, and the replicas that serve run beside them.
func TestTheDoctorIsContent(t *testing.T) {
	needCertManager(t)
	p := startPair(t, installed(t, byCertManager(values{"deployment": values{"enabled": true}})))
	content := func() {
		t.Helper()
		eventually(t, "the doctor to be content", func(ctx context.Context) error {
			report, err := consult(ctx, t)
			if err != nil {
				return err
			}
			about := []string{"webhook", "reachable", "certificate", "cert-manager", "permissions"}
			for _, check := range report.Checks {
				if !slices.Contains(about, check.Check) {
					continue
				}
				about = slices.DeleteFunc(about, func(name string) bool { return name == check.Check })
				if len(check.Findings) > 0 || check.Severity != doctor.OK {
					return fmt.Errorf("%s: %+v", check.Check, check)
				}
				if check.Check == "cert-manager" && !strings.Contains(check.Summary, "the Certificate is ready") {
					return fmt.Errorf("it says %q", check.Summary)
				}
			}
			if len(about) > 0 {
				return fmt.Errorf("it has not looked at %v", about)
			}
			return nil
		})
	}
	content()
	renewed(t, authority, authoritySecret)
	renewed(t, leaf, leafSecret)
	served(t, p)
	content()
}

// consult runs the command as an administrator does.
func consult(ctx context.Context, t *testing.T) (doctor.Report, error) {
	t.Helper()
	var out, stderr bytes.Buffer
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &stderr}
	o.Size = func() (int, int, bool) { return 0, 0, false }
	command := plugin.NewCommand(o)
	command.SetArgs([]string{"doctor", "--kubeconfig=" + kubeconfig(t), "--output=json"})
	failed := command.ExecuteContext(ctx)
	var report doctor.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return report, fmt.Errorf("read the report: %w: %s %w", err, out.String(), failed)
	}
	return report, nil
}
