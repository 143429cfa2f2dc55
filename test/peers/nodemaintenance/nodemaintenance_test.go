//go:build unix

// Package nodemaintenance puts medik8s' node-maintenance-operator into the situations of
// test/peers/situations.
package nodemaintenance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	peerName = "node-maintenance-operator"
	// namespace is the one of its manifests, account its service account there.
	namespace = "node-maintenance-operator-system"
	account   = "node-maintenance-operator-controller-manager"
)

// operator is the one of the cluster; nil if it is not tested.
var operator *drainer

func TestMain(m *testing.M) {
	os.Exit(situations.Main(m, peerName, func(ctx context.Context, w *situations.World) error {
		if err := errors.Join(w.Install(ctx), letWork(ctx, w.Client)); err != nil {
			return err
		}
		operator = &drainer{}
		operator.Single = situations.Single{World: w, Launch: operator.launch}
		return operator.Begin(ctx)
	}))
}

func TestSituations(t *testing.T) {
	if operator == nil {
		peer.Skip(t, peerName)
	}
	suite := situations.Suite{
		Kube: operator.Kube, Drainer: operator, User: "system:serviceaccount:" + namespace + ":" + account,
		Record: records.Record{
			Peer: peerName, Program: "medik8s node-maintenance-operator, a NodeMaintenance",
			Version: cluster.Must(peer.Version(operator.Folder))(t),
		},
	}
	suite.Run(t)
	if err := operator.StillRun(); err != nil {
		t.Error(err)
	}
}

// letWork gives it what its role lacks: its cache lists namespaces, and it deletes its Leases.
func letWork(ctx context.Context, c client.Client) error {
	meta := metav1.ObjectMeta{Name: "node-maintenance-operator-needs-this-too"}
	err := c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"delete"}},
	}})
	if err != nil {
		return fmt.Errorf("create role: %w", err)
	}
	err = c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	})
	if err != nil {
		return fmt.Errorf("bind role: %w", err)
	}
	return nil
}

// drainer makes NodeMaintenances, which are called as their nodes.
type drainer struct{ situations.Single }

func (d *drainer) launch(ctx context.Context) (*peer.Running, error) {
	kubeconfig, err := d.Kube.KubeconfigFileForServiceAccount(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	running, err := d.Start(ctx, "manager", peer.Options{
		Log: peerName, Env: []string{"KUBECONFIG=" + kubeconfig, "OPERATOR_NAMESPACE=" + namespace},
		Args: []string{"--metrics-bind-address=0", "--health-probe-bind-address=0"},
	})
	if err != nil {
		return nil, err
	}
	_, err = running.WaitLine(ctx, "Starting workers")
	return running, err
}

func maintenance(node string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"nodeName": node}}}
	object.SetAPIVersion("nodemaintenance.medik8s.io/v1beta1")
	object.SetKind("NodeMaintenance")
	object.SetName(node)
	return object
}

func (d *drainer) Place(t *testing.T) situations.Place { return situations.NewPlace(t, d.Kube) }

// Drain makes a NodeMaintenance that goes with the test: the operator has one worker, which would
// still spend its time on it.
func (d *drainer) Drain(t *testing.T, node string) {
	t.Helper()
	cluster.Create(t, d.Client, maintenance(node))
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := d.Client.Delete(context.Background(), maintenance(node)); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func (d *drainer) CallOff(t *testing.T, node string) {
	t.Helper()
	if err := d.Client.Delete(t.Context(), maintenance(node)); err != nil {
		t.Fatal(err)
	}
}

// now is the NodeMaintenance of a node; nil if it is gone.
func (d *drainer) now(ctx context.Context, node string) (*unstructured.Unstructured, error) {
	object := maintenance(node)
	switch err := d.Client.Get(ctx, client.ObjectKeyFromObject(object), object); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return object, nil
}

func (d *drainer) Ended(ctx context.Context, node string) (bool, string) {
	object, err := d.now(ctx, node)
	if err != nil {
		return false, err.Error()
	}
	if object == nil {
		return false, "the NodeMaintenance is gone"
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase") // Empty at first.
	return phase == "Succeeded", fmt.Sprint(object.Object["status"])
}

// Says is what the status of the NodeMaintenance says.
func (d *drainer) Says(ctx context.Context, node string) ([]string, error) {
	object, err := d.now(ctx, node)
	if object == nil {
		return nil, err
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	says, _, _ := unstructured.NestedString(object.Object, "status", "lastError")
	if says != "" {
		phase += ": " + says
	}
	return []string{phase}, nil
}
