//go:build unix

package kubevirt

import (
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// underWay is a drain whose machine is on its way, and stays so until it is let go.
type underWay struct {
	namespace string
	nodes     []string
	pod       *corev1.Pod
	drain     *cluster.Program
	free      atomic.Bool
}

func beginDrain(t *testing.T) *underWay {
	t.Helper()
	w := &underWay{namespace: kube.Namespace(t)}
	w.nodes = addNodes(t, w.namespace, 2)
	guests.play(w.namespace, func(string) guest { return guest{held: !w.free.Load()} })
	w.pod = createMachine(t, w.namespace, "vm", w.nodes[0], "LiveMigrate")
	w.drain = startDrain(t, "alice", w.nodes[0])
	waitPhases(t, w.namespace, "Running")
	return w
}

// ends lets the machine go: the drain ends, after one migration, and nobody wants it away.
func (w *underWay) ends(t *testing.T) {
	t.Helper()
	w.free.Store(true)
	finishWell(t, w.drain, 2*patience)
	gone(t, w.pod)
	runsOn(t, w.namespace, "vm", w.nodes[1])
	unmarked(t, w.namespace, "vm")
	waitPhases(t, w.namespace, "Succeeded")
}

// Whoever follows the guide does so in a cluster that lives: KubeVirt's eviction webhooks
// go, or come back, while a machine is on its way.
func TestHandOver(t *testing.T) {
	needKubeVirt(t)
	startManager(t)
	t.Run("the webhooks go in the middle of a drain", func(t *testing.T) {
		asksTheirs(t, true)
		w := beginDrain(t)
		withoutTheirs(t)
		evictUntil(t, w.pod, interceptor)
		w.ends(t)
	})
	t.Run("the webhooks go, and the drain is canceled", func(t *testing.T) {
		if !takesBack(t) {
			t.Skip("this KubeVirt keeps its mark; TestSideBySide shows what becomes of it")
		}
		asksTheirs(t, true)
		w := beginDrain(t)
		withoutTheirs(t)
		callOff(t, w.drain, w.nodes[0])
		calledOff(t, false, w.pod, w.nodes, nil)
	})
	t.Run("the webhooks come back in the middle of a drain", func(t *testing.T) {
		putBack := withoutTheirs(t)
		w := beginDrain(t)
		putBack()
		asksTheirs(t, true)
		w.ends(t)
	})
}
