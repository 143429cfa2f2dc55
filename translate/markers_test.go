package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestNodeMarkers(t *testing.T) {
	node := func() *builder.NodeWrapper { return builder.Node("n1") }
	cases := map[string]struct {
		node *corev1.Node
		want []string
	}{
		"a node at work":                   {node().Obj(), nil},
		"cordoned":                         {node().Cordoned().Obj(), []string{"unschedulable"}},
		"cordoned, flag and taint are one": {node().Cordoned().Taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule).Obj(), []string{"unschedulable"}},
		"the taint alone":                  {node().Taint(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule).Obj(), []string{"unschedulable"}},
		"node maintenance":                 {node().Taint("medik8s.io/drain", "", corev1.TaintEffectNoSchedule).Obj(), []string{"medik8s.io/drain"}},
		"Cluster Autoscaler":               {node().Taint("ToBeDeletedByClusterAutoscaler", "1", corev1.TaintEffectNoSchedule).Obj(), []string{"ToBeDeletedByClusterAutoscaler"}},
		"Cluster Autoscaler only thinks about it": {
			node().Taint("DeletionCandidateOfClusterAutoscaler", "1", corev1.TaintEffectPreferNoSchedule).Obj(), nil},
		"Karpenter, sorted": {node().Cordoned().Taint("karpenter.sh/disrupted", "", corev1.TaintEffectNoSchedule).Obj(),
			[]string{"karpenter.sh/disrupted", "unschedulable"}},
		"a reboot by Karpenter":    {node().Taint("karpenter.sh/rebooting", "", corev1.TaintEffectNoSchedule).Obj(), []string{"karpenter.sh/rebooting"}},
		"a spot interruption":      {node().Taint("aws-node-termination-handler/spot-itn", "", corev1.TaintEffectNoSchedule).Obj(), []string{"aws-node-termination-handler/spot-itn"}},
		"kured, as it is now":      {node().Annotation("kured.dev/node-unschedulable-before-drain", "false").Obj(), []string{"kured.dev/node-unschedulable-before-drain"}},
		"kured, as it was":         {node().Annotation("weave.works/kured-reboot-in-progress", "x").Obj(), []string{"weave.works/kured-reboot-in-progress"}},
		"MCO asks":                 {node().Annotation("machineconfiguration.openshift.io/desiredDrain", "drain-abc").Obj(), []string{"machineconfiguration.openshift.io/desiredDrain"}},
		"MCO has what it asked":    {node().Annotation("machineconfiguration.openshift.io/desiredDrain", "drain-abc").Annotation("machineconfiguration.openshift.io/lastAppliedDrain", "drain-abc").Obj(), nil},
		"MCO takes it back":        {node().Annotation("machineconfiguration.openshift.io/desiredDrain", "uncordon-abc").Obj(), nil},
		"draino":                   {withCondition("DrainScheduled", corev1.ConditionTrue), []string{"DrainScheduled"}},
		"draino gave up":           {withCondition("DrainScheduled", corev1.ConditionFalse), nil},
		"being deleted":            {deleting(), []string{"deleting"}},
		"a taint of somebody else": {node().Taint("dedicated", "db", corev1.TaintEffectNoSchedule).Obj(), nil},
		"our own is not a drain":   {node().Taint(v1alpha1.MaintenanceTaint, "", corev1.TaintEffectNoSchedule).Obj(), nil},
		"a rollout is not a drain": {node().Taint("node.cluster.x-k8s.io/outdated-revision", "", corev1.TaintEffectPreferNoSchedule).Obj(), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := translate.NodeMarkers(tc.node)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("markers (-want +got):\n%s", diff)
			}
			want := translate.NodeView{Known: true, Deleting: tc.node.DeletionTimestamp != nil, Markers: tc.want}
			if diff := cmp.Diff(want, translate.ViewNode(tc.node)); diff != "" {
				t.Errorf("view (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMergeMarkers(t *testing.T) {
	got := translate.MergeMarkers([]string{"b", "c"}, []string{"a", "b"})
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
		t.Errorf("union (-want +got):\n%s", diff)
	}
}

func withCondition(kind corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
	node := builder.Node("n1").Obj()
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status})
	return node
}

func deleting() *corev1.Node {
	node := builder.Node("n1").Obj()
	node.DeletionTimestamp = &metav1.Time{Time: t0}
	return node
}

func TestToleratesMarkers(t *testing.T) {
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	cordon := []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	cases := map[string]struct {
		tolerations []corev1.Toleration
		markers     []string
		want        bool
	}{
		"no marker":                  {nil, nil, true},
		"a cordon":                   {nil, []string{"unschedulable"}, false},
		"a cordon that is tolerated": {cordon, []string{"unschedulable"}, true},
		"everything is tolerated":    {everything, []string{"medik8s.io/drain", "unschedulable"}, true},
		"one of two":                 {cordon, []string{"medik8s.io/drain", "unschedulable"}, false},
		"markers that are no taint keep nobody off": {nil, []string{"deleting", "DrainScheduled", "kured.dev/node-unschedulable-before-drain"}, true},
		"a taint of many names":                     {cordon, []string{"aws-node-termination-handler/spot-itn"}, false},
		"only when it executes": {
			[]corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}, []string{"unschedulable"}, false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := translate.ToleratesMarkers(tc.tolerations, tc.markers); got != tc.want {
				t.Errorf("want %t, got %t", tc.want, got)
			}
		})
	}
}
