// Package follow shows how far a drain is: as a view that is drawn anew in place,
// or as lines that say what has changed. What is shown is a pure function of a
// Snapshot.
package follow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// Snapshot is a drain at one moment.
type Snapshot struct {
	// Now is the time.
	Now time.Time
	// Began is when we began to look.
	Began time.Time
	// Maintenance is what is followed; nil when it is gone.
	Maintenance *v1alpha1.NodeMaintenance
	// Trouble is why nothing happens, in one line; empty if something does.
	Trouble string
	// Wait is maintenance.evacuationWait in words; empty if it is not known.
	Wait string
	// Pods are those whose eviction the maintenance has requested, in no order.
	Pods []Pod
}

// Pod is one pod on its way.
type Pod struct {
	// UID of the pod, which is its request's name.
	UID string
	// Name is "namespace/name", and Node where it runs.
	Name, Node string
	// Update says how far its request is.
	interceptor.Update
}

// PodOf is the pod of a request.
func PodOf(er *v1alpha1.EvictionRequest) Pod {
	p := Pod{UID: er.Name, Node: er.Status.NodeName, Update: interceptor.Observe(er)}
	if er.Spec.Target.Pod != nil {
		p.Name = er.Namespace + "/" + er.Spec.Target.Pod.Name
	}
	return p
}

// ended reports whether there is nothing more to come for the pod.
func (p Pod) ended() bool {
	return p.State == v1alpha1.StateEvicted || p.State == v1alpha1.StateCanceled
}

// Waiting tells of the pods of a node that are left to their owners; empty if there are
// none.
func (s Snapshot) Waiting(node v1alpha1.MaintenanceNodeStatus) string {
	if node.PodsWaiting == 0 || node.WaitingUntil == nil {
		return ""
	}
	are := "are left to their owners"
	if node.PodsWaiting == 1 {
		are = "is left to its owner"
	}
	return fmt.Sprintf("%s %s until %s (%s; with 0s it goes at once)",
		text.Counted(node.PodsWaiting, "pod"), are, node.WaitingUntil.In(s.Now.Location()).Format(time.TimeOnly), strings.TrimRight("maintenance.evacuationWait "+s.Wait, " "))
}

// Outcome is how a drain stands.
type Outcome int

// Outcomes of a drain.
const (
	// Running: there is more to come.
	Running Outcome = iota
	// Drained: all pods that are to go have gone.
	Drained
	// Deleted: the maintenance is gone, or about to go.
	Deleted
	// Stopped: somebody has set drain to false.
	Stopped
	// NoNodes: no node is selected any more.
	NoNodes
)

// OutcomeOf says how a drain stands. Only what the controller says of the present
// generation counts.
func OutcomeOf(m *v1alpha1.NodeMaintenance) Outcome {
	switch {
	case m == nil || m.DeletionTimestamp != nil:
		return Deleted
	case !m.Spec.Drain:
		return Stopped
	case m.Status.ObservedGeneration != m.Generation:
		return Running
	case meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionNodesSelected):
		return NoNodes
	case meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionDrained):
		return Drained
	default:
		return Running
	}
}

// inFlight are the pods that are on their way: those in trouble first, then by the
// time at which they expect to be gone, then by name.
func inFlight(pods []Pod) []Pod {
	var found []Pod
	for _, p := range pods {
		if !p.ended() {
			found = append(found, p)
		}
	}
	rank := func(p Pod) int {
		switch p.State {
		case v1alpha1.StateBlocked:
			return 0
		case v1alpha1.StateIntercepting:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(found, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareETA(a, b), strings.Compare(a.Name, b.Name))
	})
	return found
}

func compareETA(a, b Pod) int {
	switch {
	case a.ExpectedFinishTime.IsZero() && b.ExpectedFinishTime.IsZero():
		return 0
	case a.ExpectedFinishTime.IsZero():
		return 1
	case b.ExpectedFinishTime.IsZero():
		return -1
	}
	return a.ExpectedFinishTime.Compare(b.ExpectedFinishTime)
}
