package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Markers that are not the key of a taint or an annotation.
const (
	// MarkerUnschedulable: the node is cordoned.
	MarkerUnschedulable = "unschedulable"
	// MarkerDeleting: the node object is being deleted.
	MarkerDeleting = "deleting"
)

// markerTaints are the keys of taints that a drainer sets during its drain (callers.md,
// section 13), without those that only announce a drain.
var markerTaints = []string{
	"medik8s.io/drain",
	"ToBeDeletedByClusterAutoscaler",
	"karpenter.sh/disrupted",
	"karpenter.sh/disruption", // before Karpenter v1
	"karpenter.sh/rebooting",
}

// markerTaintPrefix begins the taints of aws-node-termination-handler, one per
// reason.
const markerTaintPrefix = "aws-node-termination-handler/"

// markerAnnotations are annotations whose presence means a drain.
var markerAnnotations = []string{
	"kured.dev/node-unschedulable-before-drain",
	"weave.works/kured-reboot-in-progress",
}

// The Machine Config Operator asks for a drain by making the first differ from
// the second.
const (
	mcoDesiredDrain     = "machineconfiguration.openshift.io/desiredDrain"
	mcoLastAppliedDrain = "machineconfiguration.openshift.io/lastAppliedDrain"
	mcoDrainPrefix      = "drain-"
)

// drainoCondition is True between draino's plan and the end of its drain.
const drainoCondition corev1.NodeConditionType = "DrainScheduled"

// NodeMarkers are the signs of a drain on a node, sorted, without repetition. Empty
// means that no drain is visible.
//
// Signs that a drainer leaves behind when it gives up (labels of the node termination
// handler, exclusion from remediation or from load balancers) are ignored: each of those
// drainers also sets one that it removes, and a remaining sign would hide an uncordon.
func NodeMarkers(node *corev1.Node) []string {
	var markers []string
	if node.Spec.Unschedulable {
		markers = append(markers, MarkerUnschedulable)
	}
	if node.DeletionTimestamp != nil {
		markers = append(markers, MarkerDeleting)
	}
	for _, taint := range node.Spec.Taints {
		switch {
		case taint.Key == corev1.TaintNodeUnschedulable:
			markers = append(markers, MarkerUnschedulable)
		case slices.Contains(markerTaints, taint.Key), strings.HasPrefix(taint.Key, markerTaintPrefix):
			markers = append(markers, taint.Key)
		}
	}
	for _, key := range markerAnnotations {
		if _, ok := node.Annotations[key]; ok {
			markers = append(markers, key)
		}
	}
	if desired := node.Annotations[mcoDesiredDrain]; strings.HasPrefix(desired, mcoDrainPrefix) && desired != node.Annotations[mcoLastAppliedDrain] {
		markers = append(markers, mcoDesiredDrain)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == drainoCondition && condition.Status == corev1.ConditionTrue {
			markers = append(markers, string(drainoCondition))
		}
	}
	slices.Sort(markers)
	return slices.Compact(markers)
}

// markersOnlyOf are the classes that set only certain markers; other markers may be from
// anyone.
var markersOnlyOf = map[CallerClass][]string{
	ClassKarpenter:         {"karpenter.sh/disrupted", "karpenter.sh/disruption", "karpenter.sh/rebooting", MarkerDeleting},
	ClassClusterAutoscaler: {"ToBeDeletedByClusterAutoscaler"},
	ClassMCO:               {mcoDesiredDrain},
	// A person may have left although the cordon is there, and the descheduler sets
	// none.
	ClassKubectl:     {},
	ClassDescheduler: {},
}

// sets reports whether a drain by a tool of the class may set the marker: a cordon may
// be from anyone.
func (c CallerClass) sets(marker string) bool {
	if only, ok := markersOnlyOf[c]; ok {
		return slices.Contains(only, marker)
	}
	if marker == MarkerDeleting {
		return true
	}
	for _, others := range markersOnlyOf {
		if slices.Contains(others, marker) {
			return false
		}
	}
	return true
}

// ToleratesMarkers reports whether a pod with these tolerations can be bound to a node
// with these markers. Markers that are not taints keep no pod away.
func ToleratesMarkers(tolerations []corev1.Toleration, markers []string) bool {
	return !slices.ContainsFunc(markers, func(marker string) bool {
		key := marker
		switch {
		case marker == MarkerUnschedulable:
			key = corev1.TaintNodeUnschedulable
		case !slices.Contains(markerTaints, marker) && !strings.HasPrefix(marker, markerTaintPrefix):
			return false
		}
		return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "" && t.Operator == corev1.TolerationOpExists) &&
				(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
		})
	})
}

// MergeMarkers is the union of two sorted lists of markers, sorted.
func MergeMarkers(a, b []string) []string {
	merged := slices.Concat(a, b)
	slices.Sort(merged)
	return slices.Compact(merged)
}

// NodeView is what is known about a node. The zero value means unknown.
type NodeView struct {
	// Known: the node was read successfully.
	Known bool
	// Gone: there is no such node.
	Gone bool
	// Deleting: it is being deleted.
	Deleting bool
	// Markers are its drain markers, as NodeMarkers returns them.
	Markers []string
}

// ViewNode is the view of a node that was read; nil means that it does not exist.
func ViewNode(node *corev1.Node) NodeView {
	if node == nil {
		return NodeView{Known: true, Gone: true}
	}
	return NodeView{Known: true, Deleting: node.DeletionTimestamp != nil, Markers: NodeMarkers(node)}
}
