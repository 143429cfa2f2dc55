package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
)

func newInterceptors(o commands) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "interceptors",
		Short: "List the registered interceptors, with how many pods they have",
		Long: `List the EvictionInterceptors, the EvacuationHooks and the interceptor of all
EvictionBudgets: how many pods each intercepts, and for how many it is its turn or is
waiting for it. Names that have a turn without a registration, because the pods name
them, come last.`,
		Example: `  kubectl drawbridge interceptors -o wide`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.Connect()
			if err != nil {
				return err
			}
			return o.interceptors(cmd.Context(), c)
		},
	}
	o.AddOutput(cmd, cli.FormatWide, cli.FormatJSON, cli.FormatYAML, cli.FormatName)
	return cmd
}

// registered is an interceptor in one line.
type registered struct {
	Name string `json:"name"`
	// Hook is the EvacuationHook, NAMESPACE/NAME, whose interceptor it is.
	Hook string `json:"hook,omitempty"`
	// Budgets are how many EvictionBudgets have their turn under the name.
	Budgets int `json:"budgets,omitempty"`
	// Registered: there is an EvictionInterceptor, EvacuationHook or EvictionBudget.
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

func (o commands) interceptors(ctx context.Context, c *cli.Connection) error {
	var registrations v1alpha1.EvictionInterceptorList
	if err := c.List(ctx, &registrations); err != nil {
		return fmt.Errorf("list evictioninterceptors: %w", err)
	}
	var requests v1alpha1.EvictionRequestList
	if err := c.List(ctx, &requests); err != nil {
		return fmt.Errorf("list evictionrequests: %w", err)
	}
	hooks, err := o.HooksIfAllowed(ctx, c)
	if err != nil {
		return err
	}
	budgets, err := o.EvictionBudgetsIfAllowed(ctx, c)
	if err != nil {
		return err
	}
	all := registeredOf(registrations.Items, hooks, budgets, requests.Items)
	switch o.Output {
	case cli.FormatJSON, cli.FormatYAML:
		return o.PrintValue(all)
	case cli.FormatName:
		for _, r := range all {
			switch {
			case r.Hook != "":
				_, name, _ := strings.Cut(r.Hook, "/")
				fmt.Fprintf(o.Out, "evacuationhook.drawbridge.dev/%s\n", name)
			case r.Registered && r.Budgets == 0:
				fmt.Fprintf(o.Out, "evictioninterceptor.drawbridge.dev/%s\n", r.Name)
			}
		}
		return nil
	default:
		return o.printInterceptors(all)
	}
}

// registeredOf counts turns for each interceptor, sorted by priority and name; those
// without a registration come last.
func registeredOf(registrations []v1alpha1.EvictionInterceptor, hooks []v1alpha1.EvacuationHook, budgets []v1alpha1.EvictionBudget, requests []v1alpha1.EvictionRequest) []registered {
	found := map[string]*registered{}
	for i := range registrations {
		from := &registrations[i]
		r := &registered{Name: from.Name, Registered: true, Priority: v1alpha1.DefaultInterceptorPriority, Guard: string(from.Spec.Guard), Pods: from.Status.MatchingPods}
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
		h := hookStateOf(&hooks[i])
		key := types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
		name := v1alpha1.HookInterceptor(key)
		found[name] = &registered{
			Name: name, Hook: key.String(), Registered: true, Accepted: h.Accepted, Trouble: h.Trouble,
			Priority: h.Priority, Guard: h.Guard, Pods: h.Pods,
		}
	}
	if len(budgets) > 0 {
		found[v1alpha1.BudgetInterceptor] = registeredBudgets(budgets)
	}
	for i := range requests {
		countTurns(found, &requests[i])
	}
	var all []registered
	for _, r := range found {
		all = append(all, *r)
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortFunc(all, func(a, b registered) int {
		return cmp.Or(cmp.Compare(rank[a.Registered], rank[b.Registered]), cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
	})
	return all
}

// registeredBudgets is the one interceptor of all EvictionBudgets. It is in force whichever
// of them are accepted: those that are not hold their pods, too.
func registeredBudgets(budgets []v1alpha1.EvictionBudget) *registered {
	r := &registered{Name: v1alpha1.BudgetInterceptor, Budgets: len(budgets), Registered: true, Accepted: string(metav1.ConditionTrue), Priority: v1alpha1.BudgetPriority}
	var refused []string
	for _, b := range budgetStates(budgets) {
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
func countTurns(found map[string]*registered, er *v1alpha1.EvictionRequest) {
	if state := v1alpha1.Summarize(er).State; state == v1alpha1.StateEvicted || state == v1alpha1.StateCanceled {
		return
	}
	for _, target := range er.Status.TargetInterceptors {
		if target.Name == v1alpha1.ImperativeEvictionInterceptor || slices.Contains(er.Status.ProcessedInterceptors, target.Name) {
			continue
		}
		r := found[target.Name]
		if r == nil {
			r = &registered{Name: target.Name}
			found[target.Name] = r
		}
		if slices.Contains(er.Status.ActiveInterceptors, target.Name) {
			r.Active++
		} else {
			r.Waiting++
		}
	}
}

func (o commands) printInterceptors(all []registered) error {
	if len(all) == 0 {
		fmt.Fprintln(o.Out, "No interceptor is registered, and none has a turn.")
		return nil
	}
	wide := o.Output == cli.FormatWide
	t := cli.NewTable(o.Out)
	heading := []string{"NAME", "PRIORITY", "GUARD", "ACCEPTED", "PODS", "ACTIVE", "WAITING"}
	if wide {
		heading = append(heading, "ACCOUNTS")
	}
	t.Row(heading...)
	for _, r := range all {
		priority, accepted, pods := "", "not registered", ""
		if r.Registered {
			priority, accepted = number(r.Priority), cmp.Or(r.Accepted, "Unknown")
		}
		if r.Pods != nil {
			pods = number(*r.Pods)
		}
		row := []string{r.Name, priority, r.Guard, accepted, pods, strconv.Itoa(r.Active), strconv.Itoa(r.Waiting)}
		if wide {
			row = append(row, strings.Join(r.Accounts, ","))
		}
		t.Row(row...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		if r.Trouble != "" {
			fmt.Fprintf(o.Out, "\n%s: %s\n", r.Name, r.Trouble)
		}
	}
	return nil
}
