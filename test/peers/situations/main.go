//go:build unix

package situations

import (
	"context"
	"flag"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
)

// World is a control plane with a peer.
type World struct {
	Kube   *cluster.Cluster
	Client client.Client // It may do everything.
	*peer.Programs
}

// Install creates what the peer's manifests have and a program beside the cluster needs, and waits
// until its kinds are served. Each change is made to every object before.
func (w *World) Install(ctx context.Context, change ...func(*unstructured.Unstructured)) error {
	objects, err := peer.Objects(w.Folder)
	if err != nil {
		return err
	}
	for _, object := range objects {
		for _, f := range change {
			f(object)
		}
	}
	if err := peer.Apply(ctx, w.Client, objects, peer.NotWorkload); err != nil {
		return err
	}
	return peer.WaitServed(ctx, w.Client)
}

// Single is a peer that is one program for all nodes: what a [Drainer] of it has in common.
type Single struct {
	*World
	// Launch starts the program.
	Launch func(context.Context) (*peer.Running, error)
	// Running is the program, the last that was started.
	Running *peer.Running
}

// Begin starts the program.
func (s *Single) Begin(ctx context.Context) (err error) {
	s.Running, err = s.Launch(ctx)
	return err
}

// Restart kills the program and starts it again, whatever the node is.
func (s *Single) Restart(t *testing.T, _ string) {
	t.Helper()
	if err := s.Running.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Main runs the tests of a package whose peer is to be tested, on a control plane on which start has
// started it; otherwise every test has to skip itself. It returns the exit code.
func Main(m *testing.M, name string, start func(context.Context, *World) error) int {
	flag.Parse()
	if !peer.Chosen(name) {
		return m.Run() // Every test is skipped.
	}
	// All situations wait for the program most of the time.
	utilruntime.Must(flag.Set("test.parallel", strconv.Itoa(len(ten))))
	return cluster.Main(m, cluster.Options{RequestLog: true}, func(c *cluster.Cluster) (err error) {
		w := &World{Kube: c, Programs: &peer.Programs{Cluster: c, Folder: peer.Folder(name)}}
		if w.Client, err = client.New(c.Config(), client.Options{Scheme: cluster.Scheme()}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		return start(ctx, w)
	})
}

// Run puts the peer into all situations without Drawbridge, then installs the chart, and does it again.
func (s *Suite) Run(t *testing.T) {
	t.Helper()
	t.Run("without Drawbridge", s.Without)
	t.Run("with Drawbridge", func(t *testing.T) {
		s.With(t, cluster.Must(manager.Install(t.Context(), s.Kube, manager.InstallOptions{}))(t))
	})
}
