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

// markerTaints are the keys of taints that a drainer sets for the time of its
// drain (callers.md, section 13). Taints that only announce a drain are not among
// them.
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

// NodeMarkers are the signs of a drain on a node, sorted, without repetition.
// Empty means that nobody drains it, as far as one can see.
//
// Signs that a drainer leaves behind when it gives up (labels of the node
// termination handler, exclusion from remediation or from load balancers) are
// left out: each of those drainers also sets one that it takes away, and a sign
// that stays would hide an uncordon.
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

// markersOnlyOf are the classes that set certain markers and no others; what is left
// may be of anybody else.
var markersOnlyOf = map[CallerClass][]string{
	ClassKarpenter:         {"karpenter.sh/disrupted", "karpenter.sh/disruption", "karpenter.sh/rebooting", MarkerDeleting},
	ClassClusterAutoscaler: {"ToBeDeletedByClusterAutoscaler"},
	ClassMCO:               {mcoDesiredDrain},
	// A person may be gone although the cordon is there, and the descheduler sets none.
	ClassKubectl:     {},
	ClassDescheduler: {},
}

// sets reports whether a drain by a tool of the class sets the marker, as far as one can
// tell: a cordon may be of anybody.
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
// with these markers. Those that are no taint keep no pod away.
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

// NodeView is what is known of a node. The zero value means that nobody looked.
type NodeView struct {
	// Known: somebody looked, successfully.
	Known bool
	// Gone: there is no such node.
	Gone bool
	// Deleting: its deletion has been asked for.
	Deleting bool
	// Markers are its drain markers, as NodeMarkers returns them.
	Markers []string
}

// ViewNode is the view of a node that was looked up; nil means that there is none.
func ViewNode(node *corev1.Node) NodeView {
	if node == nil {
		return NodeView{Known: true, Gone: true}
	}
	return NodeView{Known: true, Deleting: node.DeletionTimestamp != nil, Markers: NodeMarkers(node)}
}
