//go:build unix

package situations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Kubectl is a [Drainer]: a person, or a program, with a kubectl drain for each node.
type Kubectl struct {
	Kube *cluster.Cluster
	// As says who drains.
	As cluster.KubectlOptions
	// Here makes the place of a test. Default: [NewPlace].
	Here func(*testing.T) Place
	// Args are those for a node. Default: "drain NODE --ignore-daemonsets --force".
	Args func(t *testing.T, node string) []string

	mu      sync.Mutex
	running map[string]*cluster.Program // By node: the last one.
}

// Place has two nodes, or is what Here makes.
func (k *Kubectl) Place(t *testing.T) Place {
	t.Helper()
	if k.Here != nil {
		return k.Here(t)
	}
	return NewPlace(t, k.Kube)
}

// Drain starts kubectl. It ends with the test, or before.
func (k *Kubectl) Drain(t *testing.T, node string) {
	t.Helper()
	args := []string{"drain", node, "--ignore-daemonsets", "--force"}
	if k.Args != nil {
		args = k.Args(t, node)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	program := cluster.Must(k.Kube.StartKubectl(ctx, k.As, args...))(t)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running == nil {
		k.running = map[string]*cluster.Program{}
	}
	k.running[node] = program
}

func (k *Kubectl) of(node string) *cluster.Program {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[node]
}

func (k *Kubectl) interrupt(t *testing.T, node string) {
	t.Helper()
	if err := k.of(node).Interrupt(); err != nil {
		t.Fatal(err)
	}
	<-k.of(node).Done()
}

// CallOff is Ctrl-C and an uncordon.
func (k *Kubectl) CallOff(t *testing.T, node string) {
	t.Helper()
	k.interrupt(t, node)
	result := cluster.Must(k.Kube.Kubectl(t.Context(), k.As, "uncordon", node))(t)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
}

// Restart is Ctrl-C and the same command again.
func (k *Kubectl) Restart(t *testing.T, node string) {
	t.Helper()
	k.interrupt(t, node)
	k.Drain(t, node)
}

// Ended says whether kubectl has ended well.
func (k *Kubectl) Ended(_ context.Context, node string) (bool, string) {
	said := "it has said nothing"
	if lines := k.errors(node); len(lines) > 0 {
		said = lines[len(lines)-1]
	}
	select {
	case <-k.of(node).Done():
	default:
		return false, said
	}
	result, err := k.of(node).Wait()
	return err == nil && result.ExitCode == 0, fmt.Sprintf("exit code %d: %s", result.ExitCode, said)
}

// GaveUp says whether kubectl has ended with an error.
func (k *Kubectl) GaveUp(node string) bool {
	select {
	case <-k.of(node).Done():
	default:
		return false
	}
	result, err := k.of(node).Wait()
	return err != nil || result.ExitCode != 0
}

// Says is the last line on its standard error that is no warning.
func (k *Kubectl) Says(_ context.Context, node string) ([]string, error) {
	lines := slices.DeleteFunc(k.errors(node), func(line string) bool { return strings.HasPrefix(line, "Warning: ") })
	return lines[max(0, len(lines)-1):], nil
}

func (k *Kubectl) errors(node string) (lines []string) {
	for _, line := range k.of(node).Lines() {
		if line.Stderr {
			lines = append(lines, line.Text)
		}
	}
	return lines
}
