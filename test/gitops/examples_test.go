//go:build unix

package gitops

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// exampleTimeout bounds one example.
const exampleTimeout = 5 * time.Minute

// A tool applies what it has rendered again and again, by server-side apply under its own
// name, while the manager writes CA, token and policy. From the second time on nothing
// changes: neither does the tool reset a field, nor has the manager anything to repair.
func TestAToolThatAppliesAgainResetsNothing(t *testing.T) {
	cases := map[string]struct {
		by      string
		objects func(ctx context.Context, t *testing.T) []*unstructured.Unstructured
	}{
		"Argo CD":                           {"argocd-controller", ofArgoCD},
		"Flux, a HelmRelease by OCI":        {"helm-controller", ofHelmRelease("helmrelease.yaml")},
		"Flux, a HelmRelease by repository": {"helm-controller", ofHelmRelease("helmrepository.yaml")},
		"Flux, a Kustomization":             {"kustomize-controller", ofFluxKustomization},
		"kubectl with kustomize":            {"kubectl", ofKustomize},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// Not within the bound: kustomize's objects are written by a program that is built first.
			first, second := patient(t, tc.objects(t.Context(), t)), patient(t, tc.objects(t.Context(), t))
			ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
			defer cancel()
			if diff := cmp.Diff(first, second); diff != "" {
				t.Fatalf("rendered twice (-first +second):\n%s", diff)
			}
			installed(ctx, t, first, tc.by)
			managed := waitManaged(t, "after the first sync")
			pod := intercepted(t)
			if err := evict(ctx, pod, inProgress); err != nil {
				t.Fatal(err)
			}

			stop := load(t, pod, inProgress)
			for range 2 {
				if err := apply(ctx, second, tc.by); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			got, err := configuration(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(managed, got); diff != "" {
				t.Errorf("webhook configuration after two more syncs (-before +after):\n%s", diff)
			}
			changes, err := drift(ctx, second, tc.by)
			if err != nil || changes != "" {
				t.Errorf("the tool finds a drift (%v):\n%s", err, changes)
			}
		})
	}
}

// installed applies objects and starts the manager; both end with the test.
func installed(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured, by string) *manager.Process {
	t.Helper()
	if err := createNamespace(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := remove(ctx, objects); err != nil {
			t.Error(err)
		}
	})
	if err := apply(ctx, objects, by); err != nil {
		t.Fatal(err)
	}
	return startManager(ctx, t, objects)
}

// webhooksOf is the webhook configuration among objects.
func webhooksOf(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != "ValidatingWebhookConfiguration" })
	if len(found) != 1 {
		t.Fatalf("want one webhook configuration, have %d", len(found))
	}
	return found
}

// Who has used the chart without gitops.enabled switches it on. The paths are nobody's any
// more when the manager has written them, so server-side apply leaves them. kubectl apply
// without --server-side removes what it has applied before: then the manager writes the paths
// again, and no eviction passes in between. That is long here: somebody else holds the lease,
// so the replica that serves does not lead.
func TestSwitchingItOnLosesNoEviction(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
	defer cancel()
	const by = "argocd-controller"
	rendered := func(on bool) []*unstructured.Unstructured {
		return helmTemplate(ctx, t, install.DefaultRelease, install.DefaultNamespace, map[string]any{
			"gitops": map[string]any{"enabled": on}, "webhook": map[string]any{"failurePolicy": "Fail", "timeoutSeconds": webhookTimeout},
		})
	}
	before, after := rendered(false), rendered(true)
	leader := installed(ctx, t, before, by)
	managed := waitManaged(t, "after the installation")
	pod := intercepted(t)
	stop := load(t, pod, inProgress)
	if err := apply(ctx, webhooksOf(t, after), by); err != nil {
		t.Fatal(err)
	}
	got, err := configuration(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(managed.Webhooks, got.Webhooks); diff != "" {
		t.Errorf("webhooks after server-side apply (-before +after):\n%s", diff)
	}
	stop()

	if err := applyByClient(ctx, webhooksOf(t, before)); err != nil {
		t.Fatal(err)
	}
	waitManaged(t, "after kubectl apply")
	startManager(ctx, t, before)
	leases := kube.Client().CoordinationV1().Leases(install.DefaultNamespace)
	cluster.Eventually(t, "the lease to be taken", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "drawbridge-leader", metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("nobody"), new(int32(3600))
		lease.Spec.RenewTime = new(metav1.NowMicro())
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "the other replica to answer", func(ctx context.Context) error { return evict(ctx, pod, inProgress) })
	stop = load(t, pod, inProgress, retry)
	if err := applyByClient(ctx, webhooksOf(t, after)); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, "the API server to call without a path", func(ctx context.Context) error { return evict(ctx, pod, retry) })
	if err := leases.Delete(ctx, "drawbridge-leader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitManaged(t, "after the switch")
	stop()
}

// What the overlay changes is what it says.
func TestTheOverlayChangesWhatItSays(t *testing.T) {
	objects := ofKustomize(t.Context(), t)
	for _, object := range objects {
		if object.GetLabels()["example.com/team"] != "platform" {
			t.Errorf("%s %s has not the label", object.GetKind(), object.GetName())
		}
	}
	got := deploymentOf(t, objects)
	container := got.Spec.Template.Spec.Containers[0]
	image, _, _ := strings.Cut(container.Image, ":")
	have := []string{strconv.Itoa(int(*got.Spec.Replicas)), image, container.Args[len(container.Args)-1]}
	if diff := cmp.Diff([]string{"3", "registry.example.com/mirror/drawbridge", "--retention=24h"}, have); diff != "" {
		t.Errorf("replicas, image and last argument (-want +got):\n%s", diff)
	}
}

// The definitions survive the Kustomization.
func TestFluxKeepsTheDefinitions(t *testing.T) {
	found := definitions(ofFluxKustomization(t.Context(), t))
	if len(found) == 0 {
		t.Fatal("there are none")
	}
	for _, definition := range found {
		if got := definition.GetAnnotations()["kustomize.toolkit.fluxcd.io/prune"]; got != "disabled" {
			t.Errorf("%s is pruned: %q", definition.GetName(), got)
		}
	}
}
