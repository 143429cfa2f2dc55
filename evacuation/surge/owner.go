package surge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A pod of a ReplicaSet that is of no Deployment, but of a Rollout of Argo Rollouts for
// example, is set free instead of being handed up: nobody is its controller. Its budgets
// count such a ReplicaSet by its own scale (kubernetes:
// pkg/controller/disruption/disruption.go, getPodReplicaSet). With the Rollout as the
// controller of one pod, they would add the Rollout's scale to it, expect twice as many
// pods, and allow nothing. A pod without a controller is healthy and not expected, which
// is what a pod too many should be.
//
// The ReplicaSet stays among the pod's owners, so that garbage collection still deletes
// the pod with it. In all else the ReplicaSet is treated like a Deployment that has no
// other (asDeployment).

const (
	// hashSuffix ends the label by which owners tie a pod to one of their ReplicaSets:
	// pod-template-hash, or rollouts-pod-template-hash of Argo Rollouts.
	hashSuffix = "pod-template-hash"
	// kruiseGroup is the API group of OpenKruise.
	kruiseGroup = "apps.kruise.io"
	// maxSurgeOfOthers is the default of Deployments and of Rollouts. What the owner says
	// is in a kind that we do not know.
	maxSurgeOfOthers = "25%"
)

// asDeployment is a Deployment that wants of this ReplicaSet what the ReplicaSet wants. It
// has its name and UID.
func asDeployment(set *appsv1.ReplicaSet) *appsv1.Deployment {
	surge := intstr.FromString(maxSurgeOfOthers)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name, UID: set.UID,
			Generation: set.Generation, DeletionTimestamp: set.DeletionTimestamp,
		},
		Spec: appsv1.DeploymentSpec{
			Replicas:        set.Spec.Replicas,
			MinReadySeconds: set.Spec.MinReadySeconds,
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge},
			},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: set.Status.ObservedGeneration},
	}
}

// setsFree reports whether the ReplicaSet is treated like a Deployment.
func (in *input) setsFree() bool {
	return in.set != nil && in.deployment != nil && in.set.UID == in.deployment.UID
}

// tieOf is the label by which the ReplicaSet selects its own pods among those of its
// owner, the first if there are several; empty if there is none.
func tieOf(set *appsv1.ReplicaSet) string {
	if set.Spec.Selector == nil {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(set.Spec.Selector.MatchLabels)) {
		if isTie(key) {
			return key
		}
	}
	return ""
}

func isTie(label string) bool { return strings.HasSuffix(label, hashSuffix) }

// tie is the label that is taken from the pod.
func (in *input) tie() string {
	if in.setsFree() {
		return tieOf(in.set)
	}
	return hashLabel
}

// mayBeLeft reports whether pods can be taken from the ReplicaSet although it is of no
// Deployment: somebody rolls it out, and its pods have a label to lose.
func mayBeLeft(set *appsv1.ReplicaSet) bool {
	return metav1.GetControllerOfNoCopy(set) != nil && tieOf(set) != ""
}

// whyNotLeft says why pods cannot be taken from a ReplicaSet, and what to do.
func whyNotLeft(set *appsv1.ReplicaSet) string {
	controller := metav1.GetControllerOfNoCopy(set)
	switch {
	case controller == nil:
		return fmt.Sprintf("ReplicaSet %s has no owner that rolls it out: use a Deployment instead of it, or run more replicas than its budget wants", set.Name)
	case isDeployment(controller):
		return belongsToNone
	default:
		return fmt.Sprintf("ReplicaSet %s of %s %s selects its pods by no label that ends with %s, so none can be taken from it", set.Name, controller.Kind, controller.Name, hashSuffix)
	}
}

// belongsToNone is why nobody would make a replacement.
const belongsToNone = "the pod belongs to no Deployment"

// isCloneSet: OpenKruise's CloneSets have pods without a ReplicaSet in between.
func isCloneSet(o *metav1.OwnerReference) bool {
	return o.Kind == "CloneSet" && strings.HasPrefix(o.APIVersion, kruiseGroup+"/")
}

// whyNotCloneSet says what to do instead.
func whyNotCloneSet(o *metav1.OwnerReference) string {
	return fmt.Sprintf("CloneSet %s has a surge of its own: set spec.updateStrategy.maxSurge, and label the pod %s/specified-delete=true before the drain", o.Name, kruiseGroup)
}

// serviceBy is the name of a Service that selects the pod by this label among others, the
// first if there are several; empty if there is none. Without the label, the pod would
// get no more requests through it.
func serviceBy(label string, pod *corev1.Pod, services []corev1.Service) string {
	found := ""
	for i := range services {
		selector := services[i].Spec.Selector
		if _, ok := selector[label]; !ok || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
			continue
		}
		if name := services[i].Name; found == "" || name < found {
			found = name
		}
	}
	return found
}

// rivalOf is the name of another of these ReplicaSets that wants pods, the first if there
// are several; empty if there is none. All have the same controller.
func rivalOf(set *appsv1.ReplicaSet, all []appsv1.ReplicaSet) string {
	found := ""
	for i := range all {
		other := &all[i]
		if other.UID == set.UID || other.Spec.Replicas != nil && *other.Spec.Replicas == 0 {
			continue
		}
		if found == "" || other.Name < found {
			found = other.Name
		}
	}
	return found
}

// named is the owner with its kind.
func (in *input) named() string {
	if in.setsFree() {
		return "ReplicaSet " + in.set.Name
	}
	return "Deployment " + in.deployment.Name
}

// frees reports whether the record is of a pod that was set free.
func (r record) frees() bool { return r.Deployment.UID == "" && r.ReplicaSet.UID != "" }

// named is the owner of the time when the pod was taken, with its kind.
func (r record) named() string {
	switch {
	case r.frees():
		return "ReplicaSet " + r.ReplicaSet.Name
	case r.Deployment.Name != "":
		return "Deployment " + r.Deployment.Name
	default:
		return "its owner"
	}
}

// label is the label that was taken.
func (r record) label() string { return cmp.Or(r.Label, hashLabel) }

// holderOf is the UID of the owner that a pod which is handed up or free counts for.
func holderOf(pod *corev1.Pod) types.UID {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.UID
	}
	if rec, up := handedUp(pod); up && rec.frees() {
		return rec.ReplicaSet.UID
	}
	return ""
}

// collects reports whether the pod goes with the owner that it has, or had when it was
// set free: garbage collection knows it as an owner still.
func collects(pod *corev1.Pod, rec record) bool {
	if _, controller := controllerOf(pod); controller != nil {
		return true
	}
	_, reference := referenceTo(pod, rec.ReplicaSet.UID)
	return reference != nil
}

// referenceTo returns the pod's reference to an owner, whether it is the controller or not,
// and its place.
func referenceTo(pod *corev1.Pod, uid types.UID) (int, *metav1.OwnerReference) {
	for i := range pod.OwnerReferences {
		if uid != "" && pod.OwnerReferences[i].UID == uid {
			return i, &pod.OwnerReferences[i]
		}
	}
	return 0, nil
}
