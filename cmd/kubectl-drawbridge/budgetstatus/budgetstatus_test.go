package budgetstatus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func in(d time.Duration) time.Time { return now.Add(d) }

// ingester is a pod of zone a, ready for that long.
func ingester(readyFor time.Duration) *builder.PodWrapper {
	return builder.Pod("shop", "ingester-a-0").UID("uid-a-0").Node("node-1").Label("app", "ingester").Label("zone", "a").
		Change(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(readyFor))}}
		})
}

// zones is a budget that lets any number of pods of one zone go.
func zones() *builder.EvictionBudgetWrapper {
	return builder.EvictionBudget("shop", "ingester", "app", "ingester").ByPodLabel("zone", 1).MaxUnavailable("100%").Observed()
}

// single is a budget without groups that lets one pod go at a time.
func single() *builder.EvictionBudgetWrapper {
	return builder.EvictionBudget("shop", "ingester", "app", "ingester").Observed()
}

func TestStatuses(t *testing.T) {
	nightly := func() *builder.EvictionBudgetWrapper { return single().Window("0 22 * * *", 6*time.Hour) }
	cases := map[string]struct {
		budget *builder.EvictionBudgetWrapper
		pod    *builder.PodWrapper // Default: ready for an hour.
		node   *corev1.Node
		before map[string]int32
		want   Status
	}{
		"nothing keeps it": {budget: zones().Group("a", 4, 0, 0).Group("b", 4, 0, 0), want: Status{When: Now, Text: "now"}},
		"its own group is disrupted": {budget: zones().Group("a", 4, 3, 0).Group("b", 4, 0, 0),
			want: Status{When: Now, Text: "now"}},
		"another group is disrupted": {budget: zones().Group("b", 4, 1, 0).Group("a", 4, 0, 0),
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonGroupsDisrupted, Groups: []string{"b"}, Text: `after group "b" is available again`}},
		"one of two groups that may be": {budget: zones().ByPodLabel("zone", 2).Group("b", 4, 1, 0), want: Status{When: Now, Text: "now"}},
		"as many groups as may be": {budget: zones().ByPodLabel("zone", 2).Group("b", 4, 1, 0).Group("c", 4, 1, 0),
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonGroupsDisrupted, Groups: []string{"b", "c"}, Text: `after group "b" or "c" is available again`}},
		"more groups than may be": {budget: zones().Group("b", 4, 1, 0).Group("c", 4, 1, 0).Group("d", 4, 1, 0).Group("e", 4, 1, 0),
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonGroupsDisrupted, Groups: []string{"b", "c", "d", "e"}, Text: `after 4 of the groups "b", "c", "d", 1 more are available again`}},
		"another group is to go first": {budget: zones(), before: map[string]int32{"b": 2},
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonGroupsDisrupted, Groups: []string{"b"}, Text: `after group "b" is available again`}},
		"its own group is to go first": {budget: zones().Group("a", 4, 0, 0), before: map[string]int32{"a": 2}, want: Status{When: Now, Text: "now"}},
		"too many of its group": {budget: zones().MaxUnavailable("50%").Group("a", 4, 2, 0),
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonPodsUnavailable, Groups: []string{"a"}, Text: `after other pods of group "a" are available again`}},
		"too many of its group would go": {budget: zones().MaxUnavailable("50%").Group("a", 4, 1, 0), before: map[string]int32{"a": 1},
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonPodsUnavailable, Groups: []string{"a"}, Text: `after other pods of group "a" are available again`}},
		"too many without groups": {budget: single().Group("", 4, 1, 0),
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonPodsUnavailable, Groups: []string{""}, Text: "after other pods of it are available again"}},
		"it is one of those that are not available": {budget: single().Settle(time.Minute).Group("", 4, 1, 0), pod: ingester(time.Second), want: Status{When: Now, Text: "now"}},
		"it is not ready": {budget: zones().Group("b", 4, 1, 0), pod: ingester(0).Change(func(p *corev1.Pod) { p.Status.Conditions = nil }), want: Status{When: Now, Text: "now"}},
		"its node has the group": {budget: zones().ByNodeLabel("zone", 1).Group("b", 4, 1, 0), node: builder.Node("node-1").Label("zone", "b").Obj(),
			want: Status{When: Now, Text: "now"}},
		"its node is not known": {budget: zones().ByNodeLabel("zone", 1), want: Status{When: Someday, Text: "not known: the labels of its node could not be read"}},
		"it is granted":         {budget: zones().Group("b", 4, 1, 0).Grant("ingester-a-0", "uid-a-0", "a", ago(time.Minute)), want: Status{When: Granted, Text: "granted already"}},
		"another generation":    {budget: builder.EvictionBudget("shop", "ingester", "app", "ingester").Generation(1), want: Status{When: Someday, Text: "not known: the manager has not observed it yet"}},
		"not accepted": {budget: zones().Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidWindow, "schedule \"x\"\ncannot be read"),
			want: Status{When: Never, Reason: v1alpha1.ReasonNotAccepted, Text: `never: it is not accepted: schedule "x" cannot be read`}},
		"nothing is allowed": {budget: nightly().MaxUnavailable("0").Opening(in(10*time.Hour), in(16*time.Hour)),
			want: Status{When: Never, Reason: v1alpha1.ReasonNothingAllowed, Text: "never: maxUnavailable is 0"}},
		"no percent is allowed": {budget: single().MaxUnavailable("0%"), want: Status{When: Never, Reason: v1alpha1.ReasonNothingAllowed, Text: "never: maxUnavailable is 0%"}},
		"between two evictions": {budget: single().MinInterval(10*time.Minute).Grant("other", "uid-other", "", ago(4*time.Minute)),
			want: Status{When: AtTime, Reason: v1alpha1.ReasonMinInterval, Until: in(6 * time.Minute), Text: "not before 2026-11-22T12:06:00Z, for minInterval"}},
		"after the interval": {budget: single().MinInterval(10*time.Minute).Grant("other", "uid-other", "", ago(11*time.Minute)), want: Status{When: Now, Text: "now"}},
		"in its turn": {budget: zones().MinInterval(30 * time.Second), before: map[string]int32{"a": 1},
			want: Status{When: Afterwards, Reason: v1alpha1.ReasonMinInterval, Text: "in its turn, one every 30s"}},
		"a condition is false": {budget: single().Condition(v1alpha1.ConditionGranting, metav1.ConditionFalse, v1alpha1.ReasonConditionFalse, "condition c is not true"),
			want: Status{When: Someday, Reason: v1alpha1.ReasonConditionFalse, Text: "after its conditions are true"}},
		"a condition is false, and nobody waits": {budget: conditional(single()).Counts(4, 0, 0),
			want: Status{When: Someday, Reason: v1alpha1.ReasonConditionFalse, Text: "after its conditions are true"}},
		"conditions that are true": {budget: conditional(single()).Counts(4, 1, 0), want: Status{When: Now, Text: "now"}},
		"too many grants": {budget: single().Condition(v1alpha1.ConditionGranting, metav1.ConditionFalse, v1alpha1.ReasonGrantsFull, "full"),
			want: Status{When: Someday, Reason: v1alpha1.ReasonGrantsFull, Text: "after the pods that it has granted have successors"}},

		"before the window": {budget: nightly().Group("", 4, 2, 0).Opening(in(10*time.Hour), in(16*time.Hour)),
			want: Status{When: AtTime, Reason: v1alpha1.ReasonOutsideWindow, Until: in(10 * time.Hour), Text: "not before 2026-11-22T22:00:00Z, when its next window opens"}},
		"in the window":                    {budget: nightly().Opening(ago(time.Hour), in(5*time.Hour)), want: Status{When: Now, Text: "now"}},
		"as the window opens":              {budget: nightly().Opening(now, in(time.Hour)), want: Status{When: Now, Text: "now"}},
		"no window comes":                  {budget: nightly(), want: Status{When: Never, Reason: v1alpha1.ReasonOutsideWindow, Text: "never: no window opens any more"}},
		"nobody looks for the next window": {budget: nightly().Opening(ago(6*time.Hour), now), want: Status{When: Someday, Reason: v1alpha1.ReasonOutsideWindow, Text: "not known: the manager has not computed the next window"}},
		"outside of the window it goes":    {budget: nightly().Outside(v1alpha1.OutsideWindowContinue).MaxUnavailable("0").Group("", 4, 2, 0).Opening(in(10*time.Hour), in(16*time.Hour)), want: Status{When: Now, Text: "now"}},
		"without a window it goes":         {budget: nightly().Outside(v1alpha1.OutsideWindowContinue).Group("", 4, 2, 0), want: Status{When: Now, Text: "now"}},
		"nothing is allowed in the window": {budget: nightly().Outside(v1alpha1.OutsideWindowContinue).MaxUnavailable("0").Opening(ago(time.Hour), in(5*time.Hour)),
			want: Status{When: AtTime, Reason: v1alpha1.ReasonNothingAllowed, Until: in(5 * time.Hour), Text: "not before 2026-11-22T17:00:00Z, when its window closes"}},
		"the window closes before pods are back": {budget: nightly().Outside(v1alpha1.OutsideWindowContinue).Group("", 4, 1, 0).Opening(ago(time.Hour), in(5*time.Hour)),
			want: Status{When: AtTime, Reason: v1alpha1.ReasonPodsUnavailable, Until: in(5 * time.Hour), Groups: []string{""},
				Text: "after other pods of it are available again, or at 2026-11-22T17:00:00Z, when its window closes"}},
		"the window closes before the interval is over": {budget: nightly().Outside(v1alpha1.OutsideWindowContinue).MinInterval(6*time.Hour).Grant("other", "uid-other", "", now).Opening(ago(time.Hour), in(5*time.Hour)),
			want: Status{When: AtTime, Reason: v1alpha1.ReasonMinInterval, Until: in(5 * time.Hour), Text: "not before 2026-11-22T17:00:00Z, when its window closes"}},
		"the interval is over before the window closes": {budget: nightly().Outside(v1alpha1.OutsideWindowContinue).MinInterval(time.Hour).Grant("other", "uid-other", "", now).Opening(ago(time.Hour), in(5*time.Hour)),
			want: Status{When: AtTime, Reason: v1alpha1.ReasonMinInterval, Until: in(time.Hour), Text: "not before 2026-11-22T13:00:00Z, for minInterval"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.pod == nil {
				tc.pod = ingester(time.Hour)
			}
			tc.want.Budget = "ingester"
			got := Of(Input{Budget: tc.budget.Obj(), Pod: tc.pod.Obj(), Node: tc.node, Before: tc.before, Now: now})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

func conditional(w *builder.EvictionBudgetWrapper) *builder.EvictionBudgetWrapper {
	w.Spec.Conditions = []v1alpha1.MatchCondition{{Name: "c", Expression: "config != null"}}
	return w
}

func TestTheLastStatusCounts(t *testing.T) {
	soon, tonight := Status{Budget: "soon", When: AtTime, Until: in(time.Minute)}, Status{Budget: "tonight", When: AtTime, Until: in(time.Hour)}
	later, never := Status{Budget: "later", When: Afterwards}, Status{Budget: "never", When: Never}
	open := Status{Budget: "open", When: Now}
	cases := map[string]struct {
		all  []Status
		want string
	}{
		"one":                               {[]Status{open}, "open"},
		"a time is later than now":          {[]Status{soon, open}, "soon"},
		"the later of two times":            {[]Status{tonight, soon}, "tonight"},
		"nobody knows when others are back": {[]Status{later, tonight}, "later"},
		"never is last":                     {[]Status{open, never, later}, "never"},
		"of equal ones the first by name":   {[]Status{{Budget: "b", When: Never}, {Budget: "a", When: Never}}, "a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Last(tc.all).Budget; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestCovering(t *testing.T) {
	unreadable := builder.EvictionBudget("shop", "unreadable", "app", "ingester").Obj()
	unreadable.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}
	all := []v1alpha1.EvictionBudget{
		*builder.EvictionBudget("shop", "z", "app", "ingester").Obj(), *zones().Obj(), *unreadable,
		*builder.EvictionBudget("shop", "db", "app", "db").Obj(), *builder.EvictionBudget("depot", "all", "app", "ingester").Obj(),
	}
	var got []string
	for _, b := range Covering(ingester(0).Obj(), all) {
		got = append(got, b.Name)
	}
	if diff := cmp.Diff([]string{"ingester", "z"}, got); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
}

func TestWhyAPodIsNotAvailable(t *testing.T) {
	cases := map[string]struct {
		pod  *builder.PodWrapper
		want string
	}{
		"it is":                          {pod: ingester(2 * time.Minute)},
		"it has long been ready":         {pod: builder.Pod("shop", "a").Node("node-1").Ready()},
		"it is being deleted":            {ingester(time.Hour).Deleting(now), "is being deleted"},
		"it has no node":                 {ingester(time.Hour).Node(""), "has no node"},
		"it is not ready":                {builder.Pod("shop", "a").Node("node-1").Unready(), "is not ready"},
		"it is granted":                  {ingester(time.Hour).UID("uid-granted"), "is about to be evicted"},
		"it has not been ready for long": {ingester(40 * time.Second), "counts in 80s (settle)"},
	}
	budget := zones().Settle(2*time.Minute).Grant("granted", "uid-granted", "a", ago(time.Minute)).Obj()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Unavailable(budget, tc.pod.Obj(), now); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
