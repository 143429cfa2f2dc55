package registration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// order merges the names of a pod's annotation with the registrations that select
// the pod. The order is total and does not depend on that of selected:
//
//   - registrations run by priority, higher first, equal ones by name;
//   - the annotation's names keep their order, whatever their names are: it is the
//     pod author's word. All of them count as DefaultInterceptorPriority. So
//     registrations of a higher priority run before all of them, those of a lower
//     one after all of them, and one of the same priority before the first of them
//     whose name is greater than its own;
//   - a name that is in both has its place in the annotation.
//
// At most v1alpha1.MaxPodInterceptors names are returned: the last ones go. That of the
// budgets takes the last place then: else whoever names others in a pod's annotation would
// be rid of them.
func order(annotated []string, selected []*entry) []string {
	if len(selected) == 0 {
		return annotated
	}
	slices.SortFunc(selected, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
	})
	names := make([]string, 0, len(annotated)+len(selected))
	rest := annotated
	for _, e := range selected {
		if slices.Contains(annotated, e.Name) {
			continue
		}
		// With rest in its order, this is a merge of two lists: it stops at the first
		// name that is greater.
		for len(rest) > 0 && precedes(rest[0], e) {
			names, rest = append(names, rest[0]), rest[1:]
		}
		names = append(names, e.Name)
	}
	names = append(names, rest...)
	return shortened(names, v1alpha1.MaxPodInterceptors)
}

// shortened returns at most limit names, which is 1 or more. It may write to them.
func shortened(names []string, limit int) []string {
	if len(names) <= limit {
		return names
	}
	if slices.Contains(names[limit:], v1alpha1.BudgetInterceptor) {
		names[limit-1] = v1alpha1.BudgetInterceptor
	}
	return names[:limit]
}

// precedes reports whether a name of the annotation runs before a registration.
func precedes(annotated string, e *entry) bool {
	if e.Priority != v1alpha1.DefaultInterceptorPriority {
		return e.Priority < v1alpha1.DefaultInterceptorPriority
	}
	return annotated < e.Name
}
