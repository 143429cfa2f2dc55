package builder

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvacuationHookWrapper builds an EvacuationHook.
type EvacuationHookWrapper struct{ v1alpha1.EvacuationHook }

// EvacuationHook begins with a hook for all pods of the namespace that waits for nothing,
// as it is when it has just been created: generation 1.
func EvacuationHook(namespace, name string) *EvacuationHookWrapper {
	return &EvacuationHookWrapper{v1alpha1.EvacuationHook{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec:       v1alpha1.EvacuationHookSpec{Wait: &v1alpha1.HookWait{Until: "true"}},
	}}
}

// Obj returns the hook.
func (w *EvacuationHookWrapper) Obj() *v1alpha1.EvacuationHook { return &w.EvacuationHook }

// Clone returns an independent copy.
func (w *EvacuationHookWrapper) Clone() *EvacuationHookWrapper {
	return &EvacuationHookWrapper{*w.DeepCopy()}
}

// UID sets metadata.uid.
func (w *EvacuationHookWrapper) UID(uid types.UID) *EvacuationHookWrapper {
	w.EvacuationHook.UID = uid
	return w
}

// Generation sets metadata.generation.
func (w *EvacuationHookWrapper) Generation(generation int64) *EvacuationHookWrapper {
	w.EvacuationHook.Generation = generation
	return w
}

// Pods selects pods by a label more.
func (w *EvacuationHookWrapper) Pods(key, value string) *EvacuationHookWrapper {
	addLabel(&w.Spec.PodSelector, key, value)
	return w
}

// PodsWhere selects pods by a requirement more.
func (w *EvacuationHookWrapper) PodsWhere(key string, operator metav1.LabelSelectorOperator, values ...string) *EvacuationHookWrapper {
	addRequirement(&w.Spec.PodSelector, key, operator, values)
	return w
}

// When adds matchConditions, named c0, c1 and so on.
func (w *EvacuationHookWrapper) When(expressions ...string) *EvacuationHookWrapper {
	for _, expression := range expressions {
		w.Spec.MatchConditions = append(w.Spec.MatchConditions, v1alpha1.MatchCondition{
			Name: "c" + strconv.Itoa(len(w.Spec.MatchConditions)), Expression: expression,
		})
	}
	return w
}

// Priority sets the priority.
func (w *EvacuationHookWrapper) Priority(priority int32) *EvacuationHookWrapper {
	w.Spec.Priority = &priority
	return w
}

// Guard sets when a budget protects the pods.
func (w *EvacuationHookWrapper) Guard(guard v1alpha1.GuardPolicy) *EvacuationHookWrapper {
	w.Spec.Guard = guard
	return w
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
