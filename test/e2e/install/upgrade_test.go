package install_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// olderChart is a copy of the chart whose EvictionRequests have no short name, as
// those of a release before might.
func olderChart(t *testing.T) string {
	t.Helper()
	now, err := install.Chart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	older := t.TempDir()
	if err := os.CopyFS(older, os.DirFS(now)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(older, "files", "crds", "drawbridge.dev_evictionrequests.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(content), "    shortNames:\n    - er\n", "", 1)
	if without == string(content) {
		t.Fatal("the CustomResourceDefinition has no short name that could be left out")
	}
	if err := os.WriteFile(file, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	return older
}

// The chart renders the CustomResourceDefinitions as templates, so an upgrade brings the
// new ones, which helm would not do for those of a folder crds/. What is stored stays.
func TestAnUpgradeBringsTheNewDefinitions(t *testing.T) {
	ctx := t.Context()
	older := managerElsewhere(nil)
	if err := install.Run(ctx, install.Options{Kubeconfig: kubeconfig(t), Values: older, Chart: olderChart(t)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { uninstall(t) })
	if err := install.WaitReady(ctx, kube.Config()); err != nil {
		t.Fatal(err)
	}
	extensions, err := apiextensions.NewForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	definition := func() *apiextensionsv1.CustomResourceDefinition {
		crd, err := extensions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, "evictionrequests.drawbridge.dev", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return crd
	}
	if diff := cmp.Diff([]string(nil), definition().Spec.Names.ShortNames); diff != "" {
		t.Fatalf("short names of the release before (-want +got):\n%s", diff)
	}
	objects, err := dynamic.NewForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := kube.Namespace(t)
	requests := objects.Resource(v1alpha1.SchemeGroupVersion.WithResource("evictionrequests")).Namespace(namespace)
	const uid = "11111111-2222-3333-4444-555555555555"
	stored, err := requests.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "EvictionRequest",
		"metadata": map[string]any{"name": uid},
		"spec": map[string]any{
			"target":     map[string]any{"pod": map[string]any{"name": "web", "uid": uid}},
			"requesters": []any{map[string]any{"name": "rebalancer.example.com"}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := requests.Delete(context.WithoutCancel(ctx), uid, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})

	run(t, older)
	if diff := cmp.Diff([]string{"er"}, definition().Spec.Names.ShortNames); diff != "" {
		t.Errorf("short names after the upgrade (-want +got):\n%s", diff)
	}
	after, err := requests.Get(ctx, uid, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored.Object["spec"], after.Object["spec"]); diff != "" || after.GetUID() != stored.GetUID() {
		t.Errorf("the request that was there (-want +got):\n%s", diff)
	}
}
