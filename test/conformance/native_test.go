package conformance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// What a cluster does with the native API as long as nobody switches it on. The rest is in the folder
// native, whose cluster has it.
func TestNative_C4_Off(t *testing.T) {
	t.Run("N47 the native API is not served by default", func(t *testing.T) {
		_, err := kube.Client().Discovery().ServerResourcesForGroupVersion(lifecyclev1alpha1.SchemeGroupVersion.String())
		if !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want NotFound", err)
		}
	})
	t.Run("N48 responders of a pod are dropped by default", func(t *testing.T) {
		pod := builder.Pod(kube.Namespace(t), "web").Obj()
		pod.Spec.EvictionResponders = []corev1.EvictionResponder{{Name: "acme.example.com/migrate", Priority: ptr.To[int32](2000)}}
		created := cluster.Must(kube.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
		if created.Spec.EvictionResponders != nil {
			t.Errorf("the pod has %+v", created.Spec.EvictionResponders)
		}
	})
}
