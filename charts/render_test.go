package charts_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// values of the chart.
type values = map[string]any

// render renders the chart and decodes every object strictly into its type.
func render(t *testing.T, v values) []runtime.Object {
	t.Helper()
	return renderWith(t, install.Options{Values: v})
}

// rendering is what the chart makes of some options.
type rendering func() ([]*unstructured.Unstructured, error)

// renderings are those of all tests of this package, by their options as JSON. A quarter of the tests
// look at the default values, and helm takes a third of a second for them.
var renderings sync.Map

// template renders the chart, once for the same options. The CRDs, more than half of helm's time,
// are left out unless the values say something about them. Nobody may change what it returns.
func template(t *testing.T, o install.Options) ([]*unstructured.Unstructured, error) {
	t.Helper()
	if _, given := o.Values["crds"]; !given {
		o.Values = maps.Clone(o.Values)
		if o.Values == nil {
			o.Values = values{}
		}
		o.Values["crds"] = values{"enabled": false}
	}
	key, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	// The context of the one test that comes first must not end what the others get.
	once, _ := renderings.LoadOrStore(string(key), rendering(sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
		return install.Render(context.WithoutCancel(t.Context()), o)
	})))
	return once.(rendering)()
}

func renderWith(t *testing.T, o install.Options) []runtime.Object {
	t.Helper()
	rendered, err := template(t, o)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, monitoringv1.AddToScheme, certmanagerv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects := make([]runtime.Object, 0, len(rendered))
	for _, u := range rendered {
		typed, err := scheme.New(u.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		const strictly = true
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, strictly); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		checkMeta(t, u)
		objects = append(objects, typed)
	}
	return objects
}

// checkMeta checks what every object of the chart must have.
func checkMeta(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	clusterScoped := []string{"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
	want := install.DefaultNamespace
	if u.GetKind() == "RoleBinding" && slices.Contains([]string{"drawbridge-preemption", "drawbridge-webhook-clients"}, u.GetName()) {
		want = "kube-system" // To read a ConfigMap there.
	}
	if u.GetKind() == "RoleBinding" && u.GetName() == "drawbridge-budgets-exhausted" {
		want = u.GetNamespace() // budgets.exhausted.namespaces
	}
	if slices.Contains(clusterScoped, u.GetKind()) {
		want = ""
	}
	if u.GetNamespace() != want {
		t.Errorf("%s %s is in namespace %q, want %q", u.GetKind(), u.GetName(), u.GetNamespace(), want)
	}
	if u.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
		t.Errorf("%s %s has not the chart's labels: %v", u.GetKind(), u.GetName(), u.GetLabels())
	}
}

// only returns the one object of type T.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	found := all[T](objects)
	if len(found) != 1 {
		t.Fatalf("want one %T, have %d", *new(T), len(found))
	}
	return found[0]
}

// named returns the object of type T with that name.
func named[T interface {
	runtime.Object
	GetName() string
}](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	for _, object := range all[T](objects) {
		if object.GetName() == name {
			return object
		}
	}
	t.Fatalf("there is no %T %s", *new(T), name)
	return *new(T)
}

// all returns the objects of type T.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

func findPolicy(t *testing.T, objects []runtime.Object, name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	t.Helper()
	for _, policy := range all[*admissionregistrationv1.ValidatingAdmissionPolicy](objects) {
		if policy.Name == name {
			return policy
		}
	}
	t.Fatalf("no policy %s", name)
	return nil
}
