package listing

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Budget is an EvictionBudget in one line.
type Budget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// GroupBy is the label of the groups, empty if all pods are one, and MaxGroups how many
	// of them may be disrupted.
	GroupBy        string `json:"groupBy,omitempty"`
	MaxGroups      int32  `json:"maxGroups,omitempty"`
	MaxUnavailable string `json:"maxUnavailable"`
	// Pods that it covers, Allowed, which is how many evictions it would grant now, and
	// Waiting, which is how many wait for it; nil if not known.
	Pods    *int32 `json:"pods,omitempty"`
	Allowed *int32 `json:"allowed,omitempty"`
	Waiting *int32 `json:"waiting,omitempty"`
	// Groups and Disrupted are how many groups there are, and how many of them have pods
	// that are not available.
	Groups    int `json:"groups"`
	Disrupted int `json:"disrupted"`
	// Granting is the reason of that condition.
	Granting string `json:"granting,omitempty"`
	// Window is the one that is open, else the next one.
	Window   *v1alpha1.BudgetOpening `json:"window,omitempty"`
	Guard    string                  `json:"guard"`
	Accepted string                  `json:"accepted,omitempty"`
	// Trouble is why it is not accepted, or why evictions wait.
	Trouble string `json:"trouble,omitempty"`
}

// Budgets returns them sorted by namespace and name.
func Budgets(budgets []v1alpha1.EvictionBudget) []Budget {
	all := make([]Budget, 0, len(budgets))
	for i := range budgets {
		all = append(all, BudgetOf(&budgets[i]))
	}
	slices.SortFunc(all, func(a, b Budget) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all
}

// BudgetOf returns a budget in one line.
func BudgetOf(b *v1alpha1.EvictionBudget) Budget {
	s := Budget{
		Namespace: b.Namespace, Name: b.Name, MaxUnavailable: "1",
		Pods: b.Status.MatchingPods, Allowed: b.Status.DisruptionsAllowed, Waiting: b.Status.Waiting,
		Groups: len(b.Status.Groups), Window: b.Status.Window, Guard: string(cmp.Or(b.Spec.Guard, v1alpha1.GuardWhileEvacuating)),
	}
	if b.Spec.MaxUnavailable != nil {
		s.MaxUnavailable = b.Spec.MaxUnavailable.String()
	}
	if by := b.Spec.GroupBy; by != nil {
		s.GroupBy, s.MaxGroups = cmp.Or(by.PodLabel, by.NodeLabel), ptr.Deref(b.Spec.MaxGroups, 1)
	}
	for _, g := range b.Status.Groups {
		if g.Disrupted > 0 {
			s.Disrupted++
		}
	}
	granting := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionGranting)
	if granting != nil {
		s.Granting = granting.Reason
	}
	s.Accepted, s.Trouble = accepted(b.Status.Conditions)
	if s.Trouble == "" && granting != nil && granting.Status == metav1.ConditionFalse {
		s.Trouble = granting.Message
	}
	return s
}
