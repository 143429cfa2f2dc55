package translate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func TestNodeLossOf(t *testing.T) {
	since := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	is := func(status corev1.ConditionStatus, changes ...func(*builder.NodeWrapper)) *corev1.Node {
		node := builder.Node("n1").Ready(status)
		for _, change := range changes {
			change(node)
		}
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
		return node.Obj()
	}
	off := func(w *builder.NodeWrapper) {
		w.Taint("node.kubernetes.io/out-of-service", "nodeshutdown", corev1.TaintEffectNoExecute)
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want translate.NodeLoss
	}{
		"it is Ready":                              {node: is(corev1.ConditionTrue)},
		"it cannot be reached":                     {is(corev1.ConditionUnknown), translate.NodeLoss{At: since.Add(time.Minute), Why: "its condition Ready is Unknown since 2026-05-04T12:00:00Z"}},
		"it says that it is not":                   {is(corev1.ConditionFalse), translate.NodeLoss{At: since.Add(time.Minute), Why: "its condition Ready is False since 2026-05-04T12:00:00Z"}},
		"nobody has said yet":                      {node: &corev1.Node{}},
		"it is cordoned":                           {node: is(corev1.ConditionTrue, func(w *builder.NodeWrapper) { w.Cordoned() })},
		"a person says it is off":                  {is(corev1.ConditionTrue, off), translate.NodeLoss{At: time.Unix(0, 0), Why: "it has the taint node.kubernetes.io/out-of-service"}},
		"and for longer than it cannot be reached": {is(corev1.ConditionUnknown, off), translate.NodeLoss{At: time.Unix(0, 0), Why: "it has the taint node.kubernetes.io/out-of-service"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, translate.NodeLossOf(tc.node)); diff != "" {
				t.Errorf("loss (-want +got):\n%s", diff)
			}
		})
	}
	if none := (translate.NodeLoss{}); translate.NoNode() == none {
		t.Error("a node that does not exist is not lost")
	}
}
