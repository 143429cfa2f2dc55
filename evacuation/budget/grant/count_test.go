package grant

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Which pods are unavailable, and in which group they are missing.
func TestCounts(t *testing.T) {
	// spread is a Deployment of six pods in three zones.
	spread := func(b *Budget) {
		b.Expected = map[types.UID]int{"web": 6}
		for i := range b.Pods {
			b.Pods[i].Owner = "web"
		}
	}
	webGone := func(group string, ago time.Duration) change {
		return func(b *Budget) { b.Gone = append(b.Gone, Gone{Owner: "web", Group: group, At: at(-ago)}) }
	}
	webGrant := func(group string, ago time.Duration) change {
		return func(b *Budget) {
			b.Grants = append(b.Grants, Grant{Pod: types.UID("gone from " + group), Owner: "web", Group: group, At: at(-ago)})
		}
	}
	leavingFor := func(ago time.Duration, name string) change {
		return pods(func(p *Pod) { p.Leaving, p.LeavingSince = true, at(-ago) }, name)
	}
	created := func(ago time.Duration, name string) change {
		return pods(func(p *Pod) { p.Created = at(-ago) }, name)
	}
	scaled := func(owner types.UID, n int) change { return func(b *Budget) { b.Expected[owner] = n } }
	cases := map[string]struct {
		budget Budget
		want   []string
	}{
		"pods that are ready are available":     {zones(), []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"those that are not ready are not":      {zones(unready("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"nor those that were granted":           {zones(granted("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"nor those that are leaving":            {zones(leaving("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"a granted pod that leaves counts once": {zones(granted("a-0"), leaving("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"a pod that leaves and has been replaced counts no more": {
			zones(leaving("a-0"), with(podOf("a-2"))), []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"a pod that nobody replaces is missed until it has gone": {
			zones(pods(func(p *Pod) { p.Owner = "" }, "a-0"), scaled("a", 1), leaving("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"nobody is expected to": {
			zones(func(b *Budget) { b.Expected[""] = 3 }), []string{`"a": 2 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"and then no more": {
			zones(scaled("a", 1), away("a-0"), func(b *Budget) { b.Gone = []Gone{{Group: "a", At: at(-time.Minute)}} }),
			[]string{`"a": 1 of 1`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"nothing is missing of owners of whom nothing is known": {
			zones(func(b *Budget) { delete(b.Expected, "a") }, gone("a-0"), granted("a-2")), []string{`"a": 1 of 1`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"but their pods count while they leave": {
			zones(func(b *Budget) { delete(b.Expected, "a") }, leaving("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"a pod that is missing is so in the group of its owner": {zones(away("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"which is known while a pod leaves": {
			zones(away("a-0"), leaving("a-1")), []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"which is known of pods that have gone": {zones(gone("a-0", "a-1")), []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"which is known of grants":              {zones(granted("a-0"), away("a-0", "a-1")), []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"but not if owners are in several groups": {
			zones(away("a-0"), rules(func(r *Rules) { r.Spread = true })), []string{`"?": 0 of 1`, `"a": 1 of 1`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"else nobody knows":                   {zones(away("a-0", "a-1")), []string{`"?": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"a pod without a node yet is missing": {zones(unplaced("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"also while it leaves":                {zones(unplaced("a-0"), leaving("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"a place that a scale gives up is filled": {
			zones(scaled("a", 1), granted("a-0"), away("a-0")), []string{`"a": 1 of 1`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"a place that a scale adds is missing": {zones(scaled("a", 3)), []string{`"a": 2 of 3`, `"b": 2 of 2`, `"c": 2 of 2`}},
		"more pods than there should be are all expected": {
			zones(with(podOf("a-2"))), []string{`"a": 3 of 3`, `"b": 2 of 2`, `"c": 2 of 2`},
		},

		"of an owner in many groups, the one that a pod is leaving": {
			zones(spread, leaving("a-0")), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"of several that leave, the last that has begun to": {
			zones(spread, leavingFor(time.Minute, "a-0"), leavingFor(time.Second, "b-0"), with(func() Pod { p := podOf("c-2"); p.Owner = "web"; return p }())),
			[]string{`"a": 1 of 1`, `"b": 1 of 2`, `"c": 3 of 3`},
		},
		"those that leave before those that have left": {
			zones(spread, leavingFor(time.Hour, "a-0"), webGone("b", time.Second)), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"of those that have left, the last: with a grant": {
			zones(spread, away("a-0"), webGone("b", time.Minute), webGrant("a", time.Second)), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"or without": {
			zones(spread, away("a-0"), webGone("b", time.Second), webGrant("a", time.Minute)), []string{`"a": 1 of 1`, `"b": 2 of 3`, `"c": 2 of 2`},
		},
		"but not one whose place another pod of its group has taken": {
			zones(spread, away("a-0"), webGone("b", 20*time.Second), webGrant("a", time.Minute), created(10*time.Second, "b-0")),
			[]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"also if it leaves still": {
			zones(spread, away("a-0"), leavingFor(20*time.Second, "b-0"), webGrant("a", time.Minute), created(10*time.Second, "b-1"), scaled("web", 5)),
			[]string{`"a": 1 of 2`, `"b": 1 of 1`, `"c": 2 of 2`},
		},
		"one pod takes one place only": {
			zones(spread, away("a-0", "b-0"), webGone("b", 20*time.Second), webGone("b", 30*time.Second), webGrant("a", time.Minute), created(10*time.Second, "b-1")),
			[]string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`},
		},
		"also if it leaves itself": {
			zones(
				spread, away("a-0", "b-0"), webGone("b", 20*time.Second), webGone("b", 30*time.Second), webGrant("a", time.Minute),
				created(10*time.Second, "b-1"), leavingFor(5*time.Second, "b-1"),
			),
			[]string{`"a": 1 of 2`, `"b": 0 of 2`, `"c": 2 of 2`},
		},
		"a pod that has gone takes no place but that of an older one": {
			zones(spread, away("a-0", "b-0"), webGrant("a", time.Minute), func(b *Budget) {
				b.Gone = []Gone{{Owner: "web", Group: "b", Created: at(-time.Second), At: at(-time.Second + time.Millisecond)}}
			}),
			[]string{`"a": 1 of 2`, `"b": 1 of 2`, `"c": 2 of 2`},
		},
		"a pod that came before takes no place": {
			zones(spread, away("a-0"), webGone("b", 20*time.Second), webGrant("a", time.Minute), created(31*time.Second, "b-0")),
			[]string{`"a": 1 of 1`, `"b": 2 of 3`, `"c": 2 of 2`},
		},
		"one that came shortly before may have come after": {
			zones(spread, away("a-0"), webGone("b", 20*time.Second), webGrant("a", time.Minute), created(30*time.Second, "b-0")),
			[]string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"what is missing beyond that is in a group of its own": {
			zones(spread, away("a-0", "b-0"), webGone("a", time.Minute)), []string{`"?": 0 of 1`, `"a": 1 of 2`, `"b": 1 of 1`, `"c": 2 of 2`},
		},
		"a pod that left before it had a node is missing in the group of its owner": {
			zones(away("a-0"), granted("a-0"), func(b *Budget) { b.Grants[0].Group = UnknownGroup }), []string{`"a": 1 of 2`, `"b": 2 of 2`, `"c": 2 of 2`},
		},
		"and nobody knows where if there are several": {
			zones(spread, away("a-0"), webGrant(UnknownGroup, time.Second)), []string{`"?": 0 of 1`, `"a": 1 of 1`, `"b": 2 of 2`, `"c": 2 of 2`},
		},

		"without groups all that is missing is missing to all": {
			zones(away("a-0", "a-1"), func(b *Budget) {
				b.Rules.Grouped = false
				for i := range b.Pods {
					b.Pods[i].Group = ""
				}
			}), []string{`"": 4 of 6`},
		},
		"also what was recorded in a group before": {
			zones(ungrouped(intstr.FromInt32(1)), away("a-0", "a-1"), webGone("a", time.Minute), webGrant("a", time.Second)), []string{`"": 4 of 6`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Step(Input{Budgets: []Budget{tc.budget}, Now: noon})
			if diff := cmp.Diff(tc.want, outcomeOf(d).Groups); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			for _, g := range d.States[0].Groups {
				if g.Expected != g.Available+g.Disrupted {
					t.Errorf("%d are expected, %d available and %d disrupted in %q", g.Expected, g.Available, g.Disrupted, g.Name)
				}
			}
		})
	}
}

// A pod without a node has no group yet, and what is missing after its grant is missing
// where it was before.
func TestAGrantWithoutANode(t *testing.T) {
	b := zones(unplaced("a-0"))
	d := Step(Input{Budgets: []Budget{b}, Requests: requests("a-0"), Now: noon})
	b.Grants = d.States[0].Grants
	away("a-0")(&b)
	d = Step(Input{Budgets: []Budget{b}, Requests: requests("a-1"), Now: noon})
	want := outcome{Granted: []string{"a-1"}, Groups: []string{`"a": 0 of 2`, `"b": 2 of 2`, `"c": 2 of 2`}}
	if diff := cmp.Diff(want, outcomeOf(d)); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// Messages are for people: who is in the way, and until when.
func TestMessages(t *testing.T) {
	one := intstr.FromInt32(1)
	cases := map[string]struct {
		budget  Budget
		request string
		want    string
	}{
		"another group": {zones(granted("a-0")), "b-0", `group "a" is disrupted, and at most 1 may be at a time`},
		"several other groups": {
			zones(unready("a-0", "c-0")), "b-0", `groups "a", "c" are disrupted, and at most 1 may be at a time`,
		},
		"its own group is not in its way": {
			zones(unready("a-0", "b-0", "c-0")), "b-1", `groups "a", "c" are disrupted, and at most 1 may be at a time`,
		},
		"many groups are named by the first three": {
			zones(with(podOf("d-0"), podOf("e-0")), unready("a-0", "c-0", "d-0", "e-0")), "b-0",
			`groups "a", "c", "d", ... are disrupted, and at most 1 may be at a time`,
		},
		"the pods without the label": {
			zones(unready("a-0"), pods(func(p *Pod) { p.Group = "" }, "a-0")), "b-0", `group "" is disrupted, and at most 1 may be at a time`,
		},
		"a group that nobody knows": {zones(away("a-0", "a-1")), "b-0", `group "?" is disrupted, and at most 1 may be at a time`},
		"pods of its own group": {
			zones(granted("a-0"), rules(func(r *Rules) { r.MaxUnavailable = one })), "a-1", `at most 1 of the pods of group "a" may be unavailable, and as many are`,
		},
		"pods without groups": {
			zones(ungrouped(intstr.FromString("10%")), granted("a-0")), "a-1", `at most 10% of its pods may be unavailable, and as many are`,
		},
		"the turn of others": {
			zones(granted("a-0")), "a-1", `pods of other groups have waited much longer`,
		},
		"the interval": {
			zones(func(b *Budget) { b.Rules.MinInterval, b.LastGrant = time.Minute, noon }), "a-0",
			`another eviction was granted a moment ago, the next one follows`,
		},
		"the interval, and the pod before has not begun to leave": {
			zones(granted("b-0"), func(b *Budget) { b.Rules.MinInterval, b.LastGrant = time.Minute, at(-time.Hour) }), "b-1",
			`another eviction was granted, and its pod has not begun to leave`,
		},
		"nothing allowed": {
			zones(rules(func(r *Rules) { r.MaxUnavailable = intstr.FromInt32(0) })), "a-0", `it allows no pod to be unavailable`,
		},
		"not accepted": {
			zones(rules(func(r *Rules) { r.Refused = "InvalidWindow" })), "a-0", `its spec is not accepted (InvalidWindow)`,
		},
		"a condition": {
			zones(func(b *Budget) { b.Blocked = "condition ring is not true" }), "a-0", `condition ring is not true`,
		},
		"windows that come no more": {zones(never), "a-0", `no window opens any more`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var all []Request
			if name == "the turn of others" {
				all = append(all, request("b-0", 2*time.Hour))
			}
			d := Step(Input{Budgets: []Budget{tc.budget}, Requests: append(all, request(tc.request, time.Hour)), Now: noon})
			if len(d.Waiting) != len(all)+1 {
				t.Fatalf("%d wait, want %d", len(d.Waiting), len(all)+1)
			}
			want := fmt.Sprintf("EvictionBudget zones: %s.", tc.want)
			if diff := cmp.Diff(want, d.Waiting[len(all)].Message); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// never has a window whose schedule comes no more.
func never(b *Budget) {
	b.Rules.Windows = Windows{{schedule: ended{}, duration: time.Hour, location: time.UTC}}
}

// ended is a schedule that comes no more.
type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }
