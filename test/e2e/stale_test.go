//go:build unix

package e2e

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// The registry looks at the budgets before the preconditions, and the guard's refuses for
// as long as the pod is there: a caller that is late would hear 429 for ever. It hears 409.
func TestALateCallerHearsAConflictBehindTheGuard(t *testing.T) {
	startGuarded(t, nil)
	namespace := kube.Namespace(t)
	node := addNodes(t, namespace, 1)[0]
	register(t, builder.EvictionInterceptor(nameIn(namespace, "always")).InNamespace(namespace).Pods(builder.AppLabel, "late").Guard(v1alpha1.GuardAlways))
	pod := createPod(t, builder.Pod(namespace, "late-0").Node(node).Change(ofApp("late")).Obj())
	waitGuard(t, pod, true)
	cases := map[string]func(*corev1.Pod) *metav1.Preconditions{
		"the UID of a pod that is gone": func(*corev1.Pod) *metav1.Preconditions {
			return metav1.NewUIDPreconditions("00000000-0000-4000-8000-00000000dead")
		},
		"an old resource version": func(pod *corev1.Pod) *metav1.Preconditions {
			return &metav1.Preconditions{UID: &pod.UID, ResourceVersion: new("1")}
		},
	}
	for name, preconditions := range cases {
		t.Run(name, func(t *testing.T) {
			call := eviction(pod)
			call.DeleteOptions.Preconditions = preconditions(pod)
			for range 3 {
				if got := evict(t, "karl", pod, call); got.code != http.StatusConflict || !strings.Contains(string(got.body), "Precondition failed") {
					t.Errorf("want 409, got %d %s", got.code, got.body)
				}
			}
		})
	}
	noRequest(t, pod)
	lives(t, pod)
}
