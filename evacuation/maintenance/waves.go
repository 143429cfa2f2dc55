package maintenance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// WaveBegin says that a wave begins on a node.
type WaveBegin struct {
	translate.BegunWave
	// Left is how many pods of earlier waves are still there, because nobody waits for them
	// any longer.
	Left int32
}

// waves are the waves that begin now, by node, and when to decide again; zero if only an event
// can change the decision.
func (in *PlanInput) waves(next map[string]v1alpha1.MaintenanceStage) (map[string]WaveBegin, time.Time) {
	var begin map[string]WaveBegin
	var wake time.Time
	for i := range in.Nodes {
		n := &in.Nodes[i]
		var wave int
		var left int32
		var until time.Time
		switch {
		case n.Stage == v1alpha1.StageDrain && next[n.Name] == v1alpha1.StageDrain:
			wave, left, until = n.nextWave(in.Spec.Waves, in.Now)
		case n.Behind && next[n.Name] == v1alpha1.StageDrainComplete:
			// Else they would come back when the other maintenance ends.
			wave = len(in.Spec.Waves) // That of DaemonSets is the last one.
		}
		if !until.IsZero() {
			wake = earlier(until, wake)
		}
		if wave == 0 || n.Unconfirmed {
			continue
		}
		if begin == nil {
			begin = map[string]WaveBegin{}
		}
		// The annotation has seconds. A time that is cut off there must not be in it.
		begin[n.Name] = WaveBegin{translate.BegunWave{Name: in.Spec.Waves[wave-1].Name, Since: in.Now.Truncate(time.Second)}, left}
	}
	return begin, wake
}

// nextWave is translate.NextWave of the node.
func (n *NodeFacts) nextWave(waves []v1alpha1.MaintenanceWave, now time.Time) (next int, left int32, until time.Time) {
	return translate.NextWave(waves, n.Wave, n.WaveSince, n.Waves, now)
}

// later is how many pods wait, because their wave has not begun.
func (n *NodeFacts) later() int32 {
	var pods int32
	for i := n.Wave + 1; i < len(n.Waves); i++ {
		pods += n.Waves[i]
	}
	return pods
}

// countWaves counts the pods of a node that are to go by their waves.
func (c *Controller) countWaves(ctx context.Context, waves translate.Waves, facts *NodeFacts, pods []corev1.Pod) error {
	facts.Waves = make([]int32, len(waves)+1)
	for i := range pods {
		pod := &pods[i]
		if leaves, err := c.leaves(ctx, waves, pod); err != nil {
			return err
		} else if !leaves || facts.Lost && pod.DeletionTimestamp != nil {
			continue
		}
		wave, err := c.waveOf(ctx, waves, pod)
		if err != nil {
			return err
		}
		facts.Waves[wave]++
	}
	return nil
}

// waveOf is the position of a pod's wave. A namespace that the cache does not show yet is an
// error: without its labels the pod might go too early.
func (c *Controller) waveOf(ctx context.Context, waves translate.Waves, pod *corev1.Pod) (int, error) {
	if !waves.SeeNamespaces() {
		return waves.Of(pod, nil), nil
	}
	namespace := &corev1.Namespace{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: pod.Namespace}, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("get namespace %s: %w", pod.Namespace, err)
	}
	return waves.Of(pod, namespace.Labels), nil
}

// waits reports whether the pod's wave has not begun on its node.
func (c *Controller) waits(ctx context.Context, m *v1alpha1.NodeMaintenance, node *corev1.Node, pod *corev1.Pod) (bool, error) {
	waves := c.selectors.wavesOf(m)
	if len(waves) == 0 {
		return false, nil
	}
	wave, err := c.waveOf(ctx, waves, pod)
	return wave > waves.Position(translate.BegunWavesOf(node)[m.Name].Name), err
}

// wantedWave is the wave that a maintenance has begun last on a node, or begins now; the zero
// value if it has begun none. What has begun does not end: its evictions run.
func (c *Controller) wantedWave(m *v1alpha1.NodeMaintenance, node string, has translate.BegunWave) WaveBegin {
	waves := c.selectors.wavesOf(m)
	var wanted WaveBegin
	for _, w := range []WaveBegin{{BegunWave: has}, c.decided.wave(m.Name, node)} {
		if waves.Position(w.Name) > waves.Position(wanted.Name) {
			wanted = w
		}
	}
	return wanted
}
