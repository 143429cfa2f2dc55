package translate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeLostAfter is how long a node is not Ready before it counts as lost. Kubernetes itself
// waits 50 seconds for a kubelet before it says that (node-monitor-grace-period), and a
// restart of a kubelet takes less than a minute.
const NodeLostAfter = time.Minute

// NodeLoss says since when a node is lost. The zero value is a node that is not.
type NodeLoss struct {
	// At is when the node counts as lost. It may lie ahead: then the node is not Ready, and
	// may come back until then.
	At time.Time
	// Why is a part of a sentence, for people.
	Why string
}

// NodeLossOf is the loss of a node: from NodeLostAfter on after its condition Ready has last
// changed to anything but True, or at once with the taint node.kubernetes.io/out-of-service,
// by which a person says that the machine is off. A node without the condition is not lost:
// nobody has said anything of it yet.
func NodeLossOf(node *corev1.Node) NodeLoss {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeOutOfService {
			// Not every writer of a taint says when it came. It is there now.
			return NodeLoss{At: time.Unix(0, 0), Why: "it has the taint " + corev1.TaintNodeOutOfService}
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			since := condition.LastTransitionTime
			return NodeLoss{
				At:  since.Add(NodeLostAfter),
				Why: fmt.Sprintf("its condition Ready is %s since %s", condition.Status, since.UTC().Format(time.RFC3339)),
			}
		}
	}
	return NodeLoss{}
}

// NoNode is the loss of a node that does not exist any more.
func NoNode() NodeLoss { return NodeLoss{At: time.Unix(0, 0), Why: "there is no such Node any more"} }
