//go:build unix

// Package kubectl puts kubectl drain into the situations of test/peers/situations: the kubectl of the
// control plane, so it needs no checkout.
package kubectl

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

// peerName is the name that `make test-peers` has for it.
const peerName = "kubectl"

// alice drains nodes, and may do nothing else.
const (
	alice    = "alice"
	drainers = "drainers"
)

var kube *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		kube = w.Kube
		return kube.LetDrain(ctx, drainers)
	}))
}

func TestSituations(t *testing.T) {
	if kube == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: kube, Drainer: &drainer{running: map[string]*cluster.Program{}}, User: alice,
		Record: records.Record{Peer: peerName, Program: "kubectl drain", Version: cluster.Must(cluster.Version())(t)},
	}
	suite.Run(t)
}

// drainer is a person with a kubectl for each node.
type drainer struct {
	mu      sync.Mutex
	running map[string]*cluster.Program // By node: the last one.
}

func (*drainer) Place(t *testing.T) situations.Place { return situations.NewPlace(t, kube) }

func (d *drainer) Drain(t *testing.T, node string) {
	t.Helper()
	// It goes on after a part of the test that started it, and ends with the test.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	program := cluster.Must(kube.StartKubectl(ctx, cluster.KubectlOptions{User: alice, Groups: []string{drainers}},
		"drain", node, "--ignore-daemonsets", "--force"))(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[node] = program
}

func (d *drainer) of(node string) *cluster.Program {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running[node]
}

func (d *drainer) interrupt(t *testing.T, node string) {
	t.Helper()
	if err := d.of(node).Interrupt(); err != nil {
		t.Fatal(err)
	}
	<-d.of(node).Done()
}

// CallOff is Ctrl-C and an uncordon.
func (d *drainer) CallOff(t *testing.T, node string) {
	t.Helper()
	d.interrupt(t, node)
	result := cluster.Must(kube.Kubectl(t.Context(), cluster.KubectlOptions{User: alice, Groups: []string{drainers}}, "uncordon", node))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
}

// Restart is Ctrl-C and the same command again.
func (d *drainer) Restart(t *testing.T, node string) {
	t.Helper()
	d.interrupt(t, node)
	d.Drain(t, node)
}

func (d *drainer) Ended(_ context.Context, node string) (bool, string) {
	select {
	case <-d.of(node).Done():
	default:
		return false, last(d.lines(node))
	}
	result, err := d.of(node).Wait()
	return err == nil && result.ExitCode == 0, fmt.Sprintf("exit code %d: %s", result.ExitCode, last(d.lines(node)))
}

// Says is what kubectl prints on its standard error, each line once.
func (d *drainer) Says(_ context.Context, node string) ([]string, error) {
	lines := slices.DeleteFunc(d.lines(node), func(line string) bool { return strings.HasPrefix(line, "Warning: ") })
	return lines[max(0, len(lines)-1):], nil
}

func (d *drainer) lines(node string) (lines []string) {
	for _, line := range d.of(node).Lines() {
		if line.Stderr {
			lines = append(lines, line.Text)
		}
	}
	return lines
}

func last(lines []string) string {
	if len(lines) == 0 {
		return "nothing"
	}
	return lines[len(lines)-1]
}
