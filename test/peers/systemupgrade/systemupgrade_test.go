//go:build unix

// Package systemupgrade puts Rancher's system-upgrade-controller into the situations of
// test/peers/situations.
package systemupgrade

import (
	"context"
	"errors"
	"os"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/records"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// peerName is the name that `make test-peers` has for it.
	peerName = "system-upgrade-controller"
	// namespace is the one of its manifests, account its service account there, also for its Jobs.
	namespace = "system-upgrade"
	account   = "system-upgrade"
)

// world has the program; nil if it is not tested.
var world *situations.World

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := w.Install(ctx); err != nil {
			return err
		}
		// Its Jobs get no pods: those would seem to end well here, at which it uncordons the node.
		none := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-pods"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}
		if err := w.Client.Create(ctx, none); err != nil {
			return err
		}
		kubeconfig, err := w.Kube.KubeconfigFileForServiceAccount(ctx, namespace, account)
		if err != nil {
			return err
		}
		if _, err := w.Start(ctx, "controller", peer.Options{
			Log: peerName, Args: []string{"--kubeconfig=" + kubeconfig, "--name=" + peerName, "--namespace=" + namespace, "--node-name=none"},
		}); err != nil {
			return err
		}
		world = w
		return nil
	}))
}

func TestSituations(t *testing.T) {
	if world == nil {
		peer.Skip(t, peerName)
	}
	kubeconfig := cluster.Must(world.Kube.KubeconfigFileForServiceAccount(t.Context(), namespace, account))(t)
	suite := situations.Suite{
		Kube: world.Kube, User: "system:serviceaccount:" + namespace + ":" + account,
		Drainer: &drainer{situations.Kubectl{Kube: world.Kube, As: cluster.KubectlOptions{Kubeconfig: kubeconfig}, Args: ofJob}},
		Record: records.Record{
			Peer: peerName, Program: "Rancher's system-upgrade-controller, a Plan", Version: cluster.Must(peer.Version(world.Folder))(t),
		},
	}
	suite.Run(t)
	if err := world.StillRun(); err != nil {
		t.Error(err)
	}
}

// drainer runs what the containers of the Jobs would.
type drainer struct{ situations.Kubectl }

// CallOff deletes the Plan as well, or there would be another Job.
func (d *drainer) CallOff(t *testing.T, node string) {
	t.Helper()
	if err := world.Client.Delete(t.Context(), plan(node)); err != nil {
		t.Fatal(err)
	}
	d.Kubectl.CallOff(t, node)
}

// plan is called as its node.
func plan(node string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"concurrency":        int64(1),
		"nodeSelector":       map[string]any{"matchLabels": map[string]any{corev1.LabelHostname: node}},
		"serviceAccountName": account,
		"version":            "v1",
		"drain":              map[string]any{"force": true},
		"upgrade":            map[string]any{"image": "upgrade"},
	}}}
	object.SetAPIVersion("upgrade.cattle.io/v1")
	object.SetKind("Plan")
	object.SetNamespace(namespace)
	object.SetName(node)
	return object
}

// ofJob are the arguments of kubectl in the Job that the controller makes for a node.
func ofJob(t *testing.T, node string) []string {
	t.Helper()
	if err := world.Client.Create(t.Context(), plan(node)); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	var args []string
	cluster.Eventually(t, "the Job for "+node, func(ctx context.Context) error {
		jobs := &batchv1.JobList{}
		if err := world.Client.List(ctx, jobs, client.InNamespace(namespace), client.MatchingLabels{"upgrade.cattle.io/plan": node}); err != nil {
			return err
		}
		for i := range jobs.Items {
			for _, c := range jobs.Items[i].Spec.Template.Spec.InitContainers {
				if c.Name == "drain" {
					args = c.Args
					return nil
				}
			}
		}
		return errors.New("there is none with a container that drains")
	})
	t.Logf("$ kubectl %q", args)
	return args
}
