package builder

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvacuationHookWrapper builds an EvacuationHook.
type EvacuationHookWrapper struct {
	*v1alpha1.EvacuationHook
	common[*EvacuationHookWrapper, *v1alpha1.EvacuationHook]
	chooser[*EvacuationHookWrapper]
}

func wrapEvacuationHook(object *v1alpha1.EvacuationHook) *EvacuationHookWrapper {
	w := share(&EvacuationHookWrapper{EvacuationHook: object}, object, wrapEvacuationHook)
	spec := &object.Spec
	w.chooser = chooser[*EvacuationHookWrapper]{w, &spec.PodSelector, &spec.MatchConditions, &spec.Priority, &spec.Guard}
	return w
}

// EvacuationHook begins with a hook for all pods of the namespace that waits for nothing,
// as it is when it has just been created: generation 1.
func EvacuationHook(namespace, name string) *EvacuationHookWrapper {
	return wrapEvacuationHook(&v1alpha1.EvacuationHook{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec:       v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "true"}},
	})
}

// Job makes it run a Job of this template, in JSON.
func (w *EvacuationHookWrapper) Job(template string) *EvacuationHookWrapper {
	w.Spec.Wait, w.Spec.Job = nil, &v1alpha1.HookJob{Template: runtime.RawExtension{Raw: []byte(template)}}
	return w
}

// Run adds a run to the status.
func (w *EvacuationHookWrapper) Run(run v1alpha1.HookRun) *EvacuationHookWrapper {
	w.Status.Runs = append(w.Status.Runs, run)
	return w
}

// NativeKey sets spec.nativeKey.
func (w *EvacuationHookWrapper) NativeKey(key string) *EvacuationHookWrapper {
	w.Spec.NativeKey = key
	return w
}
