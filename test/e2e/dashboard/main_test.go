//go:build unix

// Package dashboard uses `kubectl drawbridge dashboard` as a person does: in a real
// Chromium, on a real control plane, with a drain under way. `make browser` installs what
// is needed; without it, all tests of this package skip.
//
// The same tests take the pictures of the documentation (make screenshots):
// go test ./test/e2e/dashboard -args -screenshots=DIR. -every-screenshot=DIR takes one of every page.
package dashboard

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

// operators have the role that the chart makes for people on call.
const operators = "operators"

var (
	pictures = flag.String("screenshots", "", "folder that the pictures of the documentation are written to")
	every    = flag.String("every-screenshot", "", "folder for a picture of every page in every scheme and width, to compare revisions")

	kube   *cluster.Cluster
	inst   *manager.Installation
	admin  client.Client
	scheme = cluster.Scheme()
)

func TestMain(m *testing.M) {
	flag.Parse()
	if browser.Missing() != nil {
		os.Exit(m.Run()) // All tests skip, and none needs a cluster.
	}
	code := cluster.Main(m, cluster.Options{}, setup)
	if b, err := startBrowser(); err == nil {
		b.Close() // Its profile goes with it.
	}
	os.Exit(code)
}

func setup(c *cluster.Cluster) (err error) {
	kube = c
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if admin, err = client.New(c.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if inst, err = manager.Install(ctx, c, manager.InstallOptions{}); err != nil {
		return err
	}
	return inst.LetOperate(ctx, operators)
}

// startBrowser starts the browser that all tests of the package share.
var startBrowser = sync.OnceValues(browser.Start)

// newTab skips the test where there is no browser.
func newTab(t *testing.T) *browser.Tab {
	t.Helper()
	needBrowser(t)
	b, err := startBrowser()
	if err != nil {
		t.Fatal(err)
	}
	return b.Tab(t)
}

func needBrowser(t *testing.T) {
	t.Helper()
	if err := browser.Missing(); err != nil {
		t.Skip(err)
	}
}

// picture takes a picture for the documentation, if they are wanted.
func picture(tab *browser.Tab, name string) {
	if *pictures != "" {
		tab.Picture(filepath.Join(*pictures, name+".png"))
	}
}

// withoutGrace are the options of all managers here.
var withoutGrace = manager.Options{Change: func(o *app.Options) { o.Policy.StartupGrace = 0 }}

// startManager starts a manager of the test's own. The test must not be parallel.
func startManager(t *testing.T) *manager.Manager {
	t.Helper()
	return inst.ForTest(t, withoutGrace)
}

var shared manager.Shared

// shareManager makes the test parallel and lets it share a manager with the others. Tests
// with a manager of their own run before.
func shareManager(t *testing.T) {
	t.Helper()
	needBrowser(t)
	shared.ForTest(t, inst, withoutGrace)
}

func must[T any](value T, err error) func(testing.TB) T { return cluster.Must(value, err) }

var eventually, activeIs = cluster.Eventually, cluster.ActiveIs

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	cluster.Create(t, admin, objects...)
}
