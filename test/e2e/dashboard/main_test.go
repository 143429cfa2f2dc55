//go:build unix

// Package dashboard uses `kubectl drawbridge dashboard` as a person does: in a real
// Chromium, on a real control plane, with a drain under way. `make browser` installs what
// is needed; without it, all tests of this package skip.
//
// The same tests take the pictures of the documentation (make screenshots):
// go test ./test/e2e/dashboard -args -screenshots=DIR.
package dashboard

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
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

	kube   *cluster.Cluster
	inst   *manager.Installation
	admin  client.Client
	scheme = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
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
	err = admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: operators},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: inst.Release + "-operator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: operators}},
	})
	if err != nil {
		return fmt.Errorf("bind the role of operators: %w", err)
	}
	return nil
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

// startManager starts a manager of the test's own. The test must not be parallel.
func startManager(t *testing.T) *manager.Manager {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m, err := inst.Start(ctx, manager.Options{Change: func(o *app.Options) { o.Policy.StartupGrace = 0 }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopManager(t, m) })
	return m
}

func stopManager(t *testing.T, m *manager.Manager) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop the manager: %v", err)
	}
}

var shared struct {
	sync.Mutex
	manager *manager.Manager
	users   int
}

// shareManager makes the test parallel and lets it share a manager with the others. Tests
// with a manager of their own run before.
func shareManager(t *testing.T) {
	t.Helper()
	needBrowser(t)
	t.Parallel()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		m, err := inst.Start(ctx, manager.Options{Change: func(o *app.Options) { o.Policy.StartupGrace = 0 }})
		if err != nil {
			t.Fatal(err)
		}
		shared.manager = m
	}
	shared.users++
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			stopManager(t, shared.manager)
		}
	})
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	cluster.Eventually(t, what, check)
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}
