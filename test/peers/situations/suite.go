//go:build unix

package situations

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
)

// recordVariable names the folder in which a whole run is recorded, if it is set.
const recordVariable = "DRAWBRIDGE_PEER_RECORD"

// Drainer is a program that empties nodes, for as long as a cluster lives.
type Drainer interface {
	// Place gives a test a namespace and two nodes of its own, or more.
	Place(t *testing.T) Place
	// Drain asks for a node to be emptied. What that leaves behind goes with the test.
	Drain(t *testing.T, node string)
	// CallOff takes that back. It is not called if there is a [Suite.NeverCallsOff].
	CallOff(t *testing.T, node string)
	// Restart ends the program while it works on a node, and has it go on.
	Restart(t *testing.T, node string)
	// Ended says whether it is done with a node, and what it says if it is not.
	Ended(ctx context.Context, node string) (bool, string)
	// Says is what its user is told about a node: the last lines, events or conditions.
	Says(ctx context.Context, node string) ([]string, error)
}

// Place is where the pods of a test run.
type Place struct {
	Namespace string
	// Selector chooses its nodes.
	Selector map[string]string
	// Change makes a pod one that the program evicts. May be nil.
	Change func(*builder.PodWrapper)
}

// nodeLabel is on the nodes of a test; its value is the test's namespace.
const nodeLabel = "situations.example.com/test"

// NewPlace makes a place with two nodes that were not there before. Each change is made to both.
func NewPlace(t *testing.T, kube *cluster.Cluster, change ...func(*corev1.Node)) Place {
	t.Helper()
	p := Place{Namespace: kube.Namespace(t)}
	p.Selector = map[string]string{nodeLabel: p.Namespace}
	change = append(change, func(n *corev1.Node) { n.Labels[nodeLabel] = p.Namespace })
	if _, err := kube.AddNodes(t.Context(), 2, change...); err != nil {
		t.Fatal(err)
	}
	return p
}

// Suite is one program in all situations.
type Suite struct {
	Kube    *cluster.Cluster
	Drainer Drainer
	// User is the program's user name.
	User string
	// Enough refusals show that a pod stays. Default: 3.
	Enough int
	// LeavesTolerant says that the program does not call for pods that tolerate its marker.
	LeavesTolerant bool
	// Surges says that it makes room for a single replica itself.
	Surges bool
	// Declines says whether the program has found that it cannot empty a node. It is for those that
	// ask budgets before they begin; nil for all others.
	Declines func(node string) bool
	// GivesUp says whether the program has ended with an error. It is for those that may do so when
	// the pod is gone; nil for all others.
	GivesUp func(node string) bool
	// NeverCallsOff says why it cannot be told to stop; empty if it can.
	NeverCallsOff string
	// Record has the peer, the program and its version. The rest is added.
	Record records.Record

	client       client.Client // It may do everything.
	installation *manager.Installation
	manager      *manager.Process
	workers      map[time.Duration]*peer.Worker
	alone        []*records.Result // Without Drawbridge, as ten; nil are those that were not seen.
}

// Without puts the program into all situations. Drawbridge must not be installed.
func (s *Suite) Without(t *testing.T) {
	t.Helper()
	s.alone = s.all(t)
}

// With does the same beside Drawbridge, whose manager it runs until the test ends, and writes the record.
func (s *Suite) With(t *testing.T, installation *manager.Installation) {
	t.Helper()
	s.installation, s.workers = installation, map[time.Duration]*peer.Worker{}
	s.startManager(t)
	t.Cleanup(func() {
		if err := s.manager.Kill(); err != nil {
			t.Error(err)
		}
	})
	for _, one := range ten {
		if one.needs > 0 && s.workers[one.needs] == nil {
			s.workers[one.needs] = peer.NewWorker(one.needs)
			if err := s.workers[one.needs].Start(context.WithoutCancel(t.Context()), s.Kube, interceptorName(one.needs)); err != nil {
				t.Fatal(err)
			}
		}
	}
	together := s.all(t)
	folder := os.Getenv(recordVariable)
	if t.Failed() || folder == "" || len(s.alone) < len(ten) || slices.Contains(s.alone, nil) || slices.Contains(together, nil) {
		return
	}
	s.Record.Situations = nil
	for i, one := range ten {
		s.Record.Situations = append(s.Record.Situations, records.Situation{Name: one.name, Without: *s.alone[i], With: *together[i]})
	}
	version, err := cluster.Version()
	if err != nil {
		t.Fatal(err)
	}
	s.Record.Date, s.Record.Kubernetes = time.Now().UTC().Format(time.DateOnly), version
	if err := s.Record.Write(folder); err != nil {
		t.Fatal(err)
	}
}

// startManager starts the manager of Drawbridge, which must not run.
func (s *Suite) startManager(t *testing.T) {
	t.Helper()
	m, err := s.installation.StartProcess(t.Context(), manager.ProcessOptions{Args: []string{"--marker-debounce=3s"}})
	if err != nil {
		t.Fatal(err)
	}
	s.manager = m
}

// interceptorName is the name of the interceptor that needs so long.
func interceptorName(needs time.Duration) string {
	return fmt.Sprintf("needs-%.0fs.example.com", needs.Seconds())
}

// all runs those that may run beside others at the same time, and then the others. A result is nil
// if the situation was not chosen by -test.run, or failed.
func (s *Suite) all(t *testing.T) []*records.Result {
	t.Helper()
	if s.Enough == 0 {
		s.Enough = 3
	}
	s.client = cluster.Must(client.New(s.Kube.Config(), client.Options{Scheme: cluster.Scheme()}))(t)
	results := make([]*records.Result, len(ten))
	t.Run("together", func(t *testing.T) {
		for i, one := range ten {
			if !one.alone {
				t.Run(one.name, func(t *testing.T) {
					t.Parallel()
					results[i] = s.play(t, one)
				})
			}
		}
	})
	for i, one := range ten {
		if one.alone {
			t.Run(one.name, func(t *testing.T) { results[i] = s.play(t, one) })
		}
	}
	for i, one := range ten {
		if results[i] != nil {
			t.Logf("%s: %s (%s)", one.name, results[i], strings.Join(results[i].Says, " / "))
		}
	}
	return results
}
