//go:build unix

// Package clusterapi puts Cluster API's Machine controller into the situations of
// test/peers/situations: a management cluster that is its own workload cluster, with a stub of an
// infrastructure provider.
package clusterapi

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it.
	peerName = "cluster-api"
	// namespace is the one of its manifests, account its service account there.
	namespace = "capi-system"
	account   = "capi-manager"
	// administrator is whom its kubeconfigs of workload clusters are for.
	administrator, administrators = "kubernetes-admin", "system:masters"
)

var (
	// clusterAPI is the one of the cluster; nil if it is not tested.
	clusterAPI *drainer
	// installation is Drawbridge's chart, nil as long as it is not installed.
	installation *manager.Installation
)

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Install(ctx, func(object *unstructured.Unstructured) {
			// Everything is written in the stored version, so nobody has to convert.
			unstructured.RemoveNestedField(object.Object, "spec", "conversion")
		}); err != nil {
			return err
		}
		if err := provide(ctx, w); err != nil {
			return err
		}
		d := &drainer{}
		d.Single = situations.Single{World: w, Launch: d.launch}
		clusterAPI = d
		return d.Begin(ctx)
	}))
}

// installed installs the chart of Drawbridge, if it is not there.
func installed(t *testing.T) *manager.Installation {
	t.Helper()
	if installation == nil {
		installation = cluster.Must(manager.Install(t.Context(), clusterAPI.Kube, manager.InstallOptions{}))(t)
	}
	return installation
}

// TestSituations comes first, by the name of its file: it begins without Drawbridge.
func TestSituations(t *testing.T) {
	if clusterAPI == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: clusterAPI.Kube, Drainer: clusterAPI, User: administrator,
		NeverCallsOff: "a Machine that is deleted does not come back",
		Record: records.Record{
			Peer: peerName, Program: "Cluster API, a Machine that is deleted", Version: cluster.Must(peer.Version(clusterAPI.Folder))(t),
		},
	}
	t.Run("without Drawbridge", suite.Without)
	t.Run("with Drawbridge", func(t *testing.T) { suite.With(t, installed(t)) })
	if err := clusterAPI.StillRun(); err != nil {
		t.Error(err)
	}
}

// drainer deletes Machines, which are called as their nodes.
type drainer struct{ situations.Single }

func (d *drainer) launch(ctx context.Context) (*peer.Running, error) {
	kubeconfig, err := d.Kube.KubeconfigFileForServiceAccount(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	running, err := d.Start(ctx, "manager", peer.Options{
		Log: peerName, Env: []string{"KUBECONFIG=" + kubeconfig, "POD_NAMESPACE=" + namespace},
		Args: []string{"--diagnostics-address=0", "--insecure-diagnostics", "--health-addr=0"},
	})
	if err != nil {
		return nil, err
	}
	_, err = running.WaitLine(ctx, "Starting workers")
	return running, err
}

// Place has two nodes with Machines, as their controller knows.
func (d *drainer) Place(t *testing.T) situations.Place {
	t.Helper()
	place := situations.NewPlace(t, d.Kube, func(n *corev1.Node) { n.Spec.ProviderID = providerID(n.Name) })
	nodes := &corev1.NodeList{}
	if err := d.Client.List(t.Context(), nodes, client.MatchingLabels(place.Selector)); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		cluster.Create(t, d.Client, infrastructure(node.Name), machine(node.Name))
	}
	for _, node := range nodes.Items {
		cluster.Eventually(t, "Machine "+node.Name+" to have a node", func(ctx context.Context) error {
			object, err := d.now(ctx, node.Name)
			if err != nil {
				return err
			}
			if name, _, _ := unstructured.NestedString(object.Object, "status", "nodeRef", "name"); name != node.Name {
				return fmt.Errorf("its status is %v", object.Object["status"])
			}
			return nil
		})
	}
	return place
}

// Drain deletes the Machine. What is left of it goes when the pods of the test's namespace have gone.
func (d *drainer) Drain(t *testing.T, node string) {
	t.Helper()
	if err := d.Client.Delete(t.Context(), machine(node)); err != nil {
		t.Fatal(err)
	}
}

func (d *drainer) CallOff(t *testing.T, _ string) {
	t.Fatal("a Machine that is deleted does not come back")
}

// now is the Machine of a node.
func (d *drainer) now(ctx context.Context, node string) (*unstructured.Unstructured, error) {
	object := machine(node)
	err := d.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
	return object, err
}

func (d *drainer) Ended(ctx context.Context, node string) (bool, string) {
	object, err := d.now(ctx, node)
	if client.IgnoreNotFound(err) != nil {
		return false, err.Error()
	}
	return err != nil, strings.Join(deleting(object), "\n")
}

// Says is what its condition Deleting says, or, if the Machine is gone, its events about the drain.
func (d *drainer) Says(ctx context.Context, node string) ([]string, error) {
	object, err := d.now(ctx, node)
	if err == nil || client.IgnoreNotFound(err) != nil {
		return deleting(object), err
	}
	list := &eventsv1.EventList{}
	err = d.Client.List(ctx, list, client.InNamespace(machines))
	var says []string
	for _, event := range list.Items {
		if event.Regarding.Name == node && strings.HasSuffix(event.Reason, "DrainNode") {
			says = append(says, event.Reason+": "+event.Note)
		}
	}
	return says, err
}

// deleting are the lines of a Machine's condition Deleting, without the first, which has the time.
func deleting(object *unstructured.Unstructured) (lines []string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // None at first.
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Deleting" {
			message, _ := condition["message"].(string)
			_, lists, _ := strings.Cut(message, "\n")
			for line := range strings.SplitSeq(lists, "\n") {
				if line != "" {
					lines = append(lines, strings.TrimPrefix(line, "* "))
				}
			}
		}
	}
	return lines
}
