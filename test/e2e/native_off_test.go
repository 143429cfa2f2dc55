//go:build unix

package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// An API server that knows spec.evictionResponders, and has its feature off, drops what our
// policies set: no pod is refused.
func TestPoliciesForRespondersWhereTheFeatureIsOff(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	rendered := cluster.Must(install.Render(t.Context(), install.Options{
		Values: map[string]any{"native": map[string]any{"responderPolicy": "Always"}}, KubeVersion: "1.37.0",
	}))(t)
	const touched = "e2e.example.com/touched"
	of := 0
	for _, object := range rendered {
		if !strings.HasPrefix(object.GetKind(), "MutatingAdmissionPolicy") {
			continue
		}
		of++
		// They are for this test only, and leave a trace.
		createMutating(t, forTest(t, object, namespace, touched))
	}
	if of != 10 {
		t.Fatalf("the chart has %d policies and bindings for responders", of)
	}
	// It comes to no node, or drains of other tests would meet it.
	pod := builder.Pod(namespace, "web").Label("drawbridge.dev/surge", "enabled").Interceptors("a.example.com").
		Change(func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }).Obj()
	waiting.Eventually(t, "the policies to be in force", func(ctx context.Context) error {
		tried := pod.DeepCopy()
		if err := admin.Create(ctx, tried, client.DryRunAll); err != nil {
			return waiting.InVain(err)
		}
		if tried.Labels[touched] == "" {
			return errors.New("they are not")
		}
		return nil
	})
	cluster.Create(t, admin, pod)
	if len(pod.Spec.EvictionResponders) > 0 {
		t.Errorf("it has %v", pod.Spec.EvictionResponders)
	}
}

// forTest is a policy or binding of the chart as one of the test's own.
func forTest(t *testing.T, object *unstructured.Unstructured, namespace, label string) client.Object {
	t.Helper()
	name := namespace + "." + object.GetName()
	into := func(typed client.Object) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
			t.Fatal(err)
		}
		typed.SetName(name)
	}
	if object.GetKind() == "MutatingAdmissionPolicyBinding" {
		binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
		into(binding)
		binding.Spec.PolicyName = name
		return binding
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{}
	into(policy)
	selector := policy.Spec.MatchConstraints.NamespaceSelector
	selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace},
	})
	policy.Spec.Mutations = append(policy.Spec.Mutations, admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{
			Expression: "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('" + label + "'), value: 'yes'}]",
		},
	})
	return policy
}
