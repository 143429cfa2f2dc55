package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// F10: the add-on is installed and runs, and nobody uses it. This needs a control
// plane that has never seen it.
func TestConformance_F10_Install(t *testing.T) {
	t.Run("104 nothing but its own objects changes", func(t *testing.T) {
		fresh := cluster.ForTest(t, cluster.Options{Nodes: 1, RequestLog: true})
		c := mustClient(t, fresh.Config())
		ns := fresh.Namespace(t)
		// Somebody else's work, some of it with an annotation that will mean something.
		deployment := builder.Deployment(ns, "web").Replicas(2).Pods(func(p *builder.PodWrapper) { p.Interceptors(interceptorA) }).Obj()
		budget := builder.Budget(ns, "web").Selects(builder.AppLabel, "web").MaxUnavailable("1").Obj()
		if err := errors.Join(c.Create(t.Context(), deployment), c.Create(t.Context(), budget), c.Create(t.Context(), newPod(ns, "bare"))); err != nil {
			t.Fatal(err)
		}
		before := settled(t, fresh)
		if pods := keysOf(before, "pods/"+ns); len(pods) != 3 {
			t.Fatalf("pods %v, want 3", pods)
		}

		installation, err := manager.Install(t.Context(), fresh, manager.InstallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mgr, err := installation.Start(t.Context(), manager.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(mgr.Kill)
		mgr.Clock.Advance(deadline) // Whatever it does from time to time.
		after := settled(t, fresh)

		own := chartObjects(t)
		for key := range after {
			if _, ok := before[key]; !ok && !own(key) {
				t.Errorf("%s has come", key)
			}
		}
		for key, was := range before {
			is, ok := after[key]
			if !ok {
				t.Errorf("%s has gone", key)
			} else if diff := cmp.Diff(was, is); diff != "" {
				t.Errorf("%s has changed (-before +after):\n%s", key, diff)
			}
		}
		requests, err := fresh.RequestLog().Since(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		foreign := requests.By("system:serviceaccount:" + installation.Namespace + ":" + installation.ServiceAccount).Where(func(r cluster.Request) bool {
			return r.Writes() && r.Namespace != installation.Namespace && r.Resource != "selfsubjectreviews" &&
				(r.Resource != "validatingwebhookconfigurations" || r.Name != installation.Release) &&
				(r.Resource != "evictioninterceptors" || r.Name != surge.Name)
		})
		if len(foreign) > 0 {
			t.Errorf("it writes what is not its own:\n%s", foreign)
		}
	})
}

// inventory is what there is, by "RESOURCE/NAMESPACE/NAME".
type inventory map[string]map[string]any

// keysOf are the keys of an inventory with that beginning.
func keysOf(all inventory, prefix string) []string {
	var keys []string
	for key := range all {
		if strings.HasPrefix(key, prefix+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// settled takes the inventory of the cluster when two in a row are the same.
func settled(t *testing.T, c *cluster.Cluster) inventory {
	t.Helper()
	var last inventory
	await(t, "the cluster to settle", func(ctx context.Context) error {
		now, err := takeInventory(ctx, c)
		if err != nil {
			return err
		}
		diff := cmp.Diff(last, now)
		last = now
		if diff != "" {
			return fmt.Errorf("it still changes:\n%s", diff)
		}
		for _, key := range keysOf(now, "pods") {
			if phase, _, _ := unstructured.NestedString(now[key], "status", "phase"); phase != string(corev1.PodRunning) {
				return fmt.Errorf("%s is %s", key, phase)
			}
		}
		return nil
	})
	return last
}

// takeInventory reads everything that can be listed, apart from what comes and
// goes by itself.
func takeInventory(ctx context.Context, c *cluster.Cluster) (inventory, error) {
	resources, err := c.Client().Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{} // Everything is listed, deprecated or not.
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all := inventory{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "get"}}, resources) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if slices.Contains([]string{"events", "leases", "componentstatuses"}, resource.Name) {
				continue
			}
			found, err := objects.Resource(group.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for _, object := range found.Items {
				object.SetResourceVersion("")
				object.SetManagedFields(nil)
				dropAggregated(&object)
				all[strings.Join([]string{resource.Name, object.GetNamespace(), object.GetName()}, "/")] = object.Object
			}
		}
	}
	return all, nil
}

// dropAggregated takes our rules out of the cluster roles that collect rules by
// label, as view, edit and admin do: these are how the chart lets their holders
// see and write requests.
func dropAggregated(object *unstructured.Unstructured) {
	rules, ok := object.Object["rules"].([]any)
	if !ok || object.Object["aggregationRule"] == nil {
		return
	}
	object.Object["rules"] = slices.DeleteFunc(rules, func(rule any) bool {
		fields, ok := rule.(map[string]any)
		return ok && cmp.Equal(fields["apiGroups"], []any{v1alpha1.GroupName})
	})
}

// chartObjects tells the keys of the chart's own objects from others: what helm
// renders, its namespace with all that is in it, and the entry of our API group
// that the API server makes of the definition.
func chartObjects(t *testing.T) func(key string) bool {
	t.Helper()
	rendered, err := install.Render(t.Context(), install.Options{Values: chartValues()})
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{
		"namespaces//" + install.DefaultNamespace:                                        true,
		"apiservices//" + v1alpha1.SchemeGroupVersion.Version + "." + v1alpha1.GroupName: true,
		// The chart has it in a ConfigMap, for the manager to create.
		"evictioninterceptors//" + surge.Name: true,
	}
	for _, object := range rendered {
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		own[strings.Join([]string{plural.Resource, object.GetNamespace(), object.GetName()}, "/")] = true
	}
	return func(key string) bool {
		return own[key] || strings.Split(key, "/")[1] == install.DefaultNamespace
	}
}
