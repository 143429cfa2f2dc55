package builder

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// AppLabel is the label by which workloads of this package select their pods; its
// value is the workload's name.
const AppLabel = "app"

// DeploymentWrapper builds a Deployment.
type DeploymentWrapper struct {
	*appsv1.Deployment
	common[*DeploymentWrapper, *appsv1.Deployment]
}

func wrapDeployment(object *appsv1.Deployment) *DeploymentWrapper {
	return share(&DeploymentWrapper{Deployment: object}, object, wrapDeployment)
}

// Deployment begins with one replica.
func Deployment(namespace, name string) *DeploymentWrapper {
	return wrapDeployment(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: name}},
			Template: template(name),
		},
	})
}

// Replicas sets how many pods it wants.
func (w *DeploymentWrapper) Replicas(n int32) *DeploymentWrapper {
	w.Spec.Replicas = &n
	return w
}

// Rolling sets how a rollout goes: numbers, or percentages such as "25%".
func (w *DeploymentWrapper) Rolling(maxSurge, maxUnavailable string) *DeploymentWrapper {
	w.Spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge:       ptr.To(intstr.Parse(maxSurge)),
			MaxUnavailable: ptr.To(intstr.Parse(maxUnavailable)),
		},
	}
	return w
}

// Pods changes its pods, built like any other.
func (w *DeploymentWrapper) Pods(change func(*PodWrapper)) *DeploymentWrapper {
	changeTemplate(&w.Spec.Template, change)
	return w
}

// StatefulSetWrapper builds a StatefulSet.
type StatefulSetWrapper struct {
	*appsv1.StatefulSet
	common[*StatefulSetWrapper, *appsv1.StatefulSet]
}

func wrapStatefulSet(object *appsv1.StatefulSet) *StatefulSetWrapper {
	return share(&StatefulSetWrapper{StatefulSet: object}, object, wrapStatefulSet)
}

// StatefulSet begins with one replica and a service of its own name, which need
// not exist.
func StatefulSet(namespace, name string) *StatefulSetWrapper {
	return wrapStatefulSet(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    ptr.To[int32](1),
			ServiceName: name,
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: name}},
			Template:    template(name),
		},
	})
}

// Replicas sets how many pods it wants.
func (w *StatefulSetWrapper) Replicas(n int32) *StatefulSetWrapper {
	w.Spec.Replicas = &n
	return w
}

// Pods changes its pods, built like any other.
func (w *StatefulSetWrapper) Pods(change func(*PodWrapper)) *StatefulSetWrapper {
	changeTemplate(&w.Spec.Template, change)
	return w
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{AppLabel: app}},
		Spec:       podSpec(),
	}
}

// changeTemplate lends the template to a pod wrapper, so that what holds for pods
// holds for templates.
func changeTemplate(template *corev1.PodTemplateSpec, change func(*PodWrapper)) {
	pod := wrapPod(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	change(pod)
	template.ObjectMeta, template.Spec = pod.ObjectMeta, pod.Spec
}
