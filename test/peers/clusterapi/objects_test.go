//go:build unix

package clusterapi

import (
	"context"
	"fmt"
	"maps"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/drawbridge-dev/drawbridge/test/peers/peer"
	"github.com/drawbridge-dev/drawbridge/test/peers/situations"
)

const (
	// machines is the namespace of the Machines, ours the name of their Cluster.
	machines, ours = "machines", "ours"
	// The names that Cluster API gives its labels.
	clusterLabel      = "cluster.x-k8s.io/cluster-name"
	controlPlaneLabel = "cluster.x-k8s.io/control-plane"
	// stubGroup is the group of the infrastructure.
	stubGroup = "infrastructure.example.com"
)

// object is one of the namespace of the Machines, or of none.
func object(apiVersion, kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(o.Object, content)
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// provide makes what there is before Machines: the infrastructure provider's definition and role, the
// Cluster with its kubeconfig, and a Machine of its control plane, without which it would not
// drain others.
func provide(ctx context.Context, w *situations.World) error {
	path, err := w.Kube.KubeconfigFile(administrator, administrators)
	if err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	secret := object("v1", "Secret", machines, ours+"-kubeconfig", map[string]any{
		"type": "cluster.x-k8s.io/secret", "stringData": map[string]any{"value": string(kubeconfig)},
	})
	secret.SetLabels(map[string]string{clusterLabel: ours})

	definition := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "stubmachines."+stubGroup, map[string]any{"spec": map[string]any{
		"group": stubGroup, "scope": "Namespaced",
		"names": map[string]any{"kind": "StubMachine", "plural": "stubmachines", "singular": "stubmachine"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}})
	definition.SetLabels(map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}) // The contract, and who keeps it.

	role := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "stub-infrastructure", map[string]any{"rules": []any{map[string]any{
		"apiGroups": []any{stubGroup}, "resources": []any{"*"}, "verbs": []any{"*"},
	}}})
	role.SetLabels(map[string]string{"cluster.x-k8s.io/aggregate-to-manager": "true"})

	controlPlane := machine("control-plane")
	labels := controlPlane.GetLabels()
	labels[controlPlaneLabel] = ""
	controlPlane.SetLabels(labels)

	if err := peer.Apply(ctx, w.Client, []*unstructured.Unstructured{
		object("v1", "Namespace", "", machines, nil), definition, role, secret,
	}, peer.NotWorkload); err != nil {
		return err
	}
	if err := peer.WaitServed(ctx, w.Client); err != nil {
		return err
	}
	return peer.Apply(ctx, w.Client, []*unstructured.Unstructured{
		object("cluster.x-k8s.io/v1beta2", "Cluster", machines, ours, map[string]any{"spec": map[string]any{"clusterNetwork": map[string]any{"serviceDomain": "cluster.local"}}}),
		infrastructure("control-plane"), controlPlane,
	}, peer.NotWorkload)
}

// providerID is that of a node, and of its infrastructure.
func providerID(node string) string { return "stub:///" + node }

// infrastructure is what the Machine of a node stands on.
func infrastructure(node string) *unstructured.Unstructured {
	return object(stubGroup+"/v1", "StubMachine", machines, node, map[string]any{
		"spec":   map[string]any{"providerID": providerID(node)},
		"status": map[string]any{"initialization": map[string]any{"provisioned": true}},
	})
}

// machine is the Machine of a node.
func machine(node string) *unstructured.Unstructured {
	m := object("cluster.x-k8s.io/v1beta2", "Machine", machines, node, map[string]any{"spec": map[string]any{
		"clusterName":       ours,
		"bootstrap":         map[string]any{"dataSecretName": "none"},
		"infrastructureRef": map[string]any{"apiGroup": stubGroup, "kind": "StubMachine", "name": node},
	}})
	m.SetLabels(map[string]string{clusterLabel: ours})
	return m
}

// drainRule is a MachineDrainRule for the pods of an app in a namespace.
func drainRule(name, namespace, app string, drain map[string]any) *unstructured.Unstructured {
	labels := func(key, value string) map[string]any {
		return map[string]any{"matchLabels": map[string]any{key: value}}
	}
	return object("cluster.x-k8s.io/v1beta2", "MachineDrainRule", machines, name, map[string]any{"spec": map[string]any{
		"drain": drain,
		"pods":  []any{map[string]any{"selector": labels("app", app), "namespaceSelector": labels("kubernetes.io/metadata.name", namespace)}},
	}})
}
