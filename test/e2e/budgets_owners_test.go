//go:build unix

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/vmcrds"
)

// quorum is a kind that creates pods of its own and has a scale.
var quorum = schema.GroupVersionKind{Group: "quorum.example.com", Version: "v1", Kind: "Quorum"}

func installQuorums(t *testing.T) {
	t.Helper()
	crd := vmcrds.Definition(quorum, "quorums", false)
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Scale: &apiextensionsv1.CustomResourceSubresourceScale{
		SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
	}}
	if err := vmcrds.Install(t.Context(), admin, []*apiextensionsv1.CustomResourceDefinition{crd}); err != nil {
		t.Fatal(err)
	}
	if err := letBudgetsRead("budgets-scale-quorums", rbacv1.PolicyRule{
		APIGroups: []string{quorum.Group}, Resources: []string{"quorums/scale"}, Verbs: []string{"get"},
	}); err != nil {
		t.Fatal(err)
	}
}

// What should run of the pods of another kind is what its scale says, as for a
// PodDisruptionBudget.
func TestABudgetCountsByTheScaleOfAnyOwner(t *testing.T) {
	shareManager(t)
	installQuorums(t)
	namespace := kube.Namespace(t)
	nodes := addNodes(t, namespace, 2)
	owner := vmcrds.New(quorum, namespace, "ledger", map[string]any{"spec.replicas": int64(3)})
	create(t, owner)
	member := func(name, node string) *corev1.Pod {
		t.Helper()
		return createPod(t, builder.Pod(namespace, name).Node(node).Label(builder.AppLabel, ledger).Owner(metav1.OwnerReference{
			APIVersion: quorum.GroupVersion().String(), Kind: quorum.Kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true),
		}).Obj())
	}
	pods := []*corev1.Pod{member("ledger-0", nodes[0]), member("ledger-1", nodes[0]), member("ledger-2", nodes[0])}
	createEvictionBudget(t, builder.EvictionBudget(namespace, pace, builder.AppLabel, ledger).MaxUnavailable("1"), 3)

	ask(t, pods[0])
	gone(t, pods[0])
	ask(t, pods[1])
	waitBudgetsSay(t, pods[1], "EvictionBudget pace: at most 1 of its pods may be unavailable, and as many are.")
	lives(t, pods[1])
	member("ledger-3", nodes[1])
	gone(t, pods[1])
	ask(t, pods[2])
	waitBudgetsSay(t, pods[2], "EvictionBudget pace: at most 1 of its pods may be unavailable, and as many are.")
	lives(t, pods[2])
	patch(t, owner, func() { vmcrds.Set(owner, "spec.replicas", int64(2)) })
	gone(t, pods[2])
}
