package registration

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// The order of the pods of a node (spec.after) is an interceptor of its own, under the name
// v1alpha1.OrderInterceptor and the account of the manager, Options.Account:
//
//   - It has its place right before the first interceptor of the pod whose registration has an
//     after. If the pod's annotation names it, that place counts, and there is no second one.
//   - Registrations whose names end in v1alpha1.OrderInterceptorSuffix have no interceptor of
//     their own: v1alpha1.OrderInterceptor stands in the place of the first of them, and the
//     others are left out.
//   - Whom the pod waits for is not part of the plan: Registry.After says it at any time, as
//     the registrations are then.
//   - Its guard is that of the registrations with an after.

// After is the compiled spec.after of a registration. It never changes.
type After struct {
	// Registration is the name of the registration.
	Registration string
	// Timeout is how long pods wait at most, from 1s to 24h.
	Timeout time.Duration

	selectors translate.Selectors
	guard     v1alpha1.GuardPolicy
}

// NewAfter compiles the order of a registration of that name. The error says which selector
// cannot be read.
func NewAfter(name string, from *v1alpha1.EvictionOrder) (*After, error) {
	selectors, err := translate.CompileSelectors(from.PodSelector, from.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.after.%w", err)
	}
	return &After{Registration: name, Timeout: from.TimeoutOrDefault(), selectors: selectors, guard: v1alpha1.GuardWhileEvacuating}, nil
}

// Selects reports whether pods with these labels, in a namespace with those, are to leave
// first.
func (a *After) Selects(pod, namespace map[string]string) bool {
	return a.selectors.Match(pod, namespace)
}

// compileAfter compiles spec.after, and refuses one by which the registration's own pods would
// surely wait for each other. Conditions may tell them apart, so that nothing is sure then.
func (e *entry) compileAfter(from *v1alpha1.EvictionInterceptor) *refusal {
	if from.Spec.After == nil {
		return nil
	}
	after, err := NewAfter(from.Name, from.Spec.After)
	if err != nil {
		return &refusal{v1alpha1.ReasonInvalidSelector, oneLine(err) + ". " + e.selectsNothing()}
	}
	own, others := placeOf(e.pods, e.namespaces), placeOf(after.selectors.Pods, after.selectors.Namespaces)
	if len(e.conditions) == 0 && circular(own, others) {
		return &refusal{v1alpha1.ReasonOrderCircle, "spec.after selects pods that the registration itself selects, so they would wait for each other. " +
			"Leave these out of spec.after, or out of the registration, for example by a matchExpression with the operator NotIn. " + e.selectsNothing()}
	}
	after.guard = e.Guard
	e.After = after
	return nil
}

// after returns the order of an accepted registration, nil if it has none.
func (s *snapshot) after(name string) *After {
	if s.ordered == 0 {
		return nil
	}
	if e, _, ok := s.known(name); ok && e.refused == nil {
		return e.After
	}
	return nil
}

// orders reports whether the registration has an order and is in force.
func (e *entry) orders() bool { return e != nil && e.refused == nil && e.After != nil }

// withOrder gives v1alpha1.OrderInterceptor its place among the interceptors of a pod, if one
// of these has an order. It may write to names.
func (s *snapshot) withOrder(names []string) []string {
	at := slices.IndexFunc(names, func(name string) bool { return v1alpha1.IsOrderName(name) || s.after(name) != nil })
	if at < 0 {
		return names
	}
	switch {
	case slices.Contains(names, v1alpha1.OrderInterceptor):
	case v1alpha1.IsOrderName(names[at]):
		names[at] = v1alpha1.OrderInterceptor
	default:
		names = slices.Insert(names, at, v1alpha1.OrderInterceptor)
	}
	return shortened(slices.DeleteFunc(names, v1alpha1.IsOrderName), v1alpha1.MaxPodInterceptors)
}

// After returns the orders of the registrations that intercept the pod, by its annotation or
// their selectors, in the order of its interceptors. Like those, they are not complete if there is an
// error: see Resolve.
func (r *Registry) After(pod *corev1.Pod) ([]*After, error) {
	if !r.Synced() {
		return nil, ErrNotSynced
	}
	s := r.snapshot()
	if s.ordered == 0 {
		return nil, nil
	}
	names, _, err := r.intercepting(s, pod, false)
	var found []*After
	for _, name := range names {
		if after := s.after(name); after != nil {
			found = append(found, after)
		}
	}
	return found, err
}

// ofOrder is what Registration says of it. On a lost node it gets no turn: nothing leaves that.
func (r *Registry) ofOrder() Info {
	found := Info{
		Name: v1alpha1.OrderInterceptor, Guard: v1alpha1.GuardWhileEvacuating,
		Planned: v1alpha1.Interceptor{OnNodeLost: v1alpha1.NodeLostSkip},
	}
	if r.options.Account != "" {
		found.Usernames = []string{r.options.Account}
	}
	return found
}

// orderGuard returns the strictest guard of the registrations by whose order a pod waits, and
// whether there is one.
func (r *Registry) orderGuard(pod *corev1.Pod) (strictest v1alpha1.GuardPolicy, ordered bool) {
	orders, _ := r.After(pod) // Those that are known count.
	for _, after := range orders {
		if ordered = true; slices.Index(guards, after.guard) > slices.Index(guards, strictest) {
			strictest = after.guard
		}
	}
	return strictest, ordered
}
