package preemption

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func amount(quantity string) resource.Quantity { return resource.MustParse(quantity) }

func requests(cpu string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: amount(cpu)}}
}

// beingMadeSmaller is a pod that had two CPUs.
func beingMadeSmaller(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: requests("2").Requests, Resources: ptr.To(requests("2"))}}
}

func written(list corev1.ResourceList) map[corev1.ResourceName]string {
	written := map[corev1.ResourceName]string{}
	for name, quantity := range list {
		written[name] = quantity.String()
	}
	return written
}

func TestWhatAPodOccupiesAndFrees(t *testing.T) {
	tests := map[string]struct {
		change          func(*corev1.Pod)
		occupies, frees string
	}{
		"what its container requests": {func(*corev1.Pod) {}, "1", "1"},
		"nothing": {
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources = requests("0") }, "0", "0",
		},
		"with overhead": {
			func(p *corev1.Pod) { p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: amount("250m")} }, "1250m", "1250m",
		},
		"as much as an init container needs": {
			func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: requests("3")}}
			}, "3", "3",
		},
		"with a sidecar": {
			func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "side", Resources: requests("3"), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
			}, "4", "4",
		},
		"being made larger": {
			func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources = requests("2")
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: requests("1").Requests, Resources: ptr.To(requests("1"))}}
			}, "2", "2",
		},
		"being made smaller": {beingMadeSmaller, "2", "1"},
		"with resources of the pod": {
			func(p *corev1.Pod) { p.Spec.Resources = ptr.To(requests("5")) }, "5", "1",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod("a").CPU("1").Obj()
			tc.change(p)
			want := map[corev1.ResourceName]string{corev1.ResourceCPU: tc.occupies, corev1.ResourcePods: "1"}
			if diff := cmp.Diff(want, written(occupies(p))); diff != "" {
				t.Errorf("occupies (-want +got):\n%s", diff)
			}
			want[corev1.ResourceCPU] = tc.frees
			if diff := cmp.Diff(want, written(frees(p))); diff != "" {
				t.Errorf("frees (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatBesidesResourcesDecidesWhereAPodCanBe(t *testing.T) {
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname}
	volume := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}} }
	}
	affinity := func(a corev1.Affinity) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Affinity = &a } }
	spread := func(unsatisfiable corev1.UnsatisfiableConstraintAction) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: unsatisfiable}}
		}
	}
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"nothing":       {func(*corev1.Pod) {}, ""},
		"node affinity": {affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}), ""},
		"required pod affinity": {
			affinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}), "pod affinity",
		},
		"required pod anti-affinity": {
			affinity(corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}), "pod affinity",
		},
		"preferred pod anti-affinity": {
			affinity(corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: term}}}}), "",
		},
		"a spread that must be":   {spread(corev1.DoNotSchedule), "a topology spread constraint"},
		"a spread that should be": {spread(corev1.ScheduleAnyway), ""},
		"a port of its own":       {func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}} }, ""},
		"a host port":             {withHostPort, "a host port"},
		"a host port of a sidecar": {func(p *corev1.Pod) {
			withHostPort(p)
			p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil
		}, "a host port"},
		"a claim":                       {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), "volume data"},
		"a claim of its own":            {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), "volume data"},
		"a driver's volume":             {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}), "volume data"},
		"a volume of a kind to come":    {volume(corev1.VolumeSource{}), "volume data"},
		"an empty directory":            {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), ""},
		"tokens":                        {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}), ""},
		"a resource claim":              {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, "a resource claim"},
		"a claim for an extended one":   {func(p *corev1.Pod) { p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{} }, "a resource claim"},
		"a group that is scheduled":     {func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} }, "a pod group"},
		"no affinity in an affinity":    {affinity(corev1.Affinity{}), ""},
		"no terms in either":            {affinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}), ""},
		"a node selector is no concern": {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod("a").Obj()
			tc.change(p)
			if diff := cmp.Diff(tc.want, entangled(p)); diff != "" {
				t.Errorf("entangled (-want +got):\n%s", diff)
			}
		})
	}
}
