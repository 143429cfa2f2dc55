package registration

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// An EvacuationHook is a registration like an EvictionInterceptor, under the name
// v1alpha1.HookInterceptor, with these differences:
//
//   - it selects pods of its own namespace only. Its slot is found by the namespace and
//     in no other index, so hooks cost pods of other namespaces nothing;
//   - its expressions may call the pod pod, too;
//   - it acts under the account of the manager, Options.Account;
//   - whoever may write hooks is no administrator of the cluster. So hooks are in no
//     metric, neither in the number of registrations, whose refused ones raise an alert,
//     nor as a series of their own;
//   - what it does is not looked at here: a hook whose template is bad covers its pods.
//
// All names under v1alpha1.HookInterceptorSuffix belong to hooks.

// compileHook compiles a hook that acts under the account, or under any if that is empty.
func compileHook(from *v1alpha1.EvacuationHook, account string) *entry {
	hook := types.NamespacedName{Namespace: from.Namespace, Name: from.Name}
	as := &v1alpha1.EvictionInterceptor{}
	as.Name, as.UID, as.Generation = v1alpha1.HookInterceptor(hook), from.UID, from.Generation
	as.Spec.PodSelector, as.Spec.MatchConditions = from.Spec.PodSelector, from.Spec.MatchConditions
	as.Spec.Priority, as.Spec.Guard = from.Spec.Priority, from.Spec.Guard
	as.Spec.Minimum, as.Spec.OnShortNotice, as.Spec.NativeKey = from.Spec.Minimum, from.Spec.OnShortNotice, from.Spec.NativeKey
	as.Spec.OnNodeLost = from.Spec.NodeLostPolicy()

	e := newEntry(as)
	e.key, e.hook = hookKey(hook), hook
	if account != "" {
		e.Usernames = []string{account}
	}
	e.compile(as, e.compileSelectors, e.compileConditions)
	e.pods = e.pods.Add(notOfHooks)
	return e
}

// notOfHooks leaves out the pods of the hooks' own Jobs: the drain of one would begin
// another, and so on.
var notOfHooks = func() labels.Requirement {
	r, err := labels.NewRequirement(v1alpha1.HookLabel, selection.DoesNotExist, nil)
	utilruntime.Must(err) // It is a constant.
	return *r
}()

// hookKey is the key of a hook's entry: that of the object. Those of EvictionInterceptors
// have no slash.
func hookKey(hook types.NamespacedName) string { return hook.Namespace + "/" + hook.Name }

// hookOf is the hook whose key it is.
func hookOf(key string) (hook types.NamespacedName, ok bool) {
	namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
	return types.NamespacedName{Namespace: namespace, Name: name}, err == nil && namespace != ""
}

// keyOf is the key of the entry under which an interceptor of that name is registered.
func keyOf(interceptor string) string {
	if hook, ok := v1alpha1.HookOf(interceptor); ok {
		return hookKey(hook)
	}
	return interceptor
}

// isHook reports whether the entry is that of a hook.
func (e *entry) isHook() bool { return e.hook.Name != "" }

// named returns the names of the pod's annotation. Those of hooks count if the hook is
// accepted and of the pod's own namespace. Hooks of others could do nothing for the pod,
// and one that does not exist would never answer. The names of the budgets and of native
// responders never count: see budgets.go and native.go.
func (r *Registry) named(s *snapshot, pod *corev1.Pod) []string {
	names := r.annotated.names(pod)
	if !slices.ContainsFunc(names, isBuiltIn) {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool {
		if !isHookName(name) {
			return isBuiltIn(name)
		}
		e, _, ok := s.known(keyOf(name))
		return !ok || e.refused != nil || e.hook.Namespace != pod.Namespace || r.excludes(pod.Namespace)
	})
}

// isHookName reports whether only a hook may have the name.
func isHookName(name string) bool { return strings.HasSuffix(name, v1alpha1.HookInterceptorSuffix) }

func (r *Registry) putHook(from *v1alpha1.EvacuationHook) {
	hook := types.NamespacedName{Namespace: from.Namespace, Name: from.Name}
	r.putEntry(hookKey(hook), from.UID, from.Generation, func() *entry { return compileHook(from, r.options.Account) })
}

// HookReport is what the registry knows of one generation of a hook.
type HookReport struct {
	// Generation and UID are those of the hook that was looked at.
	Generation int64
	UID        types.UID
	// MatchingPods is how many pods it selects, by its own selector and expressions.
	MatchingPods int
	// Failing is for how many pods an expression fails. They are not selected.
	Failing int
	// Example is one of them and why, for people; empty for none.
	Example string
	// Refused says why the hook is not accepted; nil if its selectors and expressions
	// are well formed. One that is refused selects nothing.
	Refused *HookRefusal
}

// HookRefusal is the reason and message of the condition Accepted=False.
type HookRefusal struct{ Reason, Message string }

// Report returns what is known of a hook, by the name of its interceptor, and whether its
// pods have been counted. Before the controller has started, nothing is. Later changes
// are told to OnHook.
func (r *StatusReconciler) Report(name string) (found HookReport, counted bool) {
	members := r.counter()
	hook, ok := v1alpha1.HookOf(name)
	if members == nil || !ok {
		return HookReport{}, false
	}
	known, counted := members.report(hookKey(hook))
	if !counted {
		return HookReport{}, false
	}
	found = HookReport{
		Generation: known.entry.generation, UID: known.entry.uid,
		MatchingPods: known.matching, Failing: known.failing, Example: known.example,
	}
	if refused := known.entry.refused; refused != nil {
		found.Refused = &HookRefusal{Reason: refused.reason, Message: refused.message}
	}
	return found, true
}

// OnHook calls f when the report of a hook is first known and when it has changed since
// Report was last called. f must return soon. Call it before the manager starts; only the
// last f is called.
func (r *StatusReconciler) OnHook(f func(hook types.NamespacedName)) { r.onHook = f }
