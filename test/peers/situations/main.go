//go:build unix

package situations

import (
	"context"
	"flag"
	"strconv"
	"testing"
	"time"

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
