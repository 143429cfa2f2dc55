package preemption

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecide(t *testing.T) {
	none, one, two := named("none", 0), named("one", 1), named("two", 2)
	gone := named("gone", 0)
	gone.Disrupted = map[string]struct{}{"a": {}}
	lax := named("lax", 0)
	lax.UnhealthyFree = true
	unready := func(v *Victim) { v.Ready = false }
	node := func(name string, victims ...Victim) Candidate { return Candidate{Node: name, Victims: victims} }
	dropped := func(node string, v Victim, b *Budget, n int32) Dropped {
		return Dropped{Node: node, Why: WhyBudget, Victim: v.Pod, Value: *v.Value, Budget: b, Disruptions: n}
	}
	a, b := victim("a", none), victim("b", one)

	cases := map[string]struct {
		priority    int32
		candidates  []Candidate
		charges     map[*Budget]int32
		wantKept    []string
		wantDropped []Dropped
	}{
		"without candidates": {priority: 999},
		"below the value, its budget would be violated": {
			priority: 999, candidates: []Candidate{node("n", a)}, wantDropped: []Dropped{dropped("n", a, none, 1)},
		},
		"below the value, its budget allows it": {
			priority: 999, candidates: []Candidate{node("n", b)}, wantKept: []string{"n"},
		},
		"at the value":    {priority: 1000, candidates: []Candidate{node("n", a)}, wantKept: []string{"n"}},
		"above the value": {priority: 1001, candidates: []Candidate{node("n", a)}, wantKept: []string{"n"}},
		"without a value": {priority: 999, candidates: []Candidate{node("n", with(a, withoutValue))}, wantKept: []string{"n"}},
		"without budgets": {priority: 999, candidates: []Candidate{node("n", victim("a"))}, wantKept: []string{"n"}},
		"of two nodes the one without a violation is kept": {
			priority: 999, candidates: []Candidate{node("bad", a), node("good", b)},
			wantKept: []string{"good"}, wantDropped: []Dropped{dropped("bad", a, none, 1)},
		},
		"several victims of one budget together": {
			priority: 999, candidates: []Candidate{node("n", victim("a", one), victim("b", one))},
			wantDropped: []Dropped{dropped("n", victim("a", one), one, 2)},
		},
		"as many as the budget allows": {
			priority: 999, candidates: []Candidate{node("n", victim("a", two), victim("b", two))}, wantKept: []string{"n"},
		},
		"victims on different nodes are not counted together": {
			priority: 999, candidates: []Candidate{node("n", victim("a", one)), node("m", victim("b", one))}, wantKept: []string{"n", "m"},
		},
		"one without a value uses up the same budget": {
			priority: 999, candidates: []Candidate{node("n", with(victim("x", one), withoutValue), victim("b", one))},
			wantDropped: []Dropped{dropped("n", victim("b", one), one, 2)},
		},
		"one without a value whose own budget would be violated": {
			priority: 999, candidates: []Candidate{node("n", with(victim("x", none), withoutValue), b)}, wantKept: []string{"n"},
		},
		"the second of its budgets would be violated": {
			priority: 999, candidates: []Candidate{node("n", victim("a", two, none))},
			wantDropped: []Dropped{dropped("n", victim("a", two, none), none, 1)},
		},
		"a pod that no budget counts": {
			priority: 999, candidates: []Candidate{node("n", with(a, func(v *Victim) { v.Free = true }))}, wantKept: []string{"n"},
		},
		"a pod whose disruption is counted already": {
			priority: 999, candidates: []Candidate{node("n", victim("a", gone))}, wantKept: []string{"n"},
		},
		"an unready pod of a budget that lets such go": {
			priority: 999, candidates: []Candidate{node("n", with(victim("a", lax), unready))}, wantKept: []string{"n"},
		},
		"an unready pod of a budget that does not": {
			priority: 999, candidates: []Candidate{node("n", with(a, unready))}, wantDropped: []Dropped{dropped("n", a, none, 1)},
		},
		"a disruption that the budget does not count yet": {
			priority: 999, candidates: []Candidate{node("n", b)}, charges: map[*Budget]int32{one: 1},
			wantDropped: []Dropped{dropped("n", b, one, 1)},
		},
		"an unknown victim that could be guarded": {
			priority: 999, candidates: []Candidate{node("n", with(victim("new"), func(v *Victim) { v.Unknown = true }))},
			wantDropped: []Dropped{{Node: "n", Why: WhyUnknown, Victim: victim("new").Pod, Value: 1000}},
		},
		"an unknown victim that cannot be": {
			priority: 999, candidates: []Candidate{node("n", with(victim("new"), func(v *Victim) { v.Unknown, v.Value = true, nil }))},
			wantKept: []string{"n"},
		},
		"a node with a victim on another node, nothing dropped": {
			priority: 999, candidates: []Candidate{node("n", with(b, func(v *Victim) { v.NodeName = "m" }))}, wantKept: []string{"n"},
		},
		"a node with a victim on another node, another one dropped": {
			priority:   999,
			candidates: []Candidate{node("bad", a), node("n", with(b, func(v *Victim) { v.NodeName = "m" })), node("own", with(b, func(v *Victim) { v.NodeName = "own" }))},
			wantKept:   []string{"own"},
			wantDropped: []Dropped{
				dropped("bad", a, none, 1),
				{Node: "n", Why: WhySpan, Victim: b.Pod},
			},
		},
		"the smallest priority": {
			priority: -2147483648, candidates: []Candidate{node("n", a)}, wantDropped: []Dropped{dropped("n", a, none, 1)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Decide(Input{Preemptor: preemptor(tc.priority), Candidates: tc.candidates, Charges: tc.charges})
			var kept []string
			for _, candidate := range got.Kept {
				kept = append(kept, candidate.Node)
			}
			if diff := cmp.Diff(tc.wantKept, kept); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantDropped, got.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheFirstToTellAbout(t *testing.T) {
	d := Decision{Dropped: []Dropped{
		{Node: "a", Why: WhySpan}, {Node: "b", Why: WhyUnknown}, {Node: "d", Why: WhyBudget}, {Node: "c", Why: WhyBudget},
	}}
	if diff := cmp.Diff(&Dropped{Node: "c", Why: WhyBudget}, d.First()); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if first := (&Decision{}).First(); first != nil {
		t.Errorf("first of none: %v", first)
	}
}

func TestDecideDelete(t *testing.T) {
	then, now := named("web", 1), named("web", 0)
	now.ResourceVersion = "2"
	roomy := named("web", 1)
	roomy.ResourceVersion = "2"
	fresh := named("fresh", 0)
	decided := func(priority int32, victims ...Victim) DecidedNode {
		return DecidedNode{Preemptor: preemptor(priority), Victims: victims}
	}
	cases := map[string]struct {
		in   DeleteInput
		want Verdict
	}{
		"no decision covers it": {DeleteInput{Now: []Victim{victim("a", now)}}, VerdictNotCovered},
		"the budget is as it was": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a", then))}, Now: []Victim{victim("a", then)}}, VerdictAllowed,
		},
		"the budget has changed and allows none": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a", then))}, Now: []Victim{victim("a", now)}}, VerdictRefused,
		},
		"the budget has changed and allows it": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a", then))}, Now: []Victim{victim("a", roomy)}}, VerdictAllowed,
		},
		"the budget is gone": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a", then))}, Now: []Victim{victim("a")}}, VerdictAllowed,
		},
		"there is a new budget": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a"))}, Now: []Victim{victim("a", fresh)}}, VerdictRefused,
		},
		"the others of its node count, too": {
			DeleteInput{
				Decisions: []DecidedNode{decided(999, victim("a", then), victim("b", then))},
				Now:       []Victim{victim("a", roomy), victim("b", roomy)},
			}, VerdictRefused,
		},
		"the others of its node are gone": {
			DeleteInput{
				Decisions: []DecidedNode{decided(999, victim("a", then), victim("b", then))},
				Now:       []Victim{victim("a", roomy), with(victim("b", roomy), func(v *Victim) { v.Free = true })},
			}, VerdictAllowed,
		},
		"the preemptor may violate it": {
			DeleteInput{Decisions: []DecidedNode{decided(1000, victim("a", then))}, Now: []Victim{victim("a", now)}}, VerdictAllowed,
		},
		"one of two preemptors may": {
			DeleteInput{Decisions: []DecidedNode{decided(1000, victim("a", then)), decided(999, victim("a", then))}, Now: []Victim{victim("a", now)}}, VerdictAllowed,
		},
		"the last of two decisions knew the budget as it is": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a", then)), decided(999, victim("a", now))}, Now: []Victim{victim("a", now)}}, VerdictAllowed,
		},
		"the pod is on its way out": {
			DeleteInput{Decisions: []DecidedNode{decided(999, victim("a", then))}}, VerdictAllowed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Victim = "uid-a"
			got, refusal := DecideDelete(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if told := refusal.Budget != nil; told != (tc.want == VerdictRefused) {
				t.Errorf("refusal: %+v", refusal)
			}
		})
	}
}
