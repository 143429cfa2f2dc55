package registration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// The responders of a pod (spec.evictionResponders) are what Kubernetes' own API calls its
// interceptors. While Drawbridge takes part in that API (Options.Native), they are one
// interceptor, v1alpha1.NativeInterceptor, of every pod that has any, in all namespaces: as
// with the annotation, it is the pod itself that says so.
//
//   - It runs before all others. Its turn ends when that of v1alpha1.NativeResponder begins,
//     which stands for the rest. Without a place for that one (see nativeFull) it runs after all
//     others.
//   - If there are too many interceptors, it stays and another one goes: what the API server
//     has accepted in a pod must not be undone by registrations.
//   - v1alpha1.NativeResponder among them is none: it stands for the others, and a pod that has
//     no more than that is one without native responders. It may stand there because a policy of
//     the chart has put it there for the controllers of the cluster.
//   - It has no registration, priority or guard of its own. The manager acts for it, under
//     Options.Account. The annotation of a pod neither adds the name nor moves it.
//   - A registration or hook with a spec.nativeKey is left out of pods that name the key, also
//     where the annotation has it: the turn of that program is the native one, and it gets one.

// native reports whether the pod's responders are an interceptor now.
func (r *Registry) native(pod *corev1.Pod) bool {
	return r.options.Native != nil && pods.HasNativeResponders(pod) && r.options.Native()
}

// answersNatively reports whether an interceptor is one of the pod's responders, by the key of
// its registration.
func (e *entry) answersNatively(pod *corev1.Pod) bool {
	return e.nativeKey != "" && slices.ContainsFunc(pod.Spec.EvictionResponders, func(r corev1.EvictionResponder) bool { return r.Name == e.nativeKey })
}

// notNatively are the names that are not among the pod's responders by another name.
func notNatively(s *snapshot, names []string, pod *corev1.Pod) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		e, _, ok := s.known(keyOf(name))
		return ok && e.refused == nil && e.answersNatively(pod)
	})
}

// withNative adds v1alpha1.NativeInterceptor to the interceptors of a pod that has responders.
// If these are more than v1alpha1.MaxPodInterceptors then, the last one goes that is neither
// this nor that of the budgets, which else would be broken.
func withNative(names []string, pod *corev1.Pod) []string {
	names = shortened(names, v1alpha1.MaxPodInterceptors-1)
	if len(names) > 0 && nativeFull(pod) {
		return append(names, v1alpha1.NativeInterceptor)
	}
	return append([]string{v1alpha1.NativeInterceptor}, names...)
}

// nativeFull reports whether the Eviction of the pod has no place for
// v1alpha1.NativeResponder. A pod that names that itself has kept one.
func nativeFull(pod *corev1.Pod) bool {
	return len(pod.Spec.EvictionResponders) >= v1alpha1.MaxNativeResponders && !pods.NamesNativeResponder(pod)
}

// NativeChanged notifies the subscribers that Options.Native answers differently now.
func (r *Registry) NativeChanged() {
	r.update(func(*snapshot) change { return change{native: true} })
}

// ofNative is what Registration says of it. It does not depend on Options.Native: nobody else
// may report under the name in a plan from before, either.
func (r *Registry) ofNative() (Info, bool) {
	if r.options.Native == nil {
		return Info{}, false
	}
	found := Info{Name: v1alpha1.NativeInterceptor, Guard: v1alpha1.GuardWhileEvacuating}
	if r.options.Account != "" {
		found.Usernames = []string{r.options.Account}
	}
	return found, true
}
