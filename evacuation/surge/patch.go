package surge

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/jsonpatch"
)

// record is what a handed-up pod remembers in HandedUpAnnotation.
type record struct {
	// Hash is the value of the label that was taken.
	Hash string `json:"hash"`
	// Label is its key, empty for pod-template-hash.
	Label string `json:"label,omitempty"`
	// ReplicaSet was the pod's controller, Deployment is it now. A pod that was set free
	// has none.
	ReplicaSet owner `json:"replicaSet"`
	Deployment owner `json:"deployment,omitzero"`
	// At is when the pod was handed up.
	At metav1.Time `json:"at"`
}

// owner names an object of the pod's namespace.
type owner struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// failure is what a pod remembers in FailedAnnotation.
type failure struct {
	// Request is the UID of the EvictionRequest.
	Request types.UID `json:"request"`
	Message string    `json:"message"`
}

// handedUp returns the record of a handed-up pod. A pod with an unreadable annotation
// cannot be given back: its record names no ReplicaSet.
func handedUp(pod *corev1.Pod) (record, bool) {
	value, ok := pod.Annotations[HandedUpAnnotation]
	if !ok {
		return record{}, false
	}
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller != nil && !isDeployment(controller) {
		return record{}, false // It was given back by other means.
	}
	var rec record
	if err := json.Unmarshal([]byte(value), &rec); err != nil || !isTie(rec.label()) {
		rec = record{}
	}
	if controller != nil && controller.UID != rec.Deployment.UID {
		// The control plane uses the reference.
		rec = record{Deployment: owner{controller.Name, controller.UID}, At: rec.At}
	}
	return rec, true
}

// failedBefore returns why the pod was given back during this request.
func failedBefore(pod *corev1.Pod, request types.UID) (string, bool) {
	var f failure
	if err := json.Unmarshal([]byte(pod.Annotations[FailedAnnotation]), &f); err != nil || f.Request != request {
		return "", false
	}
	return f.Message, true
}

func isDeployment(o *metav1.OwnerReference) bool {
	return o.Kind == "Deployment" && strings.HasPrefix(o.APIVersion, appsv1.GroupName+"/")
}

func isReplicaSet(o *metav1.OwnerReference) bool {
	return o.Kind == "ReplicaSet" && strings.HasPrefix(o.APIVersion, appsv1.GroupName+"/")
}

// hashLabel is what a ReplicaSet of a Deployment selects its pods by.
const hashLabel = appsv1.DefaultDeploymentUniqueLabelKey

// takePatch takes the pod from its ReplicaSet: hands it up, or sets it free.
func takePatch(in *input) ([]byte, error) {
	if in.setsFree() {
		return setFreePatch(in.pod, in.tie(), in.now)
	}
	return handUpPatch(in.pod, in.deployment, in.now)
}

// handUpPatch takes the pod from its ReplicaSet and gives it to the Deployment, if it has
// not changed: the same pod, with the same label and the same controller.
func handUpPatch(pod *corev1.Pod, deployment *appsv1.Deployment, now time.Time) ([]byte, error) {
	// It does not block the Deployment's deletion, so no admission plugin requires that
	// permission.
	return replaceController(pod, record{Deployment: owner{deployment.Name, deployment.UID}}, metav1.OwnerReference{
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment",
		Name: deployment.Name, UID: deployment.UID, Controller: ptr.To(true),
	}, now)
}

// setFreePatch takes the pod from its ReplicaSet and gives it to nobody, if it has not
// changed. The ReplicaSet stays an owner like any other.
func setFreePatch(pod *corev1.Pod, label string, now time.Time) ([]byte, error) {
	if !isTie(label) {
		return nil, fmt.Errorf("set pod %s free: label %q does not tie it to a ReplicaSet", pod.Name, label)
	}
	var reference metav1.OwnerReference
	if _, controller := controllerOf(pod); controller != nil {
		reference = *controller
		reference.Controller, reference.BlockOwnerDeletion = nil, nil
	}
	rec := record{}
	if label != hashLabel {
		rec.Label = label
	}
	return replaceController(pod, rec, reference, now)
}

// replaceController puts a reference in the place of that to the ReplicaSet, and takes the
// label that ties the pod to it. The record says which label, and who is the owner now.
func replaceController(pod *corev1.Pod, rec record, by metav1.OwnerReference, now time.Time) ([]byte, error) {
	i, controller := controllerOf(pod)
	if controller == nil || !isReplicaSet(controller) {
		return nil, fmt.Errorf("hand up pod %s: it has no ReplicaSet", pod.Name)
	}
	rec.Hash = pod.Labels[rec.label()]
	rec.ReplicaSet = owner{controller.Name, controller.UID}
	rec.At = metav1.NewTime(now.UTC().Truncate(time.Second))
	value, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	path, label := referencePath(i), jsonpatch.Label(rec.label())
	ops := []jsonpatch.Op{
		jsonpatch.TestUID(pod.UID),
		jsonpatch.Test(label, rec.Hash),
		jsonpatch.Test(path, controller),
		jsonpatch.Replace(path, by),
		jsonpatch.Remove(label),
	}
	if _, ok := pod.Annotations[FailedAnnotation]; ok {
		ops = append(ops, jsonpatch.Remove(jsonpatch.Annotation(FailedAnnotation)))
	}
	ops = append(ops, annotate(pod, HandedUpAnnotation, string(value))...)
	return jsonpatch.Encode(ops)
}

// giveBackPatch gives a handed-up pod back to its ReplicaSet, if it has not changed. A
// failure, if any, is recorded.
func giveBackPatch(pod *corev1.Pod, rec record, why *failure) ([]byte, error) {
	back := metav1.OwnerReference{ // As the ReplicaSet's controller makes it.
		APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet",
		Name: rec.ReplicaSet.Name, UID: rec.ReplicaSet.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
	ops := []jsonpatch.Op{
		jsonpatch.TestUID(pod.UID),
		jsonpatch.Test(jsonpatch.Annotation(HandedUpAnnotation), pod.Annotations[HandedUpAnnotation]),
	}
	i, former := controllerOf(pod)
	if former == nil { // It was set free, or its owner was deleted without it.
		i, former = referenceTo(pod, rec.ReplicaSet.UID)
	}
	switch {
	case former != nil:
		ops = append(ops, jsonpatch.Test(referencePath(i), former), jsonpatch.Replace(referencePath(i), back))
	case len(pod.OwnerReferences) > 0:
		ops = append(ops, unchanged(pod), jsonpatch.Add("/metadata/ownerReferences/-", back))
	default:
		ops = append(ops, unchanged(pod), jsonpatch.Add("/metadata/ownerReferences", []metav1.OwnerReference{back}))
	}
	if len(pod.Labels) > 0 {
		ops = append(ops, jsonpatch.Add(jsonpatch.Label(rec.label()), rec.Hash))
	} else {
		ops = append(ops, unchanged(pod), jsonpatch.Add("/metadata/labels", map[string]string{rec.label(): rec.Hash}))
	}
	ops = append(ops, jsonpatch.Remove(jsonpatch.Annotation(HandedUpAnnotation)))
	if why != nil {
		value, err := json.Marshal(failure{Request: why.Request, Message: cut(why.Message)})
		if err != nil {
			return nil, fmt.Errorf("encode failure: %w", err)
		}
		ops = append(ops, jsonpatch.Add(jsonpatch.Annotation(FailedAnnotation), string(value)))
	}
	return jsonpatch.Encode(ops)
}

// maxRemembered is how many characters of a message a pod remembers.
const maxRemembered = 1000

func cut(message string) string {
	if runes := []rune(message); len(runes) > maxRemembered {
		return string(runes[:maxRemembered])
	}
	return message
}

// annotate sets an annotation, also on a pod that has none yet.
func annotate(pod *corev1.Pod, key, value string) []jsonpatch.Op {
	if len(pod.Annotations) > 0 {
		return []jsonpatch.Op{jsonpatch.Add(jsonpatch.Annotation(key), value)}
	}
	return []jsonpatch.Op{unchanged(pod), jsonpatch.Add("/metadata/annotations", map[string]string{key: value})}
}

// unchanged tests that nothing has changed, for operations that would overwrite
// additions of others.
func unchanged(pod *corev1.Pod) jsonpatch.Op {
	return jsonpatch.Test("/metadata/resourceVersion", pod.ResourceVersion)
}

// referencePath is the path of one of the pod's owners.
func referencePath(i int) string { return fmt.Sprintf("/metadata/ownerReferences/%d", i) }

// controllerOf returns the pod's controller and its place among the owners.
func controllerOf(pod *corev1.Pod) (int, *metav1.OwnerReference) {
	for i := range pod.OwnerReferences {
		if ptr.Deref(pod.OwnerReferences[i].Controller, false) {
			return i, &pod.OwnerReferences[i]
		}
	}
	return 0, nil
}
