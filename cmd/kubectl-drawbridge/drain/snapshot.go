package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/turns"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

// snapshot is a drain at one moment.
type snapshot struct {
	// Now is the time.
	Now time.Time
	// Began is when we started to follow.
	Began time.Time
	// Maintenance is the followed maintenance; nil if it is gone.
	Maintenance *v1alpha1.NodeMaintenance
	// Trouble is why nothing happens, in one line; empty if something does.
	Trouble string
	// Wait is maintenance.evacuationWait in words; empty if it is not known.
	Wait string
	// Pods are those whose eviction the maintenance has requested, in no order.
	Pods []movingPod
}

// movingPod is one pod that is being evacuated.
type movingPod struct {
	// UID of the pod, which is its request's name.
	UID string
	// Name is "namespace/name", and Node where it runs.
	Name, Node string
	// Update is the progress of its request, with native responders by their names.
	requester.Update
}

// podOf is the pod of a request, and of its native Eviction if it has one.
func podOf(er *v1alpha1.EvictionRequest, evictions map[types.UID]*lifecyclev1alpha1.Eviction) movingPod {
	p := movingPod{UID: er.Name, Node: er.Status.NodeName}
	var e *lifecyclev1alpha1.Eviction
	if pod := er.Spec.Target.Pod; pod != nil {
		p.Name, e = er.Namespace+"/"+pod.Name, evictions[pod.UID]
	}
	p.Update = turns.Observe(er, e)
	return p
}

// ended reports whether the pod is done.
func (p movingPod) ended() bool {
	return p.State == v1alpha1.StateEvicted || p.State == v1alpha1.StateCanceled
}

// waiting describes the pods of a node that are left to their owners; empty if there
// are none.
func (s snapshot) waiting(node v1alpha1.MaintenanceNodeStatus) string {
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

// outcome is the state of a drain.
type outcome int

// Outcomes of a drain.
const (
	// running: it is not finished.
	running outcome = iota
	// drained: all pods to evacuate have left.
	drained
	// deleted: the maintenance is gone or being deleted.
	deleted
	// stopped: drain was set to false.
	stopped
	// noNodes: no node is selected any more.
	noNodes
)

// outcomeOf returns the state of a drain. Only the controller's status of the current
// generation counts.
func outcomeOf(m *v1alpha1.NodeMaintenance) outcome {
	switch {
	case m == nil || m.DeletionTimestamp != nil:
		return deleted
	case !m.Spec.Drain:
		return stopped
	case m.Status.ObservedGeneration != m.Generation:
		return running
	case meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionNodesSelected):
		return noNodes
	case meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionDrained):
		return drained
	default:
		return running
	}
}

// inFlight returns the pods that are being evacuated: those in trouble first, then by
// expected finish time, then by name.
func inFlight(pods []movingPod) []movingPod {
	var found []movingPod
	for _, p := range pods {
		if !p.ended() {
			found = append(found, p)
		}
	}
	rank := func(p movingPod) int {
		switch p.State {
		case v1alpha1.StateBlocked:
			return 0
		case v1alpha1.StateIntercepting:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(found, func(a, b movingPod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareETA(a, b), strings.Compare(a.Name, b.Name))
	})
	return found
}

func compareETA(a, b movingPod) int {
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
