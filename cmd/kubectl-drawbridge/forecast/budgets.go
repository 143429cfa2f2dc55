package forecast

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// budgetGroup are EvictionBudgets that are decided together, because they share pods.
type budgetGroup struct {
	budgets []grant.Budget
	from    []*v1alpha1.EvictionBudget
}

// findBudgets finds the EvictionBudgets of the pods to go, and puts those together that share
// some of them.
func (w *world) findBudgets() {
	if len(w.in.Budgets) == 0 {
		return
	}
	all := slices.Clone(w.in.Budgets)
	slices.SortFunc(all, func(a, b *v1alpha1.EvictionBudget) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	byUID := map[types.UID]int{}
	for i := range w.pods {
		byUID[w.pods[i].pod.UID] = i
	}
	spaces := byNamespace(w.in.Pods)
	covers := make([][]int, len(w.pods))
	paces := make([]grant.Budget, len(all))
	parent := make([]int, len(all))
	for i := range parent {
		parent[i] = i
	}
	find := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	for b, from := range all {
		rules, selector, _ := grant.RulesOf(&from.Spec) // What is wrong is in the rules.
		paces[b] = grant.Budget{Name: from.Name, Rules: rules, Expected: map[types.UID]int{}}
		w.fillBudget(&paces[b], from, selector, spaces[from.Namespace])
		for i := range paces[b].Pods {
			if v, ok := byUID[paces[b].Pods[i].UID]; ok {
				if len(covers[v]) > 0 {
					parent[find(b)] = find(covers[v][0])
				}
				covers[v] = append(covers[v], b)
			}
		}
	}
	w.groupBudgets(all, paces, covers, find)
}

// groupBudgets keeps the budgets that cover pods to go.
func (w *world) groupBudgets(all []*v1alpha1.EvictionBudget, paces []grant.Budget, covers [][]int, find func(int) int) {
	used := make([]bool, len(all))
	for _, bs := range covers {
		for _, b := range bs {
			used[b] = true
		}
	}
	groupOf, place := map[int]int{}, make([]int, len(all))
	for b := range all {
		if !used[b] {
			continue
		}
		g, ok := groupOf[find(b)]
		if !ok {
			g = len(w.groups)
			groupOf[find(b)] = g
			w.groups = append(w.groups, budgetGroup{})
		}
		place[b] = len(w.groups[g].budgets)
		w.groups[g].budgets = append(w.groups[g].budgets, paces[b])
		w.groups[g].from = append(w.groups[g].from, all[b])
	}
	for v := range covers {
		for _, b := range covers[v] {
			w.pods[v].group = groupOf[find(b)]
			w.pods[v].budgets = append(w.pods[v].budgets, place[b])
		}
	}
}

// fillBudget counts the pods of a budget, as the manager does.
func (w *world) fillBudget(p *grant.Budget, from *v1alpha1.EvictionBudget, selector labels.Selector, all []*corev1.Pod) {
	for _, pod := range all {
		if pods.HasEnded(pod) || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		one := grant.Pod{UID: pod.UID, Created: pod.CreationTimestamp.Time, Ready: ready(pod), Placed: pod.Spec.NodeName != ""}
		one.Group, _ = budgetstatus.GroupOf(from, pod, w.nodes[pod.Spec.NodeName])
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				one.ReadySince = c.LastTransitionTime.Time
			}
		}
		if pod.DeletionTimestamp != nil {
			one.Leaving, one.LeavingSince = true, pod.DeletionTimestamp.Time
		}
		if c := metav1.GetControllerOfNoCopy(pod); c != nil {
			one.Owner = c.UID
			if load, ok := w.in.Workloads[c.UID]; ok {
				p.Expected[c.UID] = load.Replicas
			} else if !one.Leaving {
				p.Expected[c.UID]++
			}
		}
		p.Pods = append(p.Pods, one)
	}
	for i := range from.Status.Grants {
		g := &from.Status.Grants[i]
		granted := grant.Grant{Pod: types.UID(g.PodUID), Request: types.UID(g.Request), Group: g.Group, At: g.Time.Time}
		if g.Owner != nil {
			granted.Owner = types.UID(g.Owner.UID)
		}
		p.Grants = append(p.Grants, granted)
	}
	if at := from.Status.LastGrantTime; at != nil {
		p.LastGrant = at.Time
	}
	granting := meta.FindStatusCondition(from.Status.Conditions, v1alpha1.ConditionGranting)
	if granting != nil && granting.Status == metav1.ConditionFalse && granting.Reason == v1alpha1.ReasonConditionFalse {
		p.Blocked = text.Clean(granting.Message)
	}
	if len(from.Spec.Conditions) > 0 {
		w.leaveOut("changes of the conditions of EvictionBudget " + from.Namespace + "/" + from.Name)
	}
}

// cloneBudgets copies what a run changes.
func cloneBudgets(from []grant.Budget) []grant.Budget {
	budgets := slices.Clone(from)
	for i := range budgets {
		budgets[i].Pods = slices.Clone(from[i].Pods)
		budgets[i].Grants = slices.Clone(from[i].Grants)
	}
	return budgets
}

// groupName is the group of a replacement of the pod.
func groupName(from *v1alpha1.EvictionBudget, v *victim) (string, bool) {
	if v.target == nil {
		return "", false
	}
	return budgetstatus.GroupOf(from, v.pod, v.target)
}

// laterOf is the later of two times.
func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
