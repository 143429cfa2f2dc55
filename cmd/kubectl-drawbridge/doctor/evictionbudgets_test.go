package doctor

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// enforced are the facts of an installation that decides about these budgets.
func enforced(budgets ...*builder.EvictionBudgetWrapper) Facts {
	f := fine()
	c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
	c.Args = append(c.Args, "--budgets=true")
	for _, b := range budgets {
		f.EvictionBudgets = append(f.EvictionBudgets, *b.Obj())
	}
	return f
}

func TestEvictionBudgetsThatAreNotInOrder(t *testing.T) {
	budget := func() *builder.EvictionBudgetWrapper {
		return builder.EvictionBudget("shop", "ingester", "app", "ingester").Generation(1).Observed().Counts(12, 0, 0)
	}
	// waiting holds evictions up for that reason since then.
	waiting := func(reason string, since time.Duration) *builder.EvictionBudgetWrapper {
		b := budget().Counts(12, 0, 3).Condition(v1alpha1.ConditionGranting, metav1.ConditionFalse, reason, `group "a" is disrupted.`)
		for i := range b.Status.Conditions {
			b.Status.Conditions[i].LastTransitionTime = metav1.NewTime(t0.Add(-since))
		}
		return b
	}
	created := func(age time.Duration) *builder.EvictionBudgetWrapper {
		b := builder.EvictionBudget("shop", "ingester", "app", "ingester").Generation(1)
		b.CreationTimestamp = metav1.NewTime(t0.Add(-age))
		return b
	}
	const held = `it has granted nothing for 5h, while 3 evictions wait: group "a" is disrupted.`
	cases := map[string]struct {
		budget *builder.EvictionBudgetWrapper
		want   string
	}{
		"all is well":                       {budget(), ""},
		"it is new":                         {created(time.Second), ""},
		"nobody has looked at it":           {created(time.Hour), "the manager has not observed its current version"},
		"it is not accepted":                {budget().Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow, "no such zone"), "it is not accepted, so it allows no evictions: no such zone"},
		"it covers none, says a condition":  {budget().Condition(v1alpha1.ConditionCovers, metav1.ConditionFalse, v1alpha1.ReasonCoversNone, ""), "it covers no pod"},
		"it covers none, says the number":   {budget().Counts(0, 0, 0), "it covers no pod"},
		"it allows nothing":                 {budget().MaxUnavailable("0"), "it allows no evictions of its 12 pods: maxUnavailable is 0"},
		"it allows no percent":              {budget().MaxUnavailable("0%"), "it allows no evictions of its 12 pods: maxUnavailable is 0%"},
		"evictions have waited for long":    {waiting(v1alpha1.ReasonGroupsDisrupted, 5*time.Hour), held},
		"one eviction has waited for long":  {waiting(v1alpha1.ReasonGroupsDisrupted, 5*time.Hour).Counts(12, 0, 1), "while 1 eviction waits: "},
		"evictions wait for a while":        {waiting(v1alpha1.ReasonGroupsDisrupted, 3*time.Hour), ""},
		"one was granted not long ago":      {waiting(v1alpha1.ReasonGroupsDisrupted, 5*time.Hour).Grant("a", "uid-a", "a", t0.Add(-time.Hour)), ""},
		"none wait any more":                {waiting(v1alpha1.ReasonGroupsDisrupted, 5*time.Hour).Counts(12, 0, 0), ""},
		"they wait for a window":            {waiting(v1alpha1.ReasonOutsideWindow, 5*time.Hour).Opening(t0.Add(time.Hour), t0.Add(2*time.Hour)), ""},
		"they wait for a window that never": {waiting(v1alpha1.ReasonOutsideWindow, 5*time.Hour), held},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wantFinding(t, only(t, enforced(tc.budget), "eviction-budgets"), tc.want)
		})
	}
}

func TestEvictionBudgetsAreReportedByName(t *testing.T) {
	none := func(namespace, name string) *builder.EvictionBudgetWrapper {
		return builder.EvictionBudget(namespace, name, "app", "a").Observed().Counts(0, 0, 0)
	}
	want := []string{"WARN evictionbudget/depot/b: it covers no pod", "WARN evictionbudget/shop/a: it covers no pod", "WARN evictionbudget/shop/b: it covers no pod"}
	if diff := cmp.Diff(want, brief(only(t, enforced(none("shop", "b"), none("depot", "b"), none("shop", "a")), "eviction-budgets"))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

func TestEvictionBudgetsThatNobodyEnforces(t *testing.T) {
	budget := *builder.EvictionBudget("shop", "ingester", "app", "ingester").Observed().Counts(1, 1, 0).Obj()
	cases := map[string]struct {
		budgets  []v1alpha1.EvictionBudget
		argument string
		want     string
	}{
		"they are switched off":         {[]v1alpha1.EvictionBudget{budget}, "--budgets=false", "it does not decide about EvictionBudgets, and there are 1"},
		"they are off, and none exists": {nil, "--budgets=false", ""},
		"they are on":                   {[]v1alpha1.EvictionBudget{budget}, "--budgets=true", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := fine()
			c := &f.Deployments[0].Spec.Template.Spec.Containers[0]
			c.Args = append(c.Args, tc.argument)
			f.EvictionBudgets = tc.budgets
			wantFinding(t, only(t, f, "eviction-budgets"), tc.want)
		})
	}
	unknown := fine()
	unknown.Deployments, unknown.EvictionBudgets = nil, []v1alpha1.EvictionBudget{budget}
	wantFinding(t, only(t, unknown, "eviction-budgets"), "")
}

func TestEvictionBudgetsAreInterceptorsIfTheyAreEnforced(t *testing.T) {
	pod := builder.Pod("shop", "db-0").Label("app", "db").Obj()
	f := enforced(builder.EvictionBudget("shop", "db", "app", "db"))
	if diff := cmp.Diff([]string{v1alpha1.BudgetInterceptor}, interceptorsOf(resolver(&f), pod)); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
	off := fine()
	off.EvictionBudgets = f.EvictionBudgets
	if got := interceptorsOf(resolver(&off), pod); len(got) > 0 {
		t.Errorf("without budgets: %v", got)
	}
}

func TestEvictionBudgetsNeedPermissionsAndTheirKind(t *testing.T) {
	texts := func(f Facts) (all []string) {
		for _, n := range Needs(&f) {
			all = append(all, n.text(system))
		}
		return all
	}
	const status = `"update" on evictionbudgets.drawbridge.dev/status`
	if got := texts(fine()); slices.Contains(got, status) {
		t.Errorf("without budgets: %v", got)
	}
	if got := texts(enforced()); !slices.Contains(got, status) {
		t.Errorf("with budgets: %v", got)
	}
	f := fine()
	f.Unread[EvictionBudgets] = Unread{Missing: true}
	if got := only(t, f, "eviction-budgets"); got.Severity != Skip {
		t.Errorf("without the kind: %+v, want %s", got, Skip)
	}
}
