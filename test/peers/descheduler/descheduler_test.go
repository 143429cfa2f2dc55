//go:build unix

// Package descheduler puts the descheduler into the situations of test/peers/situations: a node with
// a taint that its pods do not tolerate, and the strategy that evicts them.
package descheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it.
	peerName = "descheduler"
	// namespace is the one of its manifests, account its service account there.
	namespace = "kube-system"
	account   = "descheduler-sa"
	// taint is on nodes that are to be empty.
	taint = "example.com/to-be-emptied"
	// cycleEnds is in the last line of each of its cycles.
	cycleEnds = "Number of evictions/requests"
)

// policy has the strategy of the test only. Pods without an owner are evicted if they say so.
const policy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: empty-nodes
  pluginConfig:
  - name: DefaultEvictor
    args: {}
  - name: RemovePodsViolatingNodeTaints
    args: {includedTaints: ["` + taint + `"]}
  plugins:
    deschedule:
      enabled: [RemovePodsViolatingNodeTaints]
`

// descheduler is the one of the cluster; nil if it is not tested.
var descheduler *drainer

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Install(ctx, func(object *unstructured.Unstructured) {
			if kind := object.GetKind(); kind == "Role" || kind == "RoleBinding" { // For `kubectl apply --namespace`.
				object.SetNamespace(namespace)
			}
		}); err != nil {
			return err
		}
		descheduler = &drainer{policy: filepath.Join(w.Kube.Dir(), "descheduler-policy.yaml")}
		if err := os.WriteFile(descheduler.policy, []byte(policy), 0o600); err != nil {
			return fmt.Errorf("write policy: %w", err)
		}
		descheduler.Single = situations.Single{World: w, Launch: descheduler.launch}
		return descheduler.Begin(ctx)
	}))
}

func TestSituations(t *testing.T) {
	if descheduler == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: descheduler.Kube, Drainer: descheduler, User: "system:serviceaccount:" + namespace + ":" + account,
		LeavesTolerant: true, NeverCallsOff: "it asks once, and does not take it back", Enough: 1,
		Record: records.Record{
			Peer: peerName, Program: "descheduler, RemovePodsViolatingNodeTaints, EvictionsInBackground",
			Version: cluster.Must(peer.Version(descheduler.Folder))(t),
		},
	}
	suite.Run(t)
	if err := descheduler.StillRun(); err != nil {
		t.Error(err)
	}
}

// drainer taints nodes.
type drainer struct {
	situations.Single
	policy string
}

func (d *drainer) launch(ctx context.Context) (*peer.Running, error) {
	kubeconfig, err := d.Kube.KubeconfigFileForServiceAccount(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	return d.Start(ctx, "descheduler", peer.Options{Args: []string{
		"--kubeconfig=" + kubeconfig, "--policy-config-file=" + d.policy, "--descheduling-interval=5s",
		"--disable-metrics", "--bind-address=127.0.0.1", "--secure-port=0", "--feature-gates=EvictionsInBackground=true", "--v=3",
	}})
}

// Place has pods that the descheduler evicts although nobody owns them.
func (d *drainer) Place(t *testing.T) situations.Place {
	place := situations.NewPlace(t, d.Kube)
	place.Change = func(w *builder.PodWrapper) { w.Annotation("descheduler.alpha.kubernetes.io/evict", "") }
	return place
}

func (d *drainer) Drain(t *testing.T, node string) {
	t.Helper()
	d.patch(t, node, fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, taint))
}

func (d *drainer) CallOff(t *testing.T, node string) {
	t.Helper()
	d.patch(t, node, `{"spec":{"taints":null}}`)
}

func (d *drainer) patch(t *testing.T, node, patch string) {
	t.Helper()
	object := &corev1.Node{}
	object.Name = node
	if err := d.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// Ended says whether it has finished a cycle since it has last said anything of the pods of the node.
func (d *drainer) Ended(ctx context.Context, node string) (bool, string) {
	said := d.about(node)
	lines := d.Running.Lines()
	last := -1
	for i, line := range lines {
		if len(said) > 0 && line.Text == said[len(said)-1] {
			last = i
		}
	}
	ended := slices.ContainsFunc(lines[last+1:], func(line cluster.Line) bool { return strings.Contains(line.Text, cycleEnds) })
	return ended && ctx.Err() == nil, "its cycle continues"
}

// about are its lines about pods of a node.
func (d *drainer) about(node string) (lines []string) {
	for _, line := range d.Running.Lines() {
		if strings.Contains(line.Text, `"`+node+`"`) && strings.Contains(line.Text, "pod=") {
			lines = append(lines, line.Text)
		}
	}
	return lines
}

// Says is the last of these lines, without time and place.
func (d *drainer) Says(_ context.Context, node string) ([]string, error) {
	said := d.about(node)
	for i, line := range said {
		if _, rest, ok := strings.Cut(line, "] "); ok {
			said[i] = rest
		}
	}
	return said[max(0, len(said)-1):], nil
}
