package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/listing"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
)

// maxWaiters is how many pods that wait a row names.
const maxWaiters = 5

// budgetRow is a budget of either kind.
type budgetRow struct {
	ID, Namespace, Name string
	// Allowed is how many evictions it allows now; "not known" if nobody says.
	Allowed, Tone string
	// Counts says how many pods there are.
	Counts string
	// Waiting are pods that wait for it, and More how many are not named.
	Waiting []waiter
	More    int
	Message string
	Guard   bool
	rank    int
	// pdb is set for a PodDisruptionBudget.
	pdb *policyv1.PodDisruptionBudget
}

type waiter struct{ Namespace, Pod string }

func renderBudgets(_ context.Context, r Request) (Content, error) {
	content := Content{Title: "Budgets", Section: SectionBudgets, Fragments: []live.Fragment{fragment("heading", "budgets-heading", nil)}}
	for _, list := range []struct {
		id, title, empty string
		all              []budgetRow
	}{
		{"evictionbudgets", "EvictionBudgets", "There is no EvictionBudget. Create one to limit disruptions for each group of pods, for example for each zone.", evictionBudgetsOf(r.Snapshot)},
		{"pdbs", "PodDisruptionBudgets", "There is no PodDisruptionBudget. Create one for each application that needs a number of healthy pods.", pdbsOf(r.Snapshot)},
	} {
		shown, pages := paged(list.all, r, list.id)
		countPods(r.Snapshot, shown)
		var rows []live.Fragment
		for _, b := range shown {
			rows = append(rows, fragment(b.ID, "budget-row", b))
		}
		content.Fragments = append(content.Fragments, tableOf{
			ID: list.id, Title: list.title, Heads: []string{"Namespace", "Name", "Allowed", "Pods", "Waiting", "Message"}, Empty: list.empty, Pager: pages,
		}.with(rows))
	}
	return content, nil
}

// pdbsOf are all PodDisruptionBudgets: those that refuse somebody first, then those that
// allow nothing.
func pdbsOf(s *state.Snapshot) []budgetRow {
	refused := map[waiter][]waiter{}
	for _, er := range s.Requests {
		if v1alpha1.Summarize(er).State != v1alpha1.StateBlocked {
			continue
		}
		report := v1alpha1.ReportOf(er, v1alpha1.ImperativeEvictionInterceptor)
		if report.Refusal == nil {
			continue
		}
		for _, name := range report.Refusal.Budgets {
			key := waiter{er.Namespace, name}
			refused[key] = append(refused[key], waiter{er.Namespace, er.Spec.Target.Pod.Name})
		}
	}
	rows := make([]budgetRow, 0, len(s.PDBs))
	for _, b := range s.PDBs {
		row := budgetRow{pdb: b, ID: idOf("pdb", b.Namespace, b.Name), Namespace: b.Namespace, Name: b.Name, Guard: b.Labels[v1alpha1.GuardBudgetLabel] == "true"}
		row.say(int(b.Status.CurrentHealthy), int(b.Status.ExpectedPods), int(b.Status.DesiredHealthy))
		row.Allowed, row.Tone, row.rank = allowed(new(b.Status.DisruptionsAllowed), row.Guard)
		if b.Status.ObservedGeneration < b.Generation {
			row.Allowed, row.Tone = "not observed yet", toneWait
		}
		if row.Guard {
			row.Message = "Drawbridge's guard: it allows nothing until the interceptors are done"
		}
		row.wait(refused[waiter{b.Namespace, b.Name}])
		rows = append(rows, row)
	}
	sortBudgets(rows)
	return rows
}

// countPods counts the pods of the PodDisruptionBudgets that are shown, if pods are known:
// their statuses may be old.
func countPods(s *state.Snapshot, shown []budgetRow) {
	if slices.ContainsFunc(s.Gaps, func(g state.Gap) bool { return g.Resource == "pods" }) {
		return
	}
	pods := map[string][]*corev1.Pod{}
	for i := range shown {
		if shown[i].pdb != nil {
			pods[shown[i].Namespace] = nil
		}
	}
	for _, p := range s.Pods {
		if all, ok := pods[p.Namespace]; ok {
			pods[p.Namespace] = append(all, p)
		}
	}
	for i := range shown {
		if row := &shown[i]; row.pdb != nil {
			row.count(disruption.Of(row.pdb, disruption.Selected(row.pdb, pods[row.Namespace])))
		}
	}
}

// say says what is counted. What a guard needs is the largest number there is.
func (r *budgetRow) say(healthy, expected, desired int) {
	r.Counts = fmt.Sprintf("%d of %d healthy", healthy, expected)
	if !r.Guard {
		r.Counts += fmt.Sprintf(", %d needed", desired)
	}
}

// count says what the budget counts now.
func (r *budgetRow) count(c disruption.Count) {
	r.say(c.Healthy, c.Expected, c.Desired)
	switch never := c.Says(); {
	case c.Pods == 0:
		r.Counts, r.Tone = "selects no pods", toneFaint
	case never != "":
		r.Allowed, r.Tone, r.Message = "never any", toneBad, "It "+never
	}
}

// evictionBudgetsOf are all EvictionBudgets, in the same order.
func evictionBudgetsOf(s *state.Snapshot) []budgetRow {
	waiting := map[string][]*v1alpha1.EvictionRequest{}
	for _, er := range s.Requests {
		if slices.Contains(er.Status.ActiveInterceptors, v1alpha1.BudgetInterceptor) {
			waiting[er.Namespace] = append(waiting[er.Namespace], er)
		}
	}
	rows := make([]budgetRow, 0, len(s.Budgets))
	for _, b := range s.Budgets {
		one := listing.BudgetOf(b)
		row := budgetRow{ID: idOf("budget", b.Namespace, b.Name), Namespace: b.Namespace, Name: b.Name, Message: text.Clean(one.Trouble), Counts: "not known"}
		row.Allowed, row.Tone, row.rank = allowed(one.Allowed, false)
		if one.Pods != nil {
			row.Counts = text.Counted(*one.Pods, "pod")
			if one.GroupBy != "" {
				row.Counts += fmt.Sprintf(" in %d groups by %s, %d disrupted", one.Groups, text.Clean(one.GroupBy), one.Disrupted)
			}
		}
		if w := one.Window; w != nil {
			row.Message = trimmed(row.Message, windowText(w.Start.Time, w.End.Time, s.Now))
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		var pods []waiter
		for _, er := range waiting[b.Namespace] {
			pod := s.PodByUID[er.Spec.Target.Pod.UID]
			if err == nil && pod != nil && selector.Matches(labels.Set(pod.Labels)) {
				pods = append(pods, waiter{pod.Namespace, pod.Name})
			}
		}
		row.wait(pods)
		rows = append(rows, row)
	}
	sortBudgets(rows)
	return rows
}

func windowText(start, end, now time.Time) string {
	at := func(t time.Time) string { return t.In(now.Location()).Format(time.RFC3339) }
	if now.Before(start) {
		return "its next window opens at " + at(start)
	}
	return "its window is open until " + at(end)
}

// allowed says how many evictions a budget allows. A guard that allows none is as it should
// be.
func allowed(n *int32, guard bool) (said, tone string, rank int) {
	switch {
	case n == nil:
		return "not known", toneFaint, 1
	case *n > 0:
		return fmt.Sprint(*n), toneGood, 2
	case guard:
		return "none", toneFaint, 2
	default:
		return "none", toneWait, 1
	}
}

// wait names those who wait.
func (r *budgetRow) wait(pods []waiter) {
	slices.SortFunc(pods, func(a, b waiter) int { return strings.Compare(a.Pod, b.Pod) })
	r.Waiting = pods[:min(len(pods), maxWaiters)]
	r.More = len(pods) - len(r.Waiting)
	if len(pods) > 0 && r.rank == 1 {
		r.rank, r.Tone = 0, toneBad
	}
}

func sortBudgets(rows []budgetRow) {
	slices.SortStableFunc(rows, func(a, b budgetRow) int { return cmp.Compare(a.rank, b.rank) })
}
