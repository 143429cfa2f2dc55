package grant

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
