package surge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// volumes says whether a second pod could mount a pod's volumes.
type volumes struct {
	// known: the claims were read. A pod from the cache shows only the kinds.
	known bool
	// obstacle names the first volume that only one node can have; empty if there is
	// none.
	obstacle string
}

// unknownVolumes reports whether the live pod and its claims are needed to decide.
func unknownVolumes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || isDisk(&v.VolumeSource)
	})
}

// claimNames are the claims that a pod names. Ephemeral volumes are not included: each
// pod has its own claim for them.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// judgeVolumes checks the volumes of a live pod. Claims are by name; a missing one does
// not exist.
func judgeVolumes(pod *corev1.Pod, claims map[string]*corev1.PersistentVolumeClaim) volumes {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if isDisk(&v.VolumeSource) {
			return volumes{true, fmt.Sprintf("volume %s is a disk that one node has at a time", v.Name)}
		}
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := claims[v.PersistentVolumeClaim.ClaimName]
		if claim == nil {
			return volumes{true, fmt.Sprintf("claim %s does not exist", v.PersistentVolumeClaim.ClaimName)}
		}
		if !mountedTwice(claim, v.PersistentVolumeClaim.ReadOnly) {
			return volumes{true, fmt.Sprintf("claim %s can be mounted on one node only", claim.Name)}
		}
	}
	return volumes{known: true}
}

// mountedTwice reports whether pods on two nodes can mount the claim. The volume's
// access modes win over the requested ones.
func mountedTwice(claim *corev1.PersistentVolumeClaim, readOnly bool) bool {
	modes := claim.Status.AccessModes
	if len(modes) == 0 {
		modes = claim.Spec.AccessModes
	}
	return slices.Contains(modes, corev1.ReadWriteMany) ||
		slices.Contains(modes, corev1.ReadOnlyMany) && (readOnly || !slices.Contains(modes, corev1.ReadWriteOnce))
}

// isDisk reports whether the volume is a block device named in the pod itself, of a
// kind that is attached to one node at a time. Kinds that can be attached to many nodes
// read-only count as writable: nobody uses them read-only.
func isDisk(v *corev1.VolumeSource) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.AzureDisk != nil || v.Cinder != nil ||
		v.VsphereVolume != nil || v.PhotonPersistentDisk != nil || v.RBD != nil || v.ISCSI != nil || v.FC != nil ||
		v.ScaleIO != nil || v.StorageOS != nil
}
