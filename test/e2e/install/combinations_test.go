package install_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// installForeignKinds installs the definitions of the kinds of others that the chart
// uses, as they are: those of the Prometheus operator and of cert-manager (v1.21.2).
func installForeignKinds(t *testing.T) {
	t.Helper()
	for _, file := range []string{"prometheus-operator-crds.yaml.gz", "cert-manager-crds.yaml.gz"} {
		installDefinitions(t, filepath.Join("testdata", file))
	}
}

// installDefinitions installs the three definitions of a packed file.
func installDefinitions(t *testing.T, file string) {
	t.Helper()
	packed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = packed.Close() })
	content, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	client, err := apiextensions.NewForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	var names []string
	documents := utilyaml.NewYAMLReader(bufio.NewReader(content))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(document, crd); err != nil {
			t.Fatal(err)
		}
		if crd.Name == "" {
			continue
		}
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		names = append(names, crd.Name)
	}
	if len(names) != 3 {
		t.Fatalf("definitions: %v", names)
	}
	for _, name := range names {
		cluster.Eventually(t, name+" is served", func(ctx context.Context) error {
			crd, err := crds.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range crd.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return errors.New("not established")
		})
	}
}

// ofTheRelease returns what is in the cluster with the release's label, as "KIND NAME",
// in order. Events and what controllers make of the chart's objects are left out.
func ofTheRelease(ctx context.Context) ([]string, error) {
	server, err := discovery.NewDiscoveryClientForConfig(kube.Config())
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(kube.Config())
	if err != nil {
		return nil, err
	}
	lists, err := server.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("list resources: %w", err)
	}
	byControllers := []string{"Pod", "ReplicaSet", "Endpoints", "EndpointSlice", "ControllerRevision", "Event"}
	var found []string
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains(byControllers, resource.Kind) {
				continue
			}
			items, err := objects.Resource(group.WithResource(resource.Name)).List(ctx, metav1.ListOptions{
				LabelSelector: "app.kubernetes.io/instance=" + install.DefaultRelease,
			})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", resource.Name, err)
			}
			for _, item := range items.Items {
				found = append(found, item.GetKind()+" "+item.GetName())
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil // Some kinds are served by several groups.
}

// wantOfTheRelease waits until nothing but the wanted objects is there.
func wantOfTheRelease(t *testing.T, when string, want []string) {
	t.Helper()
	cluster.Eventually(t, "the objects of the release "+when, func(ctx context.Context) error {
		got, err := ofTheRelease(ctx)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// rendered are the objects that helm template says the release has.
func rendered(t *testing.T, v values) []string {
	t.Helper()
	server, err := discovery.NewDiscoveryClientForConfig(kube.Config())
	if err != nil {
		t.Fatal(err)
	}
	// What the chart asks a cluster for, and helm template does not take for granted.
	const group, kind = "admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"
	list, err := server.ServerResourcesForGroupVersion(group)
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
		served = append(served, group+"/"+kind)
	}
	objects, err := install.Render(t.Context(), install.Options{Values: v, APIVersions: served})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, object := range objects {
		if object.GetAnnotations()["helm.sh/hook"] == "" {
			names = append(names, object.GetKind()+" "+object.GetName())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Every template, in each combination that matters, is taken by a real API server, and
// the chart leaves nothing behind: with crds.keep its definitions, without not even those.
// Each combination follows the one before as an upgrade, which has to remove what that had;
// an installation for each would cost the definitions, most of the work, a dozen times.
func TestEveryCombinationIsInstalledAndRemovedWithoutATrace(t *testing.T) {
	installForeignKinds(t)
	on, off := values{"enabled": true}, values{"enabled": false}
	cases := map[string]values{
		"the default values":      {},
		"no guard and no surge":   {"guard": off, "surge": off, "descheduler": values{"markInProgress": false}},
		"a manager of its own":    managerElsewhere(nil),
		"no webhook":              {"webhook": off},
		"the presets of machines": {"vm": values{"kubevirt": values{"enabled": true}, "strimzi": on}},
		"all that observes it": {
			"metrics":        values{"serviceMonitor": values{"enabled": true, "interval": "30s", "relabelings": []any{values{"action": "labeldrop", "regex": "x"}}}},
			"prometheusRule": on, "grafanaDashboard": on, "networkPolicy": on,
		},
		"certificates of cert-manager's": {"certificates": values{"mode": "cert-manager"}, "preemption": on},
		"certificates of an issuer that is there": {
			"certificates": values{"mode": "cert-manager", "certManager": values{"issuerRef": values{"name": "ours", "kind": "ClusterIssuer"}}},
		},
		"preemption with all of it": {"preemption": values{"enabled": true, "guardDeletes": true, "tokenSecret": "extender", "schedulerUsers": []any{"system:kube-scheduler", "other"}}},
		"no maintenances":           {"maintenance": off, "featureGates": values{"Guard": true}},
		"a PodMonitor and other names": {
			"fullnameOverride": "other", "commonLabels": values{"team": "platform"}, "metrics": values{"protected": false, "podMonitor": on},
			"serviceAccount": values{"name": "acct"},
		},
		"exemptions and one replica": {
			"deployment": values{"replicas": 1, "priorityClassName": "system-cluster-critical", "tolerations": []any{values{"operator": "Exists"}}},
			"webhook":    values{"breakGlassGroups": []any{"sre"}, "bypassUsers": []any{"admin"}, "excludedNamespaces": []any{"kube-system", "b"}},
			"networkPolicy": values{
				"enabled": true, "metricsFrom": []any{values{"namespaceSelector": values{}}},
				"extraEgress": []any{values{"ports": []any{values{"port": 4317, "protocol": "TCP"}}}},
			},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) { // The same upgrades each time.
		t.Run(name, func(t *testing.T) {
			v := cases[name]
			v["crds"] = values{"keep": false}
			if err := install.Run(t.Context(), install.Options{Kubeconfig: kubeconfig(t), Values: v}); err != nil {
				t.Fatal(err)
			}
			wantOfTheRelease(t, "after the installation", rendered(t, v))
		})
	}
	if err := install.Uninstall(context.WithoutCancel(t.Context()), install.Options{Kubeconfig: kubeconfig(t), NoHooks: true}); err != nil {
		t.Error(err)
	}
	wantOfTheRelease(t, "after the removal", nil)
}

// chartBefore unpacks the chart of an older commit: the one that brought the guard and
// the presets, and had one role for everything.
func chartBefore(t *testing.T) string {
	t.Helper()
	packed, err := os.Open("testdata/chart-before.tgz")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = packed.Close() })
	content, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(folder, "charts", "drawbridge")
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) {
			continue
		}
		path := filepath.Join(folder, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An upgrade from the older chart, with its default values and with values changed at
// the same time, leaves what the new chart has, and nothing of the old one.
func TestAnUpgradeFromAnOlderChartLeavesNothingOfIt(t *testing.T) {
	installForeignKinds(t)
	ownDefinitions(t) // The next test would take over what is still being deleted.
	before := install.Options{Kubeconfig: kubeconfig(t), Chart: chartBefore(t)}
	if err := install.Run(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := install.Uninstall(context.WithoutCancel(t.Context()), install.Options{Kubeconfig: kubeconfig(t), NoHooks: true})
		if err != nil {
			t.Error(err)
		}
	})
	old, err := ofTheRelease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(old, "ClusterRole drawbridge") || strings.Contains(strings.Join(old, ","), "drawbridge-engine") {
		t.Fatalf("this is not the older chart: %q", old)
	}
	for _, v := range []values{
		{"crds": values{"keep": false}},
		{
			"crds": values{"keep": false}, "prometheusRule": values{"enabled": true}, "grafanaDashboard": values{"enabled": true},
			"surge": values{"enabled": false},
		},
	} {
		if err := install.Run(t.Context(), install.Options{Kubeconfig: kubeconfig(t), Values: v}); err != nil {
			t.Fatal(err)
		}
		wantOfTheRelease(t, "after the upgrade", rendered(t, v))
	}
}
