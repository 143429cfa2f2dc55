//go:build unix

package install_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// inHand is what Drawbridge has written to objects of others.
type inHand struct {
	middle
	pod         *corev1.Pod
	interceptor string // The user's.
}

// somethingInHand leaves a node under maintenance, and on it a pod with a closed guard.
func somethingInHand(ctx context.Context, t *testing.T, interceptor string) *inHand {
	t.Helper()
	h := &inHand{middle: middle{admin: administrator(t), namespace: kube.Namespace(t)}, interceptor: interceptor}
	h.node = addNodes(t, 1)[0]
	h.pod = h.middle.pod(ctx, t, builder.Pod(h.namespace, "held").Node(h.node).Label("app", "held"))
	h.create(ctx, t, builder.EvictionInterceptor(interceptor).Pods("app", "held").InNamespace(h.namespace).Obj())
	h.create(ctx, t, builder.NodeMaintenance("reboot").Nodes(h.node).Cordon().Drain().Reason("kernel").Obj())
	cluster.Eventually(t, "the guard to be closed and the node to be cordoned", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := h.admin.Get(ctx, client.ObjectKey{Name: h.node}, node); err != nil || !node.Spec.Unschedulable {
			return fmt.Errorf("the node is not cordoned, %w", err)
		}
		return guardClosed(ctx, h.admin, client.ObjectKeyFromObject(h.pod))
	})
	return h
}

var definitions = []string{
	"evacuationhooks.drawbridge.dev", "evacuationpolicies.drawbridge.dev", "evictionbudgets.drawbridge.dev",
	"evictioninterceptors.drawbridge.dev", "evictionrequests.drawbridge.dev", "nodemaintenances.drawbridge.dev",
}

// want checks what is left in the cluster.
func (h *inHand) want(ctx context.Context, t *testing.T, when string, want []string) {
	t.Helper()
	cluster.Eventually(t, "nothing more to be left "+when, func(context.Context) error {
		got, err := h.left(ctx)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func (h *inHand) left(ctx context.Context) ([]string, error) {
	extensions, err := apiextensions.NewForConfig(kube.Config())
	if err != nil {
		return nil, err
	}
	crds, err := extensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var left []string
	for i := range crds.Items {
		if crds.Items[i].Spec.Group == v1alpha1.GroupName {
			left = append(left, crds.Items[i].Name)
		}
	}
	interceptors := &v1alpha1.EvictionInterceptorList{}
	if err := h.admin.List(ctx, interceptors); err != nil && len(left) > 0 {
		return nil, err
	}
	for i := range interceptors.Items {
		if interceptors.Items[i].Name == h.interceptor {
			left = append(left, "the user's EvictionInterceptor")
		} else {
			left = append(left, "EvictionInterceptor "+interceptors.Items[i].Name)
		}
	}
	kinds := []string{
		"policy/v1 PodDisruptionBudget", "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
		"admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
		"rbac.authorization.k8s.io/v1 ClusterRole", "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
		"rbac.authorization.k8s.io/v1 Role", "rbac.authorization.k8s.io/v1 RoleBinding",
	}
	if len(left) > 0 {
		kinds = append(kinds, "drawbridge.dev/v1alpha1 EvictionRequest", "drawbridge.dev/v1alpha1 NodeMaintenance")
	}
	for _, kind := range kinds {
		names, err := h.list(ctx, kind, "")
		if err != nil {
			return nil, err
		}
		left = append(left, names...)
	}
	// Those of other tests may be there, too.
	switch _, err := kube.Client().CoreV1().Namespaces().Get(ctx, install.DefaultNamespace, metav1.GetOptions{}); {
	case err == nil:
		left = append(left, "the Namespace")
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	pod, err := h.now(ctx, h.pod)
	if err != nil {
		return nil, err
	}
	for _, mark := range marksOf(pod) {
		left = append(left, "pod: "+mark)
	}
	node := &corev1.Node{}
	if err := h.admin.Get(ctx, client.ObjectKey{Name: h.node}, node); err != nil {
		return nil, err
	}
	for key := range node.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName) {
			left = append(left, "node: "+key)
		}
	}
	if node.Spec.Unschedulable {
		left = append(left, "node: the cordon")
	}
	return left, nil
}
