//go:build unix

// Package forecast compares `kubectl drawbridge forecast` with what really happens: it makes
// workloads on a real control plane, asks for the forecast, drains the nodes, and measures.
//
// By default it compares three scenarios, and is lenient about their times, because CI may
// be busy. `make forecast-compare` compares ten, is strict, and writes the table of
// docs/forecast.md: go test ./test/e2e/forecast -args -forecast.scenarios=10
// -forecast.table=FILE.
package forecast

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	plugin "github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// patience is how long a test waits for what must happen. Drains here last up to two minutes
// on a machine that has nothing else to do.
const patience = 5 * time.Minute

// operators have the role that the chart makes for people on call.
const operators = "operators"

var (
	scenarios = flag.Int("forecast.scenarios", 3, "how many scenarios to compare, with the seeds 1, 2, ...")
	table     = flag.String("forecast.table", "", "Markdown file whose table is written, between its markers")

	kube   *cluster.Cluster
	inst   *manager.Installation
	admin  client.WithWatch
	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cluster.Main(m, cluster.Options{}, setup))
}

func setup(c *cluster.Cluster) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if admin, err = client.NewWithWatch(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if inst, err = manager.Install(ctx, c, manager.InstallOptions{}); err != nil {
		return err
	}
	return inst.LetOperate(ctx, operators)
}

// startManager starts the manager that all scenarios share, with the constants of
// production.
func startManager(t *testing.T) {
	t.Helper()
	inst.ForTest(t, manager.Options{Change: func(o *app.Options) { o.Policy.StartupGrace = 0 }})
}

// run runs the plugin as an operator, and returns what it prints.
func run(t *testing.T, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kubeconfig, err := kube.KubeconfigFile("olga", operators)
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &said}
	o.Size = func() (int, int, bool) { return 0, 0, false }
	o.System = inst.Namespace
	command := plugin.NewCommand(o)
	command.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, args...))
	if err := command.ExecuteContext(ctx); err != nil {
		t.Fatalf("%q: %s\n%s\n%s", args, plugin.Explain(err), said.String(), out.String())
	}
	return out.Bytes()
}

var eventually = cluster.Eventually

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	cluster.Create(t, admin, objects...)
}
