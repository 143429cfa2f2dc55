package guard

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// knownOwners is how many controllers of pods are remembered.
const knownOwners = 10_000

// selecting are the kinds of controllers that lose a pod when its labels no longer match their
// selector, and then create another one. Their selectors are immutable, except for
// ReplicationControllers.
var selecting = map[schema.GroupKind]bool{
	{Group: "apps", Kind: "ReplicaSet"}:        true,
	{Group: "apps", Kind: "StatefulSet"}:       true,
	{Group: "apps", Kind: "DaemonSet"}:         true,
	{Group: "batch", Kind: "Job"}:              true,
	{Group: "", Kind: "ReplicationController"}: true,
}

// owners knows the selectors of the controllers of pods, by UID. It is a hint: unknown ones are
// read once. Safe for concurrent use.
type owners struct {
	known *lru.Cache
	mu    sync.Mutex
}

// owner is what is known of a controller.
type owner struct {
	// selector is nil when it does not depend on the guard's label.
	selector labels.Selector
	// emitted: an event was recorded about it.
	emitted bool
}

func newOwners() *owners { return &owners{known: lru.New(knownOwners)} }

// of returns the pod's controller, nil when it has none whose selector could matter.
func (o *owners) of(pod *corev1.Pod) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || !selecting[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()] {
		return nil
	}
	return ref
}

// unknown reports whether the pod's controller must be read before its label may be written.
func (o *owners) unknown(pod *corev1.Pod) bool {
	ref := o.of(pod)
	if ref == nil {
		return false
	}
	_, known := o.known.Get(ref.UID)
	return !known
}

// learn reads the pod's controller, unless it is known. One that may not be read, or is gone,
// counts as not selecting by the guard's label.
func (o *owners) learn(ctx context.Context, reader client.Reader, pod *corev1.Pod) error {
	ref := o.of(pod)
	if ref == nil || !o.unknown(pod) {
		return nil
	}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	err := reader.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name}, object)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && object.GetUID() != ref.UID {
		o.known.Add(ref.UID, owner{})
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the pod's %s: %w", ref.Kind, err)
	}
	selector, err := selectorOf(object)
	if err != nil {
		return fmt.Errorf("read the selector of %s %s: %w", ref.Kind, ref.Name, err)
	}
	if !mentions(selector) {
		selector = nil
	}
	o.known.Add(ref.UID, owner{selector: selector})
	return nil
}

// bound reports whether a change of the guard's label would take the pod away from its
// controller, as far as that is known.
func (o *owners) bound(pod *corev1.Pod) bool {
	ref := o.of(pod)
	if ref == nil {
		return false
	}
	known, ok := o.known.Get(ref.UID)
	if !ok {
		return false
	}
	selector := known.(owner).selector
	return selector != nil && selector.Matches(labels.Set(pod.Labels)) && !selector.Matches(moved(pod))
}

// firstTime reports whether no event was emitted yet about the pod's controller, and notes that one
// is.
func (o *owners) firstTime(ref *metav1.OwnerReference) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.known.Get(ref.UID)
	if !ok || known.(owner).emitted {
		return false
	}
	o.known.Add(ref.UID, owner{selector: known.(owner).selector, emitted: true})
	return true
}

// moved are the labels of the pod after its guard has closed, or opened.
func moved(pod *corev1.Pod) labels.Set {
	after := maps.Clone(pod.Labels)
	if labeled(pod) {
		delete(after, v1alpha1.GuardLabel)
		return after
	}
	if after == nil {
		after = map[string]string{}
	}
	after[v1alpha1.GuardLabel] = v1alpha1.GuardClosed
	return after
}

// selectorOf reads spec.selector, which in a ReplicationController is a map.
func selectorOf(object *unstructured.Unstructured) (labels.Selector, error) {
	if object.GetKind() == "ReplicationController" {
		set, _, err := unstructured.NestedStringMap(object.Object, "spec", "selector")
		return labels.SelectorFromSet(set), err
	}
	fields, found, err := unstructured.NestedMap(object.Object, "spec", "selector")
	if err != nil || !found {
		return labels.Nothing(), err
	}
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &selector); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(&selector)
}

// mentions reports whether a selector depends on the guard's label.
func mentions(selector labels.Selector) bool {
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		if r.Key() == v1alpha1.GuardLabel {
			return true
		}
	}
	return false
}
