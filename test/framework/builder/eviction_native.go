package builder

import (
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// NativeEvictionWrapper builds an Eviction of Kubernetes' own API.
type NativeEvictionWrapper struct {
	*lifecyclev1alpha1.Eviction
	common[*NativeEvictionWrapper, *lifecyclev1alpha1.Eviction]
}

func wrapNativeEviction(object *lifecyclev1alpha1.Eviction) *NativeEvictionWrapper {
	return share(&NativeEvictionWrapper{Eviction: object}, object, wrapNativeEviction)
}

// NativeEviction begins with the first Eviction of this pod, without a status.
func NativeEviction(namespace, pod string, uid types.UID) *NativeEvictionWrapper {
	return wrapNativeEviction(&lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod-1-" + pod},
		Spec:       lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{Pod: &lifecyclev1alpha1.EvictionPodReference{Name: pod, UID: uid}}},
	})
}

// Name sets metadata.name.
func (w *NativeEvictionWrapper) Name(name string) *NativeEvictionWrapper {
	w.Eviction.Name = name
	return w
}

// Requesters adds requesters that want the eviction.
func (w *NativeEvictionWrapper) Requesters(names ...string) *NativeEvictionWrapper {
	for _, name := range names {
		w.Status.Requesters = append(w.Status.Requesters, lifecyclev1alpha1.Requester{Name: name, Intent: lifecyclev1alpha1.RequesterIntentEviction})
	}
	return w
}

// Responders makes it one that was planned: these responders with the priority of
// [PodWrapper.Responders], that of Drawbridge's interceptors with its own, and the evictor last.
// Nobody has had a turn.
func (w *NativeEvictionWrapper) Responders(names ...string) *NativeEvictionWrapper {
	for _, name := range append(names[:len(names):len(names)], lifecyclev1alpha1.EvictionResponderImperativeEviction) {
		priority := int32(10000)
		switch name {
		case v1alpha1.NativeResponder:
			priority = v1alpha1.DefaultNativePriority
		case lifecyclev1alpha1.EvictionResponderImperativeEviction:
			priority = 100
		}
		w.Also(name, priority)
	}
	return w
}

// Also adds a responder with this priority.
func (w *NativeEvictionWrapper) Also(name string, priority int32) *NativeEvictionWrapper {
	w.Status.TargetResponders = append(w.Status.TargetResponders, lifecyclev1alpha1.TargetResponder{Name: name, Priority: &priority, State: lifecyclev1alpha1.ResponderStateInactive})
	w.Status.Responders = append(w.Status.Responders, lifecyclev1alpha1.ResponderStatus{Name: name})
	return w
}

// State sets that of a responder, which has its turn since then.
func (w *NativeEvictionWrapper) State(name string, state lifecyclev1alpha1.ResponderStateType, since time.Time) *NativeEvictionWrapper {
	for i := range w.Status.TargetResponders {
		if w.Status.TargetResponders[i].Name == name {
			w.Status.TargetResponders[i].State = state
		}
	}
	return w.Report(name, func(s *lifecyclev1alpha1.ResponderStatus) { s.StartTime = ptr.To(metav1.NewTime(since)) })
}

// Report changes the report of a responder, which Responders must have set up.
func (w *NativeEvictionWrapper) Report(name string, change func(*lifecyclev1alpha1.ResponderStatus)) *NativeEvictionWrapper {
	for i := range w.Status.Responders {
		if w.Status.Responders[i].Name == name {
			change(&w.Status.Responders[i])
			return w
		}
	}
	panic("builder: no responder " + name + " in the Eviction")
}

// Ended sets a condition that is True since then.
func (w *NativeEvictionWrapper) Ended(kind lifecyclev1alpha1.EvictionConditionType, since time.Time) *NativeEvictionWrapper {
	meta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(since)})
	return w
}
