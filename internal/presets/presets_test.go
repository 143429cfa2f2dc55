package presets

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const two = `
apiVersion: drawbridge.dev/v1alpha1
kind: EvacuationPolicy
metadata:
  name: a
  labels: {app: b}
spec:
  interceptor: a.example.com
  strategy: "'None'"
  evacuating: "false"
---
apiVersion: drawbridge.dev/v1alpha1
kind: EvictionInterceptor
metadata:
  name: a.example.com
spec: {}
---
`

func newController(t *testing.T, objects ...client.Object) *Controller {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).WithObjects(objects...).Build()
	return &Controller{Client: c, APIReader: c, Namespace: "ns", Names: []string{"one"}}
}

func preset(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}, Data: map[string]string{dataKey: text}}
}

func owner() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "r"}}
}

var request = reconcile.Request{NamespacedName: client.ObjectKey{Name: "one"}}

func TestTheObjectsOfAPresetAreMadeAndOwned(t *testing.T) {
	c := newController(t, preset(two), owner())
	for range 2 { // Twice is once.
		if _, err := c.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	policy, registration := &v1alpha1.EvacuationPolicy{}, &v1alpha1.EvictionInterceptor{}
	for name, object := range map[string]client.Object{"a": policy, "a.example.com": registration} {
		if err := c.Client.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil {
			t.Fatal(err)
		}
		owners := []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "one", UID: "r"}}
		if diff := cmp.Diff(owners, object.GetOwnerReferences()); diff != "" {
			t.Errorf("owners of %s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(map[string]string{"app": "b", Label: "one"}, policy.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// Without the role nobody would ever delete the objects, so none are made.
func TestAPresetWithoutItsOwnerWaits(t *testing.T) {
	c := newController(t, preset(two))
	if _, err := c.Reconcile(t.Context(), request); !apierrors.IsNotFound(err) {
		t.Errorf("want not found, got %v", err)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, &v1alpha1.EvacuationPolicy{}); !apierrors.IsNotFound(err) {
		t.Errorf("the policy was made: %v", err)
	}
}

func TestWhatDoesNotBelongIntoAPreset(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":               "{",
		"nothing":               "",
		"another kind":          "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n",
		"another kind of ours":  "apiVersion: drawbridge.dev/v1alpha1\nkind: EvictionRequest\nmetadata: {name: a}\n",
		"a duplicate key":       "apiVersion: drawbridge.dev/v1alpha1\nkind: EvacuationPolicy\nkind: EvacuationPolicy\n",
		"too many objects":      strings.Repeat(two, maxObjects),
		"more than can be read": two + strings.Repeat("#", maxBytes),
	} {
		t.Run(name, func(t *testing.T) {
			if objects, err := read(text); err == nil {
				t.Errorf("accepted: %d objects", len(objects))
			}
		})
	}
}
