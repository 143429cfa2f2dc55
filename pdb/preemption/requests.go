package preemption

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// countings are the ways in which a scheduler may count what a pod requests. Which of
// them it is depends on its version and feature gates (InPlacePodVerticalScaling,
// PodLevelResources and both together), which we do not know. They differ only for
// pods that are being resized or have resources of their own.
var countings = []resourcehelper.PodResourcesOptions{
	{},
	{SkipPodLevelResources: true},
	{UseStatusResources: true},
	{UseStatusResources: true, SkipPodLevelResources: true},
	{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true},
}

// occupies is the most that the pod may be counted with, its own place among the pods of
// the node included.
func occupies(pod *corev1.Pod) corev1.ResourceList {
	return counted(pod, func(a, b resource.Quantity) bool { return a.Cmp(b) > 0 })
}

// frees is the least that the pod may be counted with.
func frees(pod *corev1.Pod) corev1.ResourceList {
	return counted(pod, func(a, b resource.Quantity) bool { return a.Cmp(b) < 0 })
}

// counted are the pod's requests, the better one of all countings.
func counted(pod *corev1.Pod, better func(a, b resource.Quantity) bool) corev1.ResourceList {
	lists := make([]corev1.ResourceList, len(countings))
	total := corev1.ResourceList{}
	for i, options := range countings {
		lists[i] = resourcehelper.PodRequests(pod, options)
		for name := range lists[i] {
			total[name] = lists[0][name]
		}
	}
	for name := range total {
		for _, list := range lists[1:] {
			// One that is not in a list counts as nothing there.
			if better(list[name], total[name]) {
				total[name] = list[name].DeepCopy()
			}
		}
	}
	total[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return total
}

func add(total, more corev1.ResourceList) {
	for name, quantity := range more {
		sum := total[name].DeepCopy()
		sum.Add(quantity)
		total[name] = sum
	}
}

func without(total, less corev1.ResourceList) corev1.ResourceList {
	rest := total.DeepCopy()
	for name, quantity := range less {
		difference := rest[name]
		difference.Sub(quantity)
		rest[name] = difference
	}
	return rest
}

// covers reports whether there is at least as much of everything.
func covers(have, need corev1.ResourceList) bool {
	for name, quantity := range need {
		if of := have[name]; of.Cmp(quantity) < 0 {
			return false
		}
	}
	return true
}

// share is how much of the need is covered: a thousandth for a thousandth of each
// resource. More than enough of one counts as enough.
func share(have, need corev1.ResourceList) int64 {
	const whole = 1000
	var total int64
	for name, quantity := range need {
		if of, all := have[name], quantity.AsApproximateFloat64(); all > 0 {
			total += int64(math.Min(1, of.AsApproximateFloat64()/all) * whole)
		}
	}
	return total
}

// entangled says what besides resources may decide on which node the pod, or another one
// next to it, can be; empty if nothing does. Preferred terms do not count.
func entangled(pod *corev1.Pod) string {
	spec := &pod.Spec
	switch {
	case requiresPods(spec.Affinity):
		return "pod affinity"
	case spec.SchedulingGroup != nil:
		return "a pod group"
	case len(spec.ResourceClaims) > 0, pod.Status.ExtendedResourceClaimStatus != nil, len(pod.Status.NodeAllocatableResourceClaimStatuses) > 0:
		return "a resource claim"
	case hasHostPort(spec.Containers), hasHostPort(spec.InitContainers):
		return "a host port"
	}
	for i := range spec.TopologySpreadConstraints {
		if spec.TopologySpreadConstraints[i].WhenUnsatisfiable != corev1.ScheduleAnyway {
			return "a topology spread constraint"
		}
	}
	for i := range spec.Volumes {
		if !local(&spec.Volumes[i].VolumeSource) {
			return "volume " + spec.Volumes[i].Name
		}
	}
	return ""
}

func requiresPods(affinity *corev1.Affinity) bool {
	if affinity == nil {
		return false
	}
	if a := affinity.PodAffinity; a != nil && len(a.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		return true
	}
	a := affinity.PodAntiAffinity
	return a != nil && len(a.RequiredDuringSchedulingIgnoredDuringExecution) > 0
}

func hasHostPort(containers []corev1.Container) bool {
	for i := range containers {
		for j := range containers[i].Ports {
			if containers[i].Ports[j].HostPort != 0 {
				return true
			}
		}
	}
	return false
}

// local reports whether the scheduler ignores a volume's kind: nothing is attached, nodes
// have no limit, and many pods can share one.
func local(v *corev1.VolumeSource) bool {
	return v.EmptyDir != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil ||
		v.HostPath != nil || v.Image != nil || v.NFS != nil
}
