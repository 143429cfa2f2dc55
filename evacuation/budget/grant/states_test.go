package grant

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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
