//go:build unix

package install_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// previousChart is the package of the release before this one; see testdata/README.md.
const previousChart = "testdata/chart-previous.tgz"

// From the chart of the release before to this one, in the middle of a drain, with the
// command of docs/operations/upgrade.md. The manager first runs with the arguments and the
// permissions of the chart before.
func TestUpgradeFromThePreviousReleaseInTheMiddleOfADrain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), manifestsTimeout)
	defer cancel()
	ownDefinitions(t)
	port, err := manager.FreePort(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// The longest that an API server waits: a busy machine holds a webhook up.
	const timeout = 30
	before := install.Options{Kubeconfig: kubeconfig(t), Chart: previousChart, Values: values{
		"deployment": values{"nodeSelector": noNode},
		"webhook":    values{"url": "https://localhost:" + strconv.Itoa(port), "failurePolicy": "Fail", "timeoutSeconds": timeout},
	}}
	if err := install.Run(ctx, before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstallIfThere(t) })
	if err := install.WaitReady(ctx, kube.Config()); err != nil {
		t.Fatal(err)
	}
	inst := &manager.Installation{
		Cluster: kube, Release: install.DefaultRelease, Namespace: install.DefaultNamespace, ServiceAccount: install.DefaultRelease, WebhookPort: port,
	}
	old := versionOfTheRelease(ctx, t)
	process := startManager(t, inst)
	waitTimeout(t, timeout)
	cluster.Eventually(t, "the API server to reach the manager", func(context.Context) error { return reached(ctx, inst) })

	held := startHeldDrain(ctx, t)
	asker := held.ask(ctx)
	asker.more(t, 20)
	if err := shell(ctx, t, commandOfUpgrade(t)); err != nil {
		t.Fatal(err)
	}
	waitTimeout(t, timeout)
	asker.more(t, 50)
	asker.stop(t, "during the upgrade from "+old)
	if now := versionOfTheRelease(ctx, t); now == old {
		t.Errorf("the release is %s, before and after the upgrade", now)
	}
	held.replaceManager(t, func() {
		stopManager(t, process)
		startManager(t, inst)
		cluster.Eventually(t, "the API server to reach the manager", func(context.Context) error { return reached(ctx, inst) })
	})
	held.finish(ctx, t)
}

// commandOfUpgrade is that of the page, which is an item of a list.
func commandOfUpgrade(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(readPage(t, "operations/upgrade.md")) {
		if _, rest, found := strings.Cut(line, "`helm upgrade "); found {
			command, _, _ := strings.Cut(rest, "`")
			return "helm upgrade " + command
		}
	}
	t.Fatal("docs/operations/upgrade.md has no command helm upgrade")
	return ""
}

// versionOfTheRelease is that of the chart, as the Deployment says.
func versionOfTheRelease(ctx context.Context, t *testing.T) string {
	t.Helper()
	deployment, err := kube.Client().AppsV1().Deployments(install.DefaultNamespace).Get(ctx, install.DefaultRelease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return deployment.Labels["helm.sh/chart"]
}
