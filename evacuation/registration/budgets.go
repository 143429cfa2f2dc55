package registration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// EvictionBudgets are registrations, too, but of one interceptor: all act under the name
// v1alpha1.BudgetInterceptor, under the account of the manager, Options.Account, and at
// v1alpha1.BudgetPriority. A pod that any of them covers has that name once.
//
//   - A budget covers pods of its own namespace, by its selector. It is found by the
//     namespace and takes no slot, so budgets cost pods of other namespaces nothing.
//   - What it allows is not looked at here: a budget that its controller does not accept
//     covers its pods, so that they are held. Only one whose selector cannot be read covers
//     none.
//   - Its controller counts its pods. It is in no metric of registrations.
//   - The annotation of a pod neither adds the name nor moves it: who covers the pod is said
//     by budgets alone, and what is granted early would only keep others waiting.

// budget is one generation of an EvictionBudget. It never changes.
type budget struct {
	name       string
	uid        types.UID
	generation int64
	pods       labels.Selector
	guard      v1alpha1.GuardPolicy
}

// ofBudgets is the registration of all budgets, as the order of a pod's interceptors sees
// it.
var ofBudgets = &entry{Info: Info{Name: v1alpha1.BudgetInterceptor, Priority: v1alpha1.BudgetPriority}}

// guards are the policies, the strictest last.
var guards = []v1alpha1.GuardPolicy{v1alpha1.GuardNever, v1alpha1.GuardWhileEvacuating, v1alpha1.GuardAlways}

func compileBudget(from *v1alpha1.EvictionBudget) budget {
	b := budget{name: from.Name, uid: from.UID, generation: from.Generation, guard: from.Spec.Guard}
	if b.guard == "" {
		b.guard = v1alpha1.GuardWhileEvacuating
	}
	var err error
	if b.pods, err = metav1.LabelSelectorAsSelector(from.Spec.Selector); err != nil {
		b.pods = labels.Nothing() // The controller says so in the status.
	}
	return b
}

// is reports whether it was compiled from that generation.
func (b *budget) is(from *v1alpha1.EvictionBudget) bool {
	return b.uid == from.UID && b.generation == from.Generation
}

// budget returns the budget of that name, nil if there is none.
func (s *snapshot) budget(namespace, name string) *budget {
	all := s.budgets[namespace]
	if at := slices.IndexFunc(all, func(b budget) bool { return b.name == name }); at >= 0 {
		return &all[at]
	}
	return nil
}

// putBudget adds a budget, or replaces an older generation.
func (s *snapshot) putBudget(namespace string, b budget) {
	s.removeBudget(namespace, b.name)
	s.budgets[namespace] = append(s.budgets[namespace], b)
}

// removeBudget removes a budget. Other snapshots share the slice, so it is copied.
func (s *snapshot) removeBudget(namespace, name string) {
	rest := slices.DeleteFunc(slices.Clone(s.budgets[namespace]), func(b budget) bool { return b.name == name })
	if len(rest) == 0 {
		delete(s.budgets, namespace)
		return
	}
	s.budgets[namespace] = rest
}

// budgeted returns the strictest guard of the budgets that cover a pod, and whether any
// does.
func (r *Registry) budgeted(s *snapshot, pod *corev1.Pod) (strictest v1alpha1.GuardPolicy, covered bool) {
	if r.excludes(pod.Namespace) {
		return "", false
	}
	for _, b := range s.budgets[pod.Namespace] {
		if !b.pods.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if covered = true; slices.Index(guards, b.guard) > slices.Index(guards, strictest) {
			strictest = b.guard
		}
	}
	return strictest, covered
}

// ofBudgets is what Registration says of them. Without budgets nobody acts under the name.
func (r *Registry) ofBudgets() (Info, bool) {
	if !r.options.Budgets {
		return Info{}, false
	}
	found := ofBudgets.Info
	found.Guard = v1alpha1.GuardWhileEvacuating
	if r.options.Account != "" {
		found.Usernames = []string{r.options.Account}
	}
	return found, true
}

// RegistrationOf is Registration for one pod: the guard of budgets is the strictest of those
// that cover it, and that of the order the strictest of the registrations that say it. If none
// does any more, while the plan of a request has the name, it is
// v1alpha1.GuardWhileEvacuating, as for other interceptors that are gone.
func (r *Registry) RegistrationOf(name string, pod *corev1.Pod) (Info, bool) {
	found, ok := r.Registration(name)
	if !ok {
		return found, false
	}
	strictest, known := v1alpha1.GuardPolicy(""), false
	switch name {
	case v1alpha1.BudgetInterceptor:
		strictest, known = r.budgeted(r.snapshot(), pod)
	case v1alpha1.OrderInterceptor:
		strictest, known = r.orderGuard(pod)
	}
	if known {
		found.Guard = strictest
	}
	return found, true
}

func (r *Registry) putBudget(from *v1alpha1.EvictionBudget) {
	r.mu.Lock()
	known := r.next.budget(from.Namespace, from.Name)
	r.mu.Unlock()
	if known != nil && known.is(from) {
		return // Only the status or metadata have changed, as with every grant.
	}
	b := compileBudget(from)
	r.update(func(next *snapshot) change {
		next.putBudget(from.Namespace, b)
		return change{budgets: from.Namespace}
	})
}

// removeBudget is remove for a budget.
func (r *Registry) removeBudget(key string) {
	namespace, name, err := toolscache.SplitMetaNamespaceKey(key)
	if err != nil {
		return
	}
	r.mu.Lock()
	known := r.next.budget(namespace, name)
	r.mu.Unlock()
	if known == nil {
		return
	}
	r.update(func(next *snapshot) change {
		next.removeBudget(namespace, name)
		return change{budgets: namespace}
	})
}

// listBudgets puts the budgets of a namespace into a snapshot. It compiles those that are not
// known.
func (r *Registry) listBudgets(ctx context.Context, live client.Reader, namespace string, known, into *snapshot) error {
	if !r.options.Budgets {
		return nil
	}
	list := &v1alpha1.EvictionBudgetList{}
	if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the budgets of namespace %s live: %w", namespace, err)
	}
	for i := range list.Items {
		from := &list.Items[i]
		if b := known.budget(namespace, from.Name); b != nil && b.is(from) {
			into.putBudget(namespace, *b)
			continue
		}
		into.putBudget(namespace, compileBudget(from))
	}
	return nil
}

// isBuiltIn reports whether a name is that of a hook, of the budgets or of native responders,
// which nobody else may have.
func isBuiltIn(name string) bool {
	return isHookName(name) || name == v1alpha1.BudgetInterceptor || name == v1alpha1.NativeInterceptor
}
