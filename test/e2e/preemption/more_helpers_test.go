//go:build unix

package preemption

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func withCPU(quantity string) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) { w.CPU(quantity) }
}

func withPolicy(policy corev1.PreemptionPolicy) func(*builder.PodWrapper) {
	return func(w *builder.PodWrapper) { w.Spec.PreemptionPolicy = &policy }
}

func guardClosed(w *builder.PodWrapper) { w.Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed) }

// guardBudget is as the guard makes it.
func guardBudget(namespace string) *policyv1.PodDisruptionBudget {
	pdb := builder.Budget(namespace, v1alpha1.GuardBudgetName).Selects(v1alpha1.GuardLabel, v1alpha1.GuardClosed).MinAvailable("2147483647").Obj()
	pdb.Labels = map[string]string{v1alpha1.GuardBudgetLabel: "true"}
	return pdb
}

// inTemplate makes the pods of a template like those of scene.pod.
func (s *scene) inTemplate(template *corev1.PodTemplateSpec, class string) {
	template.Spec.PriorityClassName = class
	template.Spec.NodeSelector = map[string]string{testLabel: s.namespace}
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
}

func replace(text, from, to string) string { return strings.ReplaceAll(text, from, to) }

func contains(text, part string) bool { return strings.Contains(text, part) }
