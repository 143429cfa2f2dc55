package page

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// order is that of a maintenance on a node.
type order struct {
	from       []v1alpha1.MaintenanceWave
	waves      translate.Waves
	namespaces map[string]map[string]string
	// begun is the position of the wave that has begun last, 0 if none has.
	begun int
}

// orderOf is the order in which the pods of a node go: that of the first maintenance that drains
// it by waves, nil if there is none.
func orderOf(s *state.Snapshot, node string) *order {
	for _, m := range s.Maintenances {
		i := slices.IndexFunc(m.Status.Nodes, func(n v1alpha1.MaintenanceNodeStatus) bool { return n.Name == node })
		if i < 0 || len(m.Spec.Waves) == 0 || !m.Spec.Drain || m.DeletionTimestamp != nil {
			continue
		}
		waves, err := translate.CompileWaves(m.Spec.Waves)
		if err != nil {
			continue // The maintenance says so, and drains nothing.
		}
		o := &order{from: m.Spec.Waves, waves: waves, namespaces: map[string]map[string]string{}, begun: waves.Position(m.Status.Nodes[i].Wave)}
		for _, namespace := range s.Namespaces {
			o.namespaces[namespace.Name] = namespace.Labels
		}
		return o
	}
	return nil
}

// of is the position of a pod's wave, and whether it is to go at all.
func (o *order) of(pod *corev1.Pod) (position int, goes bool) {
	namespace := o.namespaces[pod.Namespace]
	if pods.IsMirror(pod) || pods.HasEnded(pod) || pods.IsOfDaemonSet(pod) && !o.waves.Takes(pod, namespace) {
		return 0, false
	}
	return o.waves.Of(pod, namespace), true
}

// name of a wave for people, with its position.
func (o *order) name(position int) string {
	if position == 0 {
		return "before all"
	}
	return fmt.Sprintf("%d of %d (%s)", position, len(o.waves), text.Clean(o.waves.Name(position)))
}

// says is which wave waits for what, or has begun; empty if no pod is to go.
func (o *order) says(here []*corev1.Pod) string {
	counts := make([]int, len(o.waves)+1)
	next := 0
	for _, pod := range here {
		position, goes := o.of(pod)
		if !goes {
			continue
		}
		counts[position]++
		if position > o.begun && (next == 0 || position < next) {
			next = position
		}
	}
	left, earlier := counts[o.begun], 0
	for i, n := range counts[:o.begun] {
		if i == 0 || o.from[i-1].Timeout == nil { // Those of others have had their time.
			earlier += n
		}
	}
	switch {
	case next == 0 && (o.begun == 0 || left+earlier == 0):
		return ""
	case next == 0:
		return "wave " + o.name(o.begun) + " has begun"
	case left+earlier == 0:
		return "wave " + o.name(next) + " begins"
	}
	says := fmt.Sprintf("wave %s: waits until %s ", o.name(next), text.Counted(left+earlier, "pod"))
	switch {
	case o.begun == 0:
		says += "before all waves"
	case earlier > 0:
		says += fmt.Sprintf("of wave %d and before", o.begun)
	default:
		says += fmt.Sprintf("of wave %d", o.begun)
	}
	if left+earlier == 1 {
		says += " has left"
	} else {
		says += " have left"
	}
	if o.begun > 0 && earlier == 0 {
		if timeout := o.from[o.begun-1].Timeout; timeout != nil {
			says += ", at most for the timeout of " + duration.HumanDuration(timeout.Duration)
		}
	}
	return says
}
