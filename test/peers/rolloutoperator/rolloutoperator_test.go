//go:build unix

// Package rolloutoperator puts kubectl drain into the situations of test/peers/situations in
// namespaces where Grafana's rollout-operator works as well, which has a webhook on evictions of its own.
package rolloutoperator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it, and that of its account.
	peerName = "rollout-operator"
	// alice drains nodes, and may do nothing else.
	alice    = "alice"
	drainers = "drainers"
)

var (
	// world has the program; nil if it is not tested.
	world *situations.World
	// installation is Drawbridge's chart, nil as long as it is not installed.
	installation *manager.Installation
	// asAlice drains.
	asAlice = cluster.KubectlOptions{User: alice, Groups: []string{drainers}}
	budget  = schema.GroupVersionKind{Group: "rollout-operator.grafana.com", Version: "v1", Kind: "ZoneAwarePodDisruptionBudget"}
)

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		world = w
		return w.Kube.LetDrain(ctx, drainers)
	}))
}

// installed installs the chart of Drawbridge, if it is not there.
func installed(t *testing.T) *manager.Installation {
	t.Helper()
	if installation == nil {
		installation = cluster.Must(manager.Install(t.Context(), world.Kube, manager.InstallOptions{}))(t)
	}
	return installation
}

// TestSituations comes first, by the name of its file: it begins without Drawbridge.
func TestSituations(t *testing.T) {
	if world == nil {
		peer.Skip(t, peerName)
	}
	kubectl := &situations.Kubectl{Kube: world.Kube, As: asAlice, Here: place}
	suite := situations.Suite{
		Kube: world.Kube, User: alice, Drainer: kubectl,
		// Its webhook answers for a pod that is gone, too, and not that it is not found.
		GivesUp: kubectl.GaveUp,
		Record: records.Record{
			Peer: peerName, Program: "Grafana's rollout-operator, beside kubectl drain", Version: cluster.Must(peer.Version(world.Folder))(t),
		},
	}
	t.Run("without Drawbridge", suite.Without)
	t.Run("with Drawbridge", func(t *testing.T) { suite.With(t, installed(t)) })
	if err := world.StillRun(); err != nil {
		t.Error(err)
	}
}

// place has two nodes, and a namespace for which the operator runs until the test ends.
func place(t *testing.T) situations.Place {
	t.Helper()
	p := situations.NewPlace(t, world.Kube)
	port := cluster.Must(manager.FreePort(t.Context()))(t)
	install(t, p.Namespace, port)
	kubeconfig := cluster.Must(world.Kube.KubeconfigFileForServiceAccount(t.Context(), p.Namespace, peerName))(t)
	running, err := world.Start(t.Context(), peerName, peer.Options{
		Log: peerName + "-" + p.Namespace,
		Args: []string{
			"-kubernetes.config-file=" + kubeconfig, "-kubernetes.api-url=" + world.Kube.Config().Host, "-kubernetes.namespace=" + p.Namespace,
			"-server.port=" + strconv.Itoa(cluster.Must(manager.FreePort(t.Context()))(t)),
			"-server-tls.enabled", "-server-tls.port=" + strconv.Itoa(port), "-server-tls.self-signed-cert.dns-name=localhost",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Kill(); err != nil {
			t.Error(err)
		}
	})
	cluster.Eventually(t, "the webhook of "+p.Namespace+" to be trusted", func(ctx context.Context) error {
		object := webhook(p.Namespace)
		if err := world.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return err
		}
		for _, hook := range hooks {
			if bundle, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "caBundle"); bundle == "" {
				return errors.New("it has no certificate")
			}
		}
		return nil
	})
	return p
}

// install creates what its manifests have for a namespace, without those webhooks that are not about evictions.
func install(t *testing.T, namespace string, port int) {
	t.Helper()
	names := strings.NewReplacer("namespace: default", "namespace: "+namespace, "metadata.name: default", "metadata.name: "+namespace, "-default", "-"+namespace)
	objects := cluster.Must(peer.Objects(world.Folder, func(text string) (string, error) { return names.Replace(text), nil }))(t)
	hook := webhook(namespace).GetName()
	var wanted []*unstructured.Unstructured
	for _, object := range objects {
		if !peer.NotWorkload(object.GetKind()) && object.GetName() != hook {
			continue
		}
		if object.GetName() == hook {
			reach(t, object, port)
		}
		wanted = append(wanted, object)
	}
	if err := errors.Join(
		peer.Apply(t.Context(), world.Client, wanted, func(string) bool { return true }), peer.WaitServed(t.Context(), world.Client),
	); err != nil {
		t.Fatal(err)
	}
}

// reach has the API server call a port of this machine in place of the Service.
func reach(t *testing.T, object *unstructured.Unstructured, port int) {
	t.Helper()
	hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range hooks {
		path, _, err := unstructured.NestedString(hook.(map[string]any), "clientConfig", "service", "path")
		if err != nil {
			t.Fatal(err)
		}
		hook.(map[string]any)["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://localhost:%d%s", port, path)}
	}
	if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
		t.Fatal(err)
	}
}

// webhook is the name and kind of that on evictions in a namespace.
func webhook(namespace string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("admissionregistration.k8s.io/v1")
	object.SetKind("ValidatingWebhookConfiguration")
	object.SetName("pod-eviction-" + namespace)
	return object
}
