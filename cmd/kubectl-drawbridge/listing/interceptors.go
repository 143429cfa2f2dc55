// Package listing says of interceptors, hooks and budgets what fits into one line of a list.
// It is pure.
package listing

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Interceptor is one in one line.
type Interceptor struct {
	Name string `json:"name"`
	// Hook is the EvacuationHook, NAMESPACE/NAME, whose interceptor it is.
	Hook string `json:"hook,omitempty"`
	// Budgets are how many EvictionBudgets have their turn under the name.
	Budgets int `json:"budgets,omitempty"`
	// Native: native responders of pods have their turn under the name. It is built in.
	Native bool `json:"native,omitempty"`
	// Order: pods wait under the name for others of their node. It is built in.
	Order bool `json:"order,omitempty"`
	// Registered: there is an EvictionInterceptor, EvacuationHook or EvictionBudget, or it is
	// built in.
	// Accepted: it is in force.
	Registered bool   `json:"registered"`
	Accepted   string `json:"accepted,omitempty"`
	Priority   int32  `json:"priority,omitempty"`
	Guard      string `json:"guard,omitempty"`
	// Pods that it intercepts; nil if not known. Those of two EvictionBudgets count twice.
	Pods *int32 `json:"pods,omitempty"`
	// Active counts the pods for which it has its turn, Waiting those for which its
	// turn is still to come.
	Active  int `json:"active"`
	Waiting int `json:"waiting"`
	// Accounts may act under its name.
	Accounts []string `json:"accounts,omitempty"`
	// Trouble is why it is not in force, or which expression fails.
	Trouble string `json:"trouble,omitempty"`
}

// Interceptors counts turns for each interceptor, sorted by priority and name; those
// without a registration come last.
func Interceptors(registrations []v1alpha1.EvictionInterceptor, hooks []v1alpha1.EvacuationHook, budgets []v1alpha1.EvictionBudget, requests []v1alpha1.EvictionRequest) []Interceptor {
	found := map[string]*Interceptor{}
	for i := range registrations {
		from := &registrations[i]
		r := &Interceptor{Name: from.Name, Registered: true, Priority: v1alpha1.DefaultInterceptorPriority, Guard: string(from.Spec.Guard), Pods: from.Status.MatchingPods}
		if from.Spec.Priority != nil {
			r.Priority = *from.Spec.Priority
		}
		for _, account := range from.Spec.ServiceAccounts {
			r.Accounts = append(r.Accounts, account.Namespace+"/"+account.Name)
		}
		r.Accepted, r.Trouble = accepted(from.Status.Conditions)
		found[from.Name] = r
	}
	for i := range hooks {
		h := HookOf(&hooks[i])
		key := types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
		name := v1alpha1.HookInterceptor(key)
		found[name] = &Interceptor{
			Name: name, Hook: key.String(), Registered: true, Accepted: h.Accepted, Trouble: h.Trouble,
			Priority: h.Priority, Guard: h.Guard, Pods: h.Pods,
		}
	}
	if len(budgets) > 0 {
		found[v1alpha1.BudgetInterceptor] = budgetsInterceptor(budgets)
	}
	for i := range requests {
		countTurns(found, &requests[i])
	}
	var all []Interceptor
	for _, r := range found {
		all = append(all, *r)
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortFunc(all, func(a, b Interceptor) int {
		return cmp.Or(cmp.Compare(rank[a.Registered], rank[b.Registered]), cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
	})
	return all
}

// budgetsInterceptor is the one interceptor of all EvictionBudgets. It is in force whichever
// of them are accepted: those that are not hold their pods, too.
func budgetsInterceptor(budgets []v1alpha1.EvictionBudget) *Interceptor {
	r := &Interceptor{Name: v1alpha1.BudgetInterceptor, Budgets: len(budgets), Registered: true, Accepted: string(metav1.ConditionTrue), Priority: v1alpha1.BudgetPriority}
	var refused []string
	for _, b := range Budgets(budgets) {
		if b.Pods != nil {
			r.Pods = new(ptr.Deref(r.Pods, 0) + *b.Pods)
		}
		if b.Accepted == string(metav1.ConditionFalse) {
			refused = append(refused, b.Namespace+"/"+b.Name)
		}
	}
	if len(refused) > 0 {
		r.Trouble = "not accepted, see kubectl drawbridge budgets -A: " + strings.Join(refused, ", ")
	}
	return r
}

// accepted is the status of the condition Accepted, and what is wrong.
func accepted(conditions []metav1.Condition) (status, trouble string) {
	for _, kind := range []string{v1alpha1.ConditionEvaluated, v1alpha1.ConditionAccepted} {
		condition := meta.FindStatusCondition(conditions, kind)
		if condition == nil {
			continue
		}
		if kind == v1alpha1.ConditionAccepted {
			status = string(condition.Status)
		}
		if condition.Status == metav1.ConditionFalse {
			trouble = condition.Message
		}
	}
	return status, trouble
}

// countTurns counts the active and the waiting interceptors of a request.
func countTurns(found map[string]*Interceptor, er *v1alpha1.EvictionRequest) {
	if state := v1alpha1.Summarize(er).State; state == v1alpha1.StateEvicted || state == v1alpha1.StateCanceled {
		return
	}
	for _, target := range er.Status.TargetInterceptors {
		if target.Name == v1alpha1.ImperativeEvictionInterceptor || slices.Contains(er.Status.ProcessedInterceptors, target.Name) {
			continue
		}
		r := found[target.Name]
		if r == nil {
			r = &Interceptor{Name: target.Name}
			r.Native, r.Order = target.Name == v1alpha1.NativeInterceptor, target.Name == v1alpha1.OrderInterceptor
			if r.Native || r.Order {
				r.Registered, r.Accepted = true, string(metav1.ConditionTrue)
			}
			found[target.Name] = r
		}
		if slices.Contains(er.Status.ActiveInterceptors, target.Name) {
			r.Active++
		} else {
			r.Waiting++
		}
	}
}
