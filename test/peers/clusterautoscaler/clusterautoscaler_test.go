//go:build unix

// Package clusterautoscaler puts the Cluster Autoscaler into the situations of test/peers/situations.
package clusterautoscaler

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it, that of its program and of its account.
	peerName  = "cluster-autoscaler"
	namespace = "kube-system"
	// group is that of all nodes.
	group = "situations"
	// spared is on nodes that it leaves alone.
	spared = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// The files that its provider for kwok reads from ConfigMaps.
const (
	config = `apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups: {fromNodeLabelKey: example.com/group}
nodes: {skipTaint: true}
configmap: {name: kwok-provider-templates}
kwok: {install: false}
`
	templates = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: template
    labels: {example.com/group: ` + group + `}
    annotations: {cluster-autoscaler.kwok.nodegroup/max-count: "200"}
  status:
    capacity: {cpu: "4", memory: 8Gi, pods: "110"}
    allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
`
)

// autoscaler is the one of the cluster; nil if it is not tested.
var autoscaler *drainer

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Install(ctx); err != nil {
			return err
		}
		for name, data := range map[string]map[string]string{"kwok-provider-config": {"config": config}, "kwok-provider-templates": {"templates": templates}} {
			// The chart's own have other nodes.
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
			if err := w.Client.Update(ctx, object); err != nil {
				return fmt.Errorf("update ConfigMap %s: %w", name, err)
			}
		}
		autoscaler = &drainer{}
		autoscaler.Single = situations.Single{World: w, Launch: autoscaler.launch}
		return autoscaler.Begin(ctx)
	}))
}

func TestSituations(t *testing.T) {
	if autoscaler == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: autoscaler.Kube, Drainer: autoscaler, User: "system:serviceaccount:" + namespace + ":" + peerName,
		Declines: autoscaler.declines,
		Record: records.Record{
			Peer: peerName, Program: "Cluster Autoscaler, a node that is not needed", Version: cluster.Must(peer.Version(autoscaler.Folder))(t),
		},
	}
	suite.Run(t)
	if err := autoscaler.StillRun(); err != nil {
		t.Error(err)
	}
}

// drainer has it remove nodes.
type drainer struct{ situations.Single }

func (d *drainer) launch(ctx context.Context) (*peer.Running, error) {
	kubeconfig, err := d.Kube.KubeconfigFileForServiceAccount(ctx, namespace, peerName)
	if err != nil {
		return nil, err
	}
	port, err := manager.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	return d.Start(ctx, "cluster-autoscaler", peer.Options{
		Env: []string{"KUBECONFIG=" + kubeconfig, "KWOK_PROVIDER_MODE=local", "POD_NAMESPACE=" + namespace},
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--cloud-provider=kwok", "--namespace=" + namespace, "--address=127.0.0.1:" + strconv.Itoa(port),
			"--leader-elect=false", "--v=2", "--scan-interval=2s", "--scale-down-unneeded-time=1s", "--scale-down-delay-after-add=0s",
			"--unremovable-node-recheck-timeout=5s",
		},
	})
}

// Place has two nodes of the group, which it leaves alone.
func (d *drainer) Place(t *testing.T) situations.Place {
	place := situations.NewPlace(t, d.Kube, func(n *corev1.Node) {
		n.Annotations = map[string]string{spared: "true", "kwok.x-k8s.io/node": "fake", "cluster-autoscaler.kwok.nodegroup/name": group}
		n.Spec.ProviderID = "kwok:" + n.Name
	})
	place.Change = func(w *builder.PodWrapper) { w.Annotation("cluster-autoscaler.kubernetes.io/safe-to-evict", "true") }
	return place
}

func (d *drainer) Drain(t *testing.T, node string) {
	t.Helper()
	d.spare(t, node, "null")
}

// CallOff spares the node again.
func (d *drainer) CallOff(t *testing.T, node string) {
	t.Helper()
	d.spare(t, node, `"true"`)
}

func (d *drainer) spare(t *testing.T, node, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, spared, value)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := d.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// Ended says whether the node is gone.
func (d *drainer) Ended(ctx context.Context, node string) (bool, string) {
	err := d.Client.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{})
	return client.IgnoreNotFound(err) == nil && err != nil, strings.Join(d.about(node), "\n")
}

// declines says whether it has found that the node cannot be removed, or does not begin although it
// has considered it again and again: it does not say that a budget is in its way.
func (d *drainer) declines(node string) bool {
	considered := 0
	for _, line := range d.Running.Lines() {
		switch {
		case strings.Contains(line.Text, "Node "+node+" cannot be removed"), strings.Contains(line.Text, "Node "+node+" is not suitable for removal"):
			return true
		case strings.HasSuffix(line.Text, "Considering node "+node+" for standard scale down"):
			considered++
		}
	}
	return considered > 10
}

// about is the last of its lines about a node, without time and place.
func (d *drainer) about(node string) (last []string) {
	for _, line := range d.Running.Lines() {
		if _, text, ok := strings.Cut(line.Text, "] "); ok && strings.Contains(text, node) && !strings.Contains(text, "attempting to schedule") {
			last = []string{text}
		}
	}
	return last
}

func (d *drainer) Says(_ context.Context, node string) ([]string, error) { return d.about(node), nil }
