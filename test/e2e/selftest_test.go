//go:build unix

package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
)

// What helm test runs passes under the manager's account while a manager runs, and says
// what is wrong when none does.
func TestTheSelfTestTellsWhetherTheInstallationWorks(t *testing.T) {
	conf, err := kube.ConfigForServiceAccount(t.Context(), inst.Namespace, inst.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	o := app.SelfTestOptions{WebhookConfiguration: inst.Release, Namespace: "default", Timeout: 2 * time.Minute}
	m := startManager(t, nil)
	var out bytes.Buffer
	if err := app.SelfTest(t.Context(), conf, o, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "ok: "); n != 3 {
		t.Errorf("%d steps are ok, want 3:\n%s", n, &out)
	}
	m.StopFor(t)
	o.Timeout = 30 * time.Second // All of it passes.
	err = app.SelfTest(t.Context(), conf, o, &out)
	if err == nil || !strings.Contains(err.Error(), "the webhook answers") || !strings.Contains(err.Error(), "docs/runbooks/webhook-down.md") {
		t.Errorf("without a manager: %v", err)
	}
}
