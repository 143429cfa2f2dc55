package grant

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Which evictions are granted, and what follows from it.
func TestStep(t *testing.T) {
	maxUnavailable := func(m intstr.IntOrString) change { return rules(func(r *Rules) { r.MaxUnavailable = m }) }
	number, percent := intstr.FromInt32, intstr.FromString
	settle := rules(func(r *Rules) { r.Settle = 2 * time.Minute })
	interval := func(ago time.Duration) change {
		return func(b *Budget) { b.Rules.MinInterval, b.LastGrant = 10*time.Minute, at(-ago) }
	}
	blocked := func(b *Budget) { b.Blocked = "condition ring is not true" }
	continues := rules(func(r *Rules) { r.Continue = true })
	full := func(b *Budget) {
		for i := range MaxGrants {
			name := fmt.Sprintf("d-%d", i)
			b.Pods = append(b.Pods, podOf(name))
			b.Grants = append(b.Grants, grantOf(name))
		}
	}
	calm := []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}
	// all waits for one reason, and nothing is allowed.
	all := func(groups []string, wake time.Duration, waiting ...string) outcome {
		return outcome{Waiting: waiting, Groups: groups, WakeAt: wake}
	}
	cases := map[string]struct {
		budget   Budget
		requests []Request
		want     outcome
	}{
		"all pods of one zone go, and the other zones wait": {
			zones(), requests("a-0", "a-1", "b-0", "c-0"),
			outcome{
				Granted: []string{"a-0", "a-1"}, Waiting: []string{"b-0: GroupsDisrupted", "c-0: GroupsDisrupted"},
				Groups: []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
			},
		},
		"the oldest request decides which zone is the first": {
			zones(), []Request{request("a-0", time.Minute), request("b-0", time.Hour)},
			outcome{
				Granted: []string{"b-0"}, Waiting: []string{"a-0: GroupsDisrupted"},
				Groups: []string{`"a": 2 of 2`, `"b": 1 of 2`, `"c": 2 of 2`}, Allowed: 1,
			},
		},
		"requests of the same age go by their names": {
			zones(), []Request{request("b-0", time.Hour), request("a-0", time.Hour)},
			outcome{
				Granted: []string{"a-0"}, Waiting: []string{"b-0: GroupsDisrupted"},
				Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, Allowed: 1,
			},
		},
		"two zones at a time if the budget says so": {
			zones(rules(func(r *Rules) { r.MaxGroups = 2 })), requests("a-0", "b-0", "c-0"),
			outcome{
				Granted: []string{"a-0", "b-0"}, Waiting: []string{"c-0: GroupsDisrupted"},
				Groups: []string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`}, Allowed: 2,
			},
		},
		"so many pods of the zone as the budget says": {
			zones(maxUnavailable(number(1))), requests("a-0", "a-1"),
			outcome{
				Granted: []string{"a-0"}, Waiting: []string{"a-1: PodsUnavailable"},
				Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
			},
		},
		"a percentage is of what should run, and rounded up": {
			zones(ungrouped(percent("17%"))), requests("a-0", "a-1", "b-0"), // 1.02 of 6.
			outcome{
				Granted: []string{"a-0", "a-1"}, Waiting: []string{"b-0: PodsUnavailable"}, Groups: []string{`"": 4 of 6`},
			},
		},
		"a pod that is missing counts for the percentage": {
			zones(ungrouped(percent("17%")), away("c-1")), requests("a-0", "a-1"),
			outcome{
				Granted: []string{"a-0"}, Waiting: []string{"a-1: PodsUnavailable"}, Groups: []string{`"": 4 of 6`},
			},
		},
		"without groups one pod at a time": {
			zones(ungrouped(number(1))), requests("a-0", "b-0"),
			outcome{Granted: []string{"a-0"}, Waiting: []string{"b-0: PodsUnavailable"}, Groups: []string{`"": 5 of 6`}},
		},
		"without requests it says what would be allowed": {zones(maxUnavailable(number(1))), nil, outcome{Groups: calm, Allowed: 1}},
		"the largest zones are allowed": {
			zones(with(podOf("c-2")), rules(func(r *Rules) { r.MaxGroups = 2 })), nil,
			outcome{Groups: []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 3 of 3`}, Allowed: 5},
		},
		"nothing is allowed while too many zones are disrupted": {
			zones(unready("a-0", "b-0")), nil, outcome{Groups: []string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`}},
		},
		"one zone is allowed while it is disrupted": {
			zones(unready("a-0")), nil, outcome{Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, Allowed: 1},
		},

		"a pod that is ready too short counts as unavailable until it has settled": {
			zones(settle, readyFor(30*time.Second, "a-0")), requests("b-0"),
			outcome{
				Waiting: []string{"b-0: GroupsDisrupted"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
				Allowed: 1, WakeAt: 90 * time.Second,
			},
		},
		"a pod that has just settled is available": {
			zones(settle, readyFor(2*time.Minute, "a-0")), requests("b-0"),
			outcome{Granted: []string{"b-0"}, Groups: []string{`"a": 2 of 2`, `"b": 1 of 2`, `"c": 2 of 2`}, Allowed: 1},
		},
		"a pod that settles may go within its zone": {
			zones(settle, readyFor(30*time.Second, "a-0")), requests("a-0"),
			outcome{
				Granted: []string{"a-0"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, Allowed: 1, WakeAt: 90 * time.Second,
			},
		},
		"a pod that settles waits for other zones, unlike one that is not ready": {
			zones(settle, readyFor(30*time.Second, "a-0"), unready("b-0")), requests("a-0", "b-0"),
			outcome{
				Granted: []string{"b-0"}, Waiting: []string{"a-0: GroupsDisrupted"},
				Groups: []string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`}, WakeAt: 90 * time.Second,
			},
		},

		"with an interval one goes at a time": {
			zones(interval(10 * time.Minute)), requests("a-0", "a-1"),
			outcome{
				Granted: []string{"a-0"}, Waiting: []string{"a-1: MinInterval"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
				WakeAt: 10 * time.Minute,
			},
		},
		"before the interval is over nobody goes, ready or not": {
			zones(interval(4*time.Minute), unready("a-1")), requests("a-0", "a-1"),
			all([]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, 6*time.Minute, "a-0: MinInterval", "a-1: MinInterval"),
		},
		"the interval counts from when the last pod began to leave": {
			zones(interval(10*time.Minute), func(b *Budget) { b.LastLeft = at(-9 * time.Minute) }), requests("a-0"),
			all(calm, time.Minute, "a-0: MinInterval"),
		},
		"the next one waits for a pod that was granted and stays, however long": {
			zones(interval(time.Minute), func(b *Budget) {
				b.Grants, b.LastGrant = []Grant{{Pod: "a-0", Request: "r-a-0", Owner: "a", Group: "a", At: at(-time.Hour)}}, at(-time.Hour)
			}), requests("a-1"),
			all([]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, 0, "a-1: MinInterval"),
		},
		"one is allowed when the interval is over": {zones(interval(10 * time.Minute)), nil, outcome{Groups: calm, Allowed: 1}},

		"in a window evictions are granted, and it wakes at the end": {
			zones(window("0 11 * * *", 2*time.Hour)), requests("a-0", "a-1"),
			outcome{Granted: []string{"a-0", "a-1"}, Groups: []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, WakeAt: time.Hour},
		},
		"outside of the windows nobody goes, ready or not, and it wakes at the next": {
			zones(window("0 22 * * *", 2*time.Hour), unready("a-1")), requests("a-0", "a-1"),
			all([]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, 10*time.Hour, "a-0: OutsideWindow", "a-1: OutsideWindow"),
		},
		"a window is closed at its end": {
			zones(window("0 11 * * *", time.Hour)), requests("a-0"), all(calm, 23*time.Hour, "a-0: OutsideWindow"),
		},
		"a window is open from its start": {
			zones(window("0 12 * * *", time.Hour), maxUnavailable(number(1))), requests("a-0"),
			outcome{Granted: []string{"a-0"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, WakeAt: time.Hour},
		},
		"outside of the windows everybody goes on if the budget says so": {
			zones(window("0 22 * * *", 2*time.Hour), continues, blocked, maxUnavailable(number(0))), requests("a-0", "b-0"),
			outcome{
				Granted: []string{"a-0", "b-0"}, Groups: []string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`}, Allowed: 4, WakeAt: 10 * time.Hour,
			},
		},
		"in a window it does not go on whatever happens": {
			zones(window("0 11 * * *", 2*time.Hour), continues, blocked), requests("a-0"), all(calm, time.Hour, "a-0: ConditionFalse"),
		},

		"a condition that is not true lets nobody go, ready or not": {
			zones(blocked, unready("a-1")), requests("a-0", "a-1"),
			all([]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, 0, "a-0: ConditionFalse", "a-1: ConditionFalse"),
		},
		"a budget that is not accepted lets nobody go, whatever there is outside of windows": {
			zones(window("0 22 * * *", 2*time.Hour), continues, rules(func(r *Rules) { r.Refused = "InvalidExpression" })), requests("a-0"),
			all(calm, 10*time.Hour, "a-0: NotAccepted"),
		},
		"a budget of none lets nobody go, ready or not": {
			zones(maxUnavailable(number(0)), unready("a-1")), requests("a-0", "a-1"),
			all([]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, 0, "a-0: NothingAllowed", "a-1: NothingAllowed"),
		},
		"so does one of 0%": {
			zones(maxUnavailable(percent("0%"))), requests("a-0"), all(calm, 0, "a-0: NothingAllowed"),
		},
		"a value that cannot be read lets nobody go": {
			zones(maxUnavailable(percent("some"))), requests("a-0"), all(calm, 0, "a-0: PodsUnavailable"),
		},
		"no more is granted than can be recorded": {
			zones(full, unready("a-1")), requests("a-0", "a-1", "d-0"),
			outcome{
				Granted: []string{"d-0"}, Waiting: []string{"a-0: GrantsFull", "a-1: GrantsFull"},
				Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`, `"d": 0 of 256`},
			},
		},
		"outside of the windows what cannot be recorded goes on, too": {
			zones(full, window("0 22 * * *", time.Hour), continues), requests("a-0"),
			outcome{
				Granted: []string{"a-0"}, Groups: []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 2 of 2`, `"d": 0 of 256`}, Allowed: 6, WakeAt: 10 * time.Hour,
			},
		},
		"the room for grants limits what is allowed": {
			zones(full, func(b *Budget) { b.Grants, b.Rules.MaxGroups = b.Grants[:MaxGrants-1], 2 }), nil,
			outcome{Groups: []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 2 of 2`, `"d": 1 of 256`}, Allowed: 1},
		},

		"a pod that is not ready may go whatever is unavailable": {
			zones(maxUnavailable(number(1)), unready("a-0", "b-0", "b-1", "c-0")), requests("b-0", "b-1"),
			outcome{Granted: []string{"b-0", "b-1"}, Groups: []string{`"a": 1 of 2`, `"b": 0 of 2`, `"c": 1 of 2`}},
		},
		"a pod that is leaving may go whatever the budget says": {
			zones(leaving("a-0"), maxUnavailable(number(0)), window("0 22 * * *", time.Hour), blocked), requests("a-0"),
			outcome{Granted: []string{"a-0"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, WakeAt: 10 * time.Hour},
		},
		"a pod without a node yet may go": {
			zones(unplaced("a-0"), maxUnavailable(number(1))), requests("a-0", "b-0"),
			outcome{
				Granted: []string{"a-0"}, Waiting: []string{"b-0: GroupsDisrupted"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
			},
		},
		"what was granted stays granted, whatever the budget says now": {
			zones(granted("a-0"), maxUnavailable(number(0)), window("0 22 * * *", time.Hour), blocked), requests("a-0"),
			outcome{Granted: []string{"a-0"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, WakeAt: 10 * time.Hour},
		},

		"a younger request of the disrupted zone overtakes": {
			zones(granted("a-0")), []Request{request("b-0", 20*time.Minute), request("a-1", 10*time.Minute)},
			outcome{Granted: []string{"a-1"}, Waiting: []string{"b-0: GroupsDisrupted"}, Groups: []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		},
		"one that is much younger does not": {
			zones(granted("a-0")), []Request{request("b-0", 20*time.Minute), request("a-1", 10*time.Minute-1)},
			outcome{
				Waiting: []string{"b-0: GroupsDisrupted", "a-1: TurnOfOthers"}, Groups: []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}, Allowed: 1,
			},
		},
		"one that is much younger and not ready does": {
			zones(granted("a-0"), unready("a-1")), []Request{request("b-0", 20*time.Minute), request("a-1", time.Second)},
			outcome{Granted: []string{"a-1"}, Waiting: []string{"b-0: GroupsDisrupted"}, Groups: []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		},
		"who waits for its own zone is overtaken by nobody's turn": {
			zones(granted("a-0"), maxUnavailable(number(1)), rules(func(r *Rules) { r.MaxGroups = 2 })),
			[]Request{request("a-1", time.Hour), request("b-0", time.Second)},
			outcome{
				Granted: []string{"b-0"}, Waiting: []string{"a-1: PodsUnavailable"}, Groups: []string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`},
			},
		},
		"pods that are missing nobody knows where count in each zone": {
			zones(maxUnavailable(number(1)), rules(func(r *Rules) { r.MaxGroups = 3 }), away("b-0", "b-1")), requests("a-0"),
			all([]string{`"?": 0 of 2`, `"a": 2 of 2`, `"c": 2 of 2`}, 0, "a-0: PodsUnavailable"),
		},
		"nobody waits for pods that no budget covers": {
			zones(), requests("x-0"), outcome{Granted: []string{"x-0"}, Groups: calm, Allowed: 2},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Step(Input{Budgets: []Budget{tc.budget}, Requests: tc.requests, Now: noon})
			if diff := cmp.Diff(tc.want, outcomeOf(d)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// What is recorded of a step.
func TestStates(t *testing.T) {
	untilReady := func(names ...string) change {
		return func(b *Budget) {
			for i := range b.Grants {
				b.Grants[i].UntilReady = b.Grants[i].UntilReady || slices.Contains(names, string(b.Grants[i].Pod))
			}
		}
	}
	over := func(names ...string) change {
		return func(b *Budget) {
			for i := range b.Grants {
				for _, name := range names {
					b.Grants[i].Over = b.Grants[i].Over || b.Grants[i].Pod == types.UID(name)
				}
			}
		}
	}
	newGrant := func(name string) Grant {
		g := grantOf(name)
		g.At = noon
		return g
	}
	opening := Opening{Start: at(-time.Hour), End: at(time.Hour)}
	groups := func(a, b, c Group) []Group { return []Group{a, b, c} }
	whole := func(name string) Group { return Group{Name: name, Expected: 2, Available: 2} }
	cases := map[string]struct {
		budget   Budget
		requests []Request
		want     State
	}{
		"a grant is recorded with the time, and who waits is counted": {
			zones(), requests("a-0", "b-0", "b-1"),
			State{
				Groups: groups(Group{Name: "a", Expected: 2, Available: 1, Disrupted: 1}, Group{Name: "b", Expected: 2, Available: 2, Waiting: 2}, whole("c")),
				Grants: []Grant{newGrant("a-0")}, LastGrant: noon, Allowed: 1, Waiting: 2, Covered: 6,
				Wait: &Wait{
					Request: "request of b-0", Budget: "zones", Group: "b", Reason: "GroupsDisrupted",
					Message: `EvictionBudget zones: group "a" is disrupted, and at most 1 may be at a time.`,
				},
			},
		},
		"an older grant is kept and not recorded again": {
			zones(granted("a-0")), requests("a-0", "a-1"),
			State{
				Groups: groups(Group{Name: "a", Expected: 2, Disrupted: 2}, whole("b"), whole("c")),
				Grants: []Grant{grantOf("a-0"), newGrant("a-1")}, LastGrant: noon, Covered: 6,
			},
		},
		"a grant that nobody wants any more is dropped if the pod stays": {
			zones(granted("a-0", "b-0"), over("a-0", "b-0"), leaving("b-0")), nil,
			State{
				Groups: groups(whole("a"), Group{Name: "b", Expected: 2, Available: 1, Disrupted: 1}, whole("c")),
				Grants: []Grant{func() Grant { g := grantOf("b-0"); g.Over = true; return g }()}, Allowed: 1, Covered: 6,
			},
		},
		"the grant of a pod that has left is kept until its place is filled": {
			zones(granted("a-0", "b-0"), away("a-0", "b-0"), with(func() Pod { p := podOf("b-2"); p.Ready = false; return p }())), nil,
			State{
				Groups: groups(Group{Name: "a", Expected: 2, Available: 1, Disrupted: 1}, Group{Name: "b", Expected: 2, Available: 1, Disrupted: 1}, whole("c")),
				Grants: []Grant{grantOf("a-0")}, Covered: 5,
			},
		},
		"one that has to last until a pod is ready is kept longer": {
			zones(granted("a-0", "b-0"), untilReady("a-0", "b-0"), away("a-0", "b-0"), with(podOf("a-2"), podOf("b-2")), unready("b-1")), nil,
			State{
				Groups: groups(whole("a"), Group{Name: "b", Expected: 2, Available: 1, Disrupted: 1}, whole("c")),
				Grants: []Grant{func() Grant { g := grantOf("b-0"); g.UntilReady = true; return g }()}, Allowed: 1, Covered: 6,
			},
		},
		"also while the pod in its place leaves": {
			zones(granted("a-0"), untilReady("a-0"), away("a-0"), with(podOf("a-2")), leaving("a-2")), nil,
			State{
				Groups: groups(Group{Name: "a", Expected: 2, Available: 1, Disrupted: 1}, whole("b"), whole("c")),
				Grants: []Grant{func() Grant { g := grantOf("a-0"); g.UntilReady = true; return g }()}, Allowed: 1, Covered: 6,
			},
		},
		"but not for pods that are wanted no more": {
			zones(granted("a-0"), untilReady("a-0"), away("a-0", "a-1"), func(b *Budget) { b.Expected["a"] = 0 }), nil,
			State{Groups: []Group{whole("b"), whole("c")}, Allowed: 2, Covered: 4},
		},
		"so is what is remembered of pods that have left otherwise": {
			zones(gone("a-0", "b-0"), with(podOf("b-2"))), nil,
			State{
				Groups: groups(Group{Name: "a", Expected: 2, Available: 1, Disrupted: 1}, whole("b"), whole("c")),
				Gone:   []Gone{{Owner: "a", Group: "a", At: at(-time.Minute)}}, Allowed: 1, Covered: 5,
			},
		},
		"the window that is open": {
			zones(window("0 11 * * *", 2*time.Hour)), nil,
			State{Groups: groups(whole("a"), whole("b"), whole("c")), Opening: opening, Allowed: 2, Covered: 6},
		},
		"the next window, which is the earliest end of the wait": {
			zones(window("0 22 * * *", time.Hour)), requests("a-0"),
			State{
				Groups:  groups(Group{Name: "a", Expected: 2, Available: 2, Waiting: 1}, whole("b"), whole("c")),
				Opening: Opening{Start: at(10 * time.Hour), End: at(11 * time.Hour)}, Waiting: 1, Covered: 6,
				Wait: &Wait{
					Request: "request of a-0", Budget: "zones", Group: "a", Reason: "OutsideWindow", Until: at(10 * time.Hour),
					Message: "EvictionBudget zones: no window is open, the next one opens at 2026-11-23T22:00:00Z.",
				},
			},
		},
		"pods without the label are counted, and are a group": {
			zones(pods(func(p *Pod) { p.Group = "" }, "a-0", "a-1", "b-0")), nil,
			State{
				Groups: []Group{{Name: "", Expected: 3, Available: 3}, {Name: "b", Expected: 1, Available: 1}, whole("c")}, Allowed: 3, Covered: 6, Ungrouped: 3,
			},
		},
		"without groups no pod lacks a label": {
			zones(ungrouped(intstr.FromInt32(1))), nil,
			State{Groups: []Group{{Expected: 6, Available: 6}}, Allowed: 1, Covered: 6},
		},
		"the wait is that of the oldest": {
			zones(granted("a-0")), []Request{request("c-0", time.Minute), request("a-1", time.Second), request("b-0", time.Hour)},
			State{
				Groups: groups(
					Group{Name: "a", Expected: 2, Available: 1, Disrupted: 1, Waiting: 1}, Group{Name: "b", Expected: 2, Available: 2, Waiting: 1},
					Group{Name: "c", Expected: 2, Available: 2, Waiting: 1},
				),
				Grants: []Grant{grantOf("a-0")}, Allowed: 1, Waiting: 3, Covered: 6,
				Wait: &Wait{
					Request: "request of b-0", Budget: "zones", Group: "b", Reason: "GroupsDisrupted",
					Message: `EvictionBudget zones: group "a" is disrupted, and at most 1 may be at a time.`,
				},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Step(Input{Budgets: []Budget{tc.budget}, Requests: tc.requests, Now: noon})
			if diff := cmp.Diff(tc.want, d.States[0]); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}
