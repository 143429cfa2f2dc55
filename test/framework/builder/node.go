package builder

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeWrapper builds a node.
type NodeWrapper struct {
	*corev1.Node
	common[*NodeWrapper, *corev1.Node]
}

func wrapNode(object *corev1.Node) *NodeWrapper {
	return share(&NodeWrapper{Node: object}, object, wrapNode)
}

// Node begins with a node that is Ready and takes pods.
func Node(name string) *NodeWrapper {
	w := wrapNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{corev1.LabelHostname: name},
	}})
	return w.Ready(corev1.ConditionTrue)
}

// Cordoned makes it unschedulable, with the taint that goes with it.
func (w *NodeWrapper) Cordoned() *NodeWrapper {
	w.Spec.Unschedulable = true
	return w.Taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)
}

// Taint adds a taint.
func (w *NodeWrapper) Taint(key, value string, effect corev1.TaintEffect) *NodeWrapper {
	w.Spec.Taints = append(w.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return w
}

// Ready sets its condition Ready.
func (w *NodeWrapper) Ready(status corev1.ConditionStatus) *NodeWrapper {
	for i := range w.Status.Conditions {
		if w.Status.Conditions[i].Type == corev1.NodeReady {
			w.Status.Conditions[i].Status = status
			return w
		}
	}
	w.Status.Conditions = append(w.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: status})
	return w
}
