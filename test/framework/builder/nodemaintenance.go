package builder

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// NodeMaintenanceWrapper builds a NodeMaintenance.
type NodeMaintenanceWrapper struct {
	*v1alpha1.NodeMaintenance
	common[*NodeMaintenanceWrapper, *v1alpha1.NodeMaintenance]
}

func wrapNodeMaintenance(object *v1alpha1.NodeMaintenance) *NodeMaintenanceWrapper {
	return share(&NodeMaintenanceWrapper{NodeMaintenance: object}, object, wrapNodeMaintenance)
}

// NodeMaintenance begins with one that selects no node and does nothing.
func NodeMaintenance(name string) *NodeMaintenanceWrapper {
	return wrapNodeMaintenance(&v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// Term adds a term of one requirement over the nodes' labels.
func (w *NodeMaintenanceWrapper) Term(key string, operator corev1.NodeSelectorOperator, values ...string) *NodeMaintenanceWrapper {
	return w.AnyTerm(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}})
}

// Nodes adds a term for each of these nodes.
func (w *NodeMaintenanceWrapper) Nodes(names ...string) *NodeMaintenanceWrapper {
	for _, name := range names {
		w.AnyTerm(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}})
	}
	return w
}

// AnyTerm adds a term.
func (w *NodeMaintenanceWrapper) AnyTerm(term corev1.NodeSelectorTerm) *NodeMaintenanceWrapper {
	w.Spec.NodeSelector.NodeSelectorTerms = append(w.Spec.NodeSelector.NodeSelectorTerms, term)
	return w
}

// Cordon makes it cordon the nodes.
func (w *NodeMaintenanceWrapper) Cordon() *NodeMaintenanceWrapper {
	w.Spec.Cordon = true
	return w
}

// Drain makes it cordon and drain the nodes.
func (w *NodeMaintenanceWrapper) Drain() *NodeMaintenanceWrapper {
	w.Spec.Drain = true
	return w.Cordon()
}

// Keeps makes it keep unmanaged pods and those with emptyDir volumes.
func (w *NodeMaintenanceWrapper) Keeps() *NodeMaintenanceWrapper {
	w.Spec.UnmanagedPods, w.Spec.EmptyDirPods = v1alpha1.PodsKeep, v1alpha1.PodsKeep
	return w
}

// Wave adds a wave of the pods with this label.
func (w *NodeMaintenanceWrapper) Wave(name, key, value string) *NodeMaintenanceWrapper {
	return w.AnyWave(v1alpha1.MaintenanceWave{Name: name, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}})
}

// AnyWave adds a wave.
func (w *NodeMaintenanceWrapper) AnyWave(wave v1alpha1.MaintenanceWave) *NodeMaintenanceWrapper {
	w.Spec.Waves = append(w.Spec.Waves, wave)
	return w
}

// WaveTimeout sets the timeout of the last wave.
func (w *NodeMaintenanceWrapper) WaveTimeout(timeout time.Duration) *NodeMaintenanceWrapper {
	w.Spec.Waves[len(w.Spec.Waves)-1].Timeout = &metav1.Duration{Duration: timeout}
	return w
}

// Reason sets spec.reason.
func (w *NodeMaintenanceWrapper) Reason(reason string) *NodeMaintenanceWrapper {
	w.Spec.Reason = reason
	return w
}

// Parallel limits how many nodes are drained at a time.
func (w *NodeMaintenanceWrapper) Parallel(n int32) *NodeMaintenanceWrapper {
	w.Spec.MaxParallelNodes = &n
	return w
}
