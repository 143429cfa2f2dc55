package guard

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func input(change ...func(*Input)) Input {
	in := Input{Served: true, Interceptors: []Interceptor{{}}}
	for _, c := range change {
		c(&in)
	}
	return in
}

func at(stage Stage) func(*Input) { return func(in *Input) { in.Stage = stage } }

func wants(policies ...v1alpha1.GuardPolicy) func(*Input) {
	return func(in *Input) {
		in.Interceptors = nil
		for _, p := range policies {
			in.Interceptors = append(in.Interceptors, Interceptor{Guard: p})
		}
	}
}

func closed(in *Input)   { in.Closed = true }
func held(in *Input)     { in.Held, in.Hold = true, "it cannot migrate" }
func spared(in *Input)   { in.Spared = true }
func unknown(in *Input)  { in.Unknown = true }
func evicting(in *Input) { in.Interceptors[0].Evicting = true }
func bound(in *Input)    { in.Bound = true }
func budgeted(in *Input) { in.OtherBudgets = []string{"web"} }

func TestStep(t *testing.T) {
	const always, while, never = v1alpha1.GuardAlways, v1alpha1.GuardWhileEvacuating, v1alpha1.GuardNever
	tests := map[string]struct {
		in   Input
		want Decision
	}{
		"nobody intercepts it":                            {input(wants()), Decision{}},
		"nobody intercepts it any more":                   {input(wants(), closed), Decision{State: StateNone, Change: ChangeOpen}},
		"nobody is known who does, for now":               {input(wants(), closed, unknown), Decision{State: StateNone, Change: ChangeNothing}},
		"before the first eviction":                       {input(), Decision{State: StateOpen, Change: ChangeNothing}},
		"from the first eviction":                         {input(at(StageEvacuating)), Decision{State: StateClosed, Change: ChangeClose}},
		"somebody may be missing, one is enough":          {input(at(StageEvacuating), unknown), Decision{State: StateClosed, Change: ChangeClose}},
		"while it is evacuated":                           {input(at(StageEvacuating), closed), Decision{State: StateClosed, Change: ChangeNothing}},
		"in the imperative stage":                         {input(at(StageImperative), closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"the request was canceled or deleted":             {input(closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"an interceptor that evicts is active":            {input(at(StageEvacuating), evicting, closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"the next one does not evict":                     {input(at(StageEvacuating)), Decision{State: StateClosed, Change: ChangeClose}},
		"always, before the first eviction":               {input(wants(always)), Decision{State: StateClosed, Change: ChangeClose}},
		"always, while it is evacuated":                   {input(wants(always), at(StageEvacuating), closed), Decision{State: StateClosed, Change: ChangeNothing}},
		"always, in the imperative stage":                 {input(wants(always), at(StageImperative), closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"always, an interceptor that evicts is active":    {input(wants(always), at(StageEvacuating), evicting, closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"always, the request was canceled":                {input(wants(always)), Decision{State: StateClosed, Change: ChangeClose}},
		"always, but there is nothing to do for it":       {input(wants(always), spared, closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"always, somebody works after all":                {input(wants(always), spared, at(StageEvacuating)), Decision{State: StateClosed, Change: ChangeClose}},
		"never":                                           {input(wants(never), at(StageEvacuating)), Decision{State: StateNone, Change: ChangeNothing}},
		"never any more":                                  {input(wants(never), at(StageEvacuating), closed), Decision{State: StateNone, Change: ChangeOpen}},
		"the strictest wins, always":                      {input(wants(never, while, always)), Decision{State: StateClosed, Change: ChangeClose}},
		"the strictest wins, while evacuating":            {input(wants(never, while), at(StageEvacuating)), Decision{State: StateClosed, Change: ChangeClose}},
		"the strictest wins, but not before":              {input(wants(while, never)), Decision{State: StateOpen, Change: ChangeNothing}},
		"held in the imperative stage":                    {input(held, at(StageImperative), closed), Decision{State: StateHeld, Change: ChangeNothing, LookAgain: true}},
		"held although one that evicts is active":         {input(held, at(StageEvacuating), evicting), Decision{State: StateHeld, Change: ChangeClose, LookAgain: true}},
		"held is stricter than never":                     {input(held, wants(never), at(StageEvacuating)), Decision{State: StateClosed, Change: ChangeClose}},
		"held does not begin before the first eviction":   {input(held), Decision{State: StateOpen, Change: ChangeNothing}},
		"held, but it was evicted":                        {input(held, at(StageOver), closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"no interceptor may ever run for it":              {input(wants(always), at(StageOver), closed), Decision{State: StateOpen, Change: ChangeOpen}},
		"a budget of somebody else selects it":            {input(at(StageEvacuating), budgeted), Decision{State: StateOtherBudget, Change: ChangeNothing}},
		"a budget of somebody else came":                  {input(wants(always), budgeted, closed), Decision{State: StateOtherBudget, Change: ChangeOpen}},
		"a budget of somebody else came to a held one":    {input(held, at(StageImperative), budgeted, closed), Decision{State: StateOtherBudget, Change: ChangeOpen}},
		"a budget of somebody else makes no difference":   {input(budgeted), Decision{State: StateOpen, Change: ChangeNothing}},
		"its namespace is left out":                       {input(wants(always), func(in *Input) { in.Served = false }), Decision{}},
		"its namespace was left out later":                {input(wants(always), closed, func(in *Input) { in.Served = false }), Decision{State: StateNone, Change: ChangeOpen}},
		"a pod that no request can evict":                 {input(wants(always), func(in *Input) { in.Unsupported = true }), Decision{}},
		"a pod that has ended":                            {input(wants(always), closed, func(in *Input) { in.Terminal = true }), Decision{State: StateNone, Change: ChangeOpen}},
		"a pod that is going is left as it is":            {input(wants(always), closed, func(in *Input) { in.Deleting = true }), Decision{}},
		"a pod that is going gets no label":               {input(wants(always), func(in *Input) { in.Deleting = true }), Decision{}},
		"its controller selects by the label it has":      {input(wants(), closed, bound), Decision{State: StateNone, Left: true}},
		"its controller selects pods without the label":   {input(wants(always), bound), Decision{State: StateClosed, Left: true}},
		"bound, and as it should be":                      {input(wants(always), closed, bound), Decision{State: StateClosed}},
		"bound, in the imperative stage":                  {input(at(StageImperative), closed, bound), Decision{State: StateOpen, Change: ChangeOpen}},
		"bound, an interceptor that evicts is active":     {input(at(StageEvacuating), evicting, closed, bound), Decision{State: StateOpen, Change: ChangeOpen}},
		"bound, and held in the imperative stage":         {input(held, at(StageImperative), bound), Decision{State: StateHeld, Left: true, LookAgain: true}},
		"a policy of tomorrow counts as while evacuating": {input(wants("Sometimes"), at(StageEvacuating)), Decision{State: StateClosed, Change: ChangeClose}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Step(tc.in)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStepOnEverything walks over all combinations of what an input can be, and
// checks what must hold for each of them.
func TestStepOnEverything(t *testing.T) {
	policies := [][]v1alpha1.GuardPolicy{
		nil, {v1alpha1.GuardWhileEvacuating}, {v1alpha1.GuardAlways}, {v1alpha1.GuardNever}, {v1alpha1.GuardNever, v1alpha1.GuardAlways},
	}
	n := 0
	for _, p := range policies {
		for stage := StageNone; stage <= StageOver; stage++ {
			for bits := range 1 << 12 {
				bit := func(i int) bool { return bits&(1<<i) != 0 }
				in := input(wants(p...), at(stage))
				in.Served, in.Deleting, in.Terminal, in.Unsupported, in.Unknown = bit(0), bit(1), bit(2), bit(3), bit(4)
				in.Spared, in.Held, in.Closed = bit(5), bit(6), bit(7)
				if bit(8) {
					in.OtherBudgets = []string{"web"}
				}
				in.Unsure, in.Bound = bit(10), bit(11)
				if bit(9) && len(in.Interceptors) > 0 {
					in.Interceptors[0].Evicting = true
				}
				mustHold(t, in, Step(in))
				n++
			}
		}
	}
	if n < 20_000 {
		t.Errorf("only %d inputs", n)
	}
}

func mustHold(t *testing.T, in Input, d Decision) {
	t.Helper()
	must := func(ok bool, what string) {
		if !ok {
			t.Fatalf("%s: input %+v, decision %+v", what, in, d)
		}
	}
	must(d.Change != ChangeClose || !in.Closed, "a label is put on once")
	must(d.Change != ChangeOpen || in.Closed, "a label is taken off once")
	must(d.State.Closes() || d.Change != ChangeClose, "only what is to be closed is closed")
	must(!d.State.Closes() || d.Change != ChangeOpen, "only what is to be open is opened")
	must(!in.Deleting || d == Decision{}, "a pod that goes is left alone")
	must(!in.Unknown || d.Change != ChangeOpen, "nothing is opened while somebody may be missing")
	must(!d.State.Closes() || in.Served && !in.Terminal && !in.Unsupported, "no guard where nobody would open it")
	must(!d.State.Closes() || len(in.OtherBudgets) == 0, "never two budgets on one pod")
	must(!d.State.Closes() || len(in.Interceptors) > 0, "no guard for a pod that nobody intercepts")
	must(!d.State.Closes() || in.Stage != StageOver, "no guard when it is over")
	must(in.Deleting || d.LookAgain == (in.Unsure || d.State == StateHeld), "what may change without an event is looked at again")
	must(!d.Left || in.Bound && d.Change == ChangeNothing, "only a label that its controller selects by is left")
	must(!in.Bound || d.Change == ChangeNothing || d.Change == ChangeOpen && in.goes(), "no pod is taken from its controller that does not go anyway")
	must(d.State != StateClosed || in.Stage != StageImperative, "only what is held is closed in the imperative stage")
	// Applied, the decision stands.
	if d.Change != ChangeNothing {
		after := in
		after.Closed = d.Change == ChangeClose
		if again := Step(after); again.Change != ChangeNothing || again.State != d.State {
			t.Fatalf("the decision does not stand: input %+v, decision %+v, then %+v", in, d, again)
		}
	}
}

func TestWhomABudgetSelects(t *testing.T) {
	requirement := func(key string, operator metav1.LabelSelectorOperator, values ...string) []metav1.LabelSelectorRequirement {
		return []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}
	}
	tests := map[string]struct {
		selector *metav1.LabelSelector
		want     bool
	}{
		"no selector":                           {nil, false},
		"an empty one":                          {&metav1.LabelSelector{}, true},
		"its label":                             {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, true},
		"another value":                         {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, false},
		"an empty value of what it lacks":       {&metav1.LabelSelector{MatchLabels: map[string]string{"tier": ""}}, false},
		"its label, and one it lacks":           {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "a"}}, false},
		"an expression":                         {&metav1.LabelSelector{MatchExpressions: requirement("app", metav1.LabelSelectorOpIn, "web", "db")}, true},
		"its label, but not an expression":      {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: requirement("app", metav1.LabelSelectorOpDoesNotExist)}, false},
		"the guard's label, which it lacks":     {&metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.GuardLabel: v1alpha1.GuardClosed}}, false},
		"its label, and that the guard is open": {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: requirement(v1alpha1.GuardLabel, metav1.LabelSelectorOpDoesNotExist)}, false},
		"what nobody can read":                  {&metav1.LabelSelector{MatchExpressions: requirement("app", "Maybe")}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			budget := builder.Budget("shop", "web").Obj()
			budget.Spec.Selector = tc.selector
			for _, pod := range []*builder.PodWrapper{webPod("web-1"), webPod("web-1").Label(v1alpha1.GuardLabel, v1alpha1.GuardClosed)} {
				if got := selects(budget, pod.Obj()); got != tc.want {
					t.Errorf("labels %v selected: got %t, want %t", pod.Labels, got, tc.want)
				}
			}
		})
	}
}
