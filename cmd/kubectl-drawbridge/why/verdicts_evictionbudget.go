package why

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/budgetstatus"
)

// budgetStatusesOf says for each EvictionBudget of the pod when it lets the pod go; none after its
// turn, or if nobody decides.
func budgetStatusesOf(f *Facts) []budgetstatus.Status {
	if f.Pod == nil || f.BudgetsOff || f.Request != nil && v1alpha1.ReportOf(f.Request, v1alpha1.BudgetInterceptor).CompletionTime != nil {
		return nil
	}
	var all []budgetstatus.Status
	for _, b := range budgetstatus.Covering(f.Pod, f.EvictionBudgets) {
		all = append(all, budgetstatus.Of(budgetstatus.Input{Budget: b, Pod: f.Pod, Node: f.Node, Now: f.Now}))
	}
	return all
}

// budgetSource names the EvictionBudgets of the pod.
func budgetSource(f *Facts) string {
	if f.Pod == nil {
		return fmt.Sprintf("built in, priority %d", v1alpha1.BudgetPriority)
	}
	var names []string
	for _, b := range budgetstatus.Covering(f.Pod, f.EvictionBudgets) {
		names = append(names, b.Name)
	}
	if len(names) == 0 {
		return "no EvictionBudget covers the pod now"
	}
	return fmt.Sprintf("EvictionBudget %s, priority %d", strings.Join(names, ", "), v1alpha1.BudgetPriority)
}

// waitsForEvictionBudget applies while it is the turn of the EvictionBudgets.
func (c *podCase) waitsForEvictionBudget() bool {
	i := c.intercepting()
	return i != nil && i.Name == v1alpha1.BudgetInterceptor
}

func waitsForBudget(c *podCase) (string, []string, bool) {
	if !c.waitsForEvictionBudget() {
		return "", nil, false
	}
	position := fmt.Sprintf("(%d of %d)", c.position, len(c.interceptors))
	pass := fmt.Sprintf("To evict it anyway: kubectl drawbridge skip %s %s -n %s --reason=WHY, or by a member of webhook.breakGlassGroups", c.Pod.Name, v1alpha1.BudgetInterceptor, c.Pod.Namespace)
	if c.BudgetsOff {
		return fmt.Sprintf("The eviction waits for EvictionBudgets %s, and nothing decides about them: they are disabled.", position),
			[]string{"Switch them on (budgets.enabled=true), or delete those of the pod: kubectl -n " + c.Pod.Namespace + " get evictionbudgets", pass, c.cancelCommand()}, true
	}
	var names, advice []string
	for _, o := range c.budgetStatuses {
		if o.When > budgetstatus.Now {
			names = append(names, o.Budget)
			advice = append(advice, c.despite(o))
		}
	}
	if len(names) == 0 { // The status lags behind, or it is the turn of other pods.
		for _, o := range c.budgetStatuses {
			names = append(names, o.Budget)
		}
		advice = append(advice, "Nothing: wait.")
	}
	who := "EvictionBudgets" // They may be unread, or deleted.
	switch len(names) {
	case 0:
	case 1:
		who = "EvictionBudget " + names[0]
	default:
		who += " " + strings.Join(names, ", ")
	}
	headline := fmt.Sprintf("The eviction waits for %s %s", who, position)
	if c.active.Message == "" {
		headline += ", which has no decision yet."
	} else {
		headline += ". " + sentence(c.active.Message)
	}
	return headline, append(advice, pass, c.cancelCommand()), true
}

// despite says what to do about a budget that lets the pod wait.
func (c *podCase) despite(o budgetstatus.Status) string {
	i := slices.IndexFunc(c.EvictionBudgets, func(b v1alpha1.EvictionBudget) bool { return b.Name == o.Budget })
	b := &c.EvictionBudgets[i]
	edit := fmt.Sprintf("kubectl edit evictionbudget %s -n %s", b.Name, b.Namespace)
	switch o.Reason {
	case v1alpha1.ReasonNotAccepted:
		return fmt.Sprintf("Correct EvictionBudget %s, which allows no evictions until then: %s", b.Name, edit)
	case v1alpha1.ReasonNothingAllowed:
		return fmt.Sprintf("EvictionBudget %s allows no evictions, because maxUnavailable is %s. If that is not meant: %s", b.Name, b.Spec.MaxUnavailable.String(), edit)
	case v1alpha1.ReasonOutsideWindow:
		if o.When == budgetstatus.AtTime {
			return fmt.Sprintf("Wait until %s, when the next window of EvictionBudget %s opens.", c.in(o.Until), b.Name)
		}
		if o.When == budgetstatus.Never {
			return fmt.Sprintf("Give EvictionBudget %s a window that opens: %s", b.Name, edit)
		}
	case v1alpha1.ReasonConditionFalse:
		return fmt.Sprintf("Wait until the conditions of EvictionBudget %s are true%s.", b.Name, config(b))
	case v1alpha1.ReasonMinInterval:
		return fmt.Sprintf("Wait until %s, when EvictionBudget %s allows the next eviction.", c.in(o.Until), b.Name)
	case v1alpha1.ReasonGroupsDisrupted, v1alpha1.ReasonPodsUnavailable:
		return c.repair(b, o)
	case v1alpha1.ReasonGrantsFull:
		return fmt.Sprintf("Wait until the pods whose eviction EvictionBudget %s has granted have successors, or find out why not: kubectl drawbridge budgets %s -n %s", b.Name, b.Name, b.Namespace)
	}
	if _, known := budgetstatus.GroupOf(b, c.Pod, c.Node); !known {
		return fmt.Sprintf("See which groups are in the way, since that of the pod is not known: kubectl drawbridge budgets %s -n %s", b.Name, b.Namespace)
	}
	return fmt.Sprintf("See whether Drawbridge runs and has a leader, which decides about EvictionBudget %s: kubectl -n %s get pods,leases", b.Name, c.System)
}

// in prints a time, and how far off it is.
func (c *podCase) in(t time.Time) string {
	return fmt.Sprintf("%s (in %s)", t.In(c.Now.Location()).Format(time.RFC3339), duration.HumanDuration(max(0, t.Sub(c.Now))))
}

// config says how to see what the conditions read.
func config(b *v1alpha1.EvictionBudget) string {
	of := b.Spec.Config
	if of == nil {
		return ""
	}
	kind := strings.ToLower(of.Kind)
	if version, err := schema.ParseGroupVersion(of.APIVersion); err == nil && version.Group != "" {
		kind += "." + version.Group
	}
	return fmt.Sprintf(". They read: kubectl get %s %s -n %s -o yaml", kind, of.Name, b.Namespace)
}

// repair says which pods are in the way.
func (c *podCase) repair(b *v1alpha1.EvictionBudget, o budgetstatus.Status) string {
	var groups []string
	for _, name := range o.Groups[:min(len(o.Groups), maxNamed)] {
		groups = append(groups, c.missing(b, name))
	}
	if rest := len(o.Groups) - maxNamed; rest > 0 {
		groups = append(groups, fmt.Sprintf("and %d more groups", rest))
	}
	text := "Wait until they are available again, or repair them: " + strings.Join(groups, "; ")
	if o.When == budgetstatus.AtTime {
		text += ". When the window closes at " + c.in(o.Until) + ", the pod goes anyway"
	}
	return text + "."
}

// maxNamed is how many pods and groups are named.
const maxNamed = 3

// missing names the pods of a group that are not available.
func (c *podCase) missing(b *v1alpha1.EvictionBudget, group string) string {
	state := v1alpha1.BudgetGroup{Name: group}
	for _, g := range b.Status.Groups {
		if g.Name == group {
			state = g
		}
	}
	text := fmt.Sprintf("%d of %d pods", state.Disrupted, state.Expected)
	if b.Spec.GroupBy != nil {
		text += " of group " + strconv.Quote(group)
	}
	var named []string
	for i := range c.Unavailable {
		pod := &c.Unavailable[i]
		why := budgetstatus.Unavailable(b, pod, c.Now)
		if why == "" || !budgetstatus.Covers(b, pod) {
			continue
		}
		if of, known := budgetstatus.GroupOf(b, pod, c.nodeOf(pod)); known && of == group {
			named = append(named, pod.Name+" "+why)
		}
	}
	slices.Sort(named)
	if lack := int(state.Disrupted) - len(named); lack > 0 {
		named = append(named, fmt.Sprintf("%d of them not there", lack))
	}
	if rest := len(named) - maxNamed; rest > 0 {
		named = append(named[:maxNamed], fmt.Sprintf("and %d more", rest))
	}
	return text + " (" + strings.Join(named, ", ") + ")"
}

// nodeOf is nil if the node was not read.
func (c *podCase) nodeOf(pod *corev1.Pod) *corev1.Node {
	for i := range c.Nodes {
		if c.Nodes[i].Name == pod.Spec.NodeName {
			return &c.Nodes[i]
		}
	}
	return nil
}
