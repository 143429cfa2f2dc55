package install_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// patience is how long a test waits for what must happen.
const patience = 3 * time.Minute

// createPod creates a pod as soon as its namespace is ready for it.
func createPod(ctx context.Context, client kubernetes.Interface, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	var created *corev1.Pod
	err := cluster.Wait(ctx, "the pod to be created", func(ctx context.Context) (err error) {
		created, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return created, err
}

// ownDefinitions takes care that no other test's release owns the definitions that this
// one installs, nor this one's those of the tests that follow.
func ownDefinitions(t *testing.T) {
	t.Helper()
	client, err := apiextensions.NewForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	remove := func() {
		ctx := context.WithoutCancel(t.Context())
		err := cluster.Wait(ctx, "the definitions to be gone", func(ctx context.Context) error {
			list, err := crds.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var left []string
			for i := range list.Items {
				if list.Items[i].Spec.Group != v1alpha1.GroupName {
					continue
				}
				left = append(left, list.Items[i].Name)
				if err := crds.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			if len(left) > 0 {
				return fmt.Errorf("still there: %q", left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	remove()
	t.Cleanup(remove)
}
