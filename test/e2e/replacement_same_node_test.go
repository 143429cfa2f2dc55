//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// Pods of infrastructure tolerate the cordon, or are pinned to their node: their
// replacements run where a drain goes on looking for them by name. Each pod is evicted
// once per drain, and each drain ends.
func TestADrainEvictsPodsThatComeBackOnce(t *testing.T) {
	shareManager(t)
	tests := map[string]struct {
		// nodes there are; all of them are cordoned before the drain.
		nodes int
		// pinned to the first of them.
		pinned bool
	}{
		"to their node, whose cordon they tolerate": {nodes: 1},
		"to their node, to which they are pinned":   {nodes: 2, pinned: true},
		"to a node that is about to be drained":     {nodes: 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := kube.Namespace(t)
			nodes := addNodes(t, namespace, tt.nodes)
			const interceptor, user = "csi.example.com", "paul"
			startInterceptor(t, namespace, interceptor, 3*time.Second)
			create(t, builder.StatefulSet(namespace, "csi").Pods(onNodesOf(namespace, intercepted(interceptor), func(w *builder.PodWrapper) {
				w.Tolerate()
				if tt.pinned {
					w.NodeSelector(corev1.LabelHostname, nodes[0])
				}
			})).Obj())
			pod := &readyPods(t, namespace, 1, nodes...)[0]
			for _, node := range nodes {
				kubectl(t, "admin", "cordon", node)
			}

			for _, drain := range []string{"the first drain", "a second drain by the same user"} {
				mark := kube.RequestLog().Mark()
				finishWell(t, startDrain(t, user, pod.Spec.NodeName))
				successor := replacementOf(t, pod, true)
				log := since(t, mark).Where(func(r cluster.Request) bool { return r.Name == pod.Name })
				evictedOnce(t, "the evictor in "+drain, codes(evictionsBy(log, drawbridge(), namespace)))
				answers := codes(evictionsBy(log, user, namespace))
				if n := len(answers); n < 2 || answers[n-1] != http.StatusNotFound {
					t.Errorf("%s: want kubectl to be held and then told of the end, got %v", drain, answers)
				}
				for i, code := range answers[:max(0, len(answers)-1)] {
					if code != http.StatusTooManyRequests {
						t.Errorf("%s: answer %d is %d", drain, i, code)
					}
				}
				er := waitRequest(t, pod, "Evicted", isTrue(v1alpha1.ConditionEvicted))
				if got := fmt.Sprint(er.Status.ProcessedInterceptors); got != fmt.Sprint([]string{interceptor, v1alpha1.ImperativeEvictionInterceptor}) {
					t.Errorf("%s: processed %s", drain, got)
				}
				unharmed(t, successor)
				noRequest(t, successor)
				pod = successor
			}
		})
	}
}
