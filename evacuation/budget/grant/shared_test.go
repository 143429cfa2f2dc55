package grant

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A pod in two budgets is granted by both or by none.
func TestSharedPods(t *testing.T) {
	// pace is a second budget of the same pods, which are one group.
	pace := func(changes ...change) Budget {
		b := zones(ungrouped(intstr.FromInt32(1)))
		b.Name = "pace"
		for _, c := range changes {
			c(&b)
		}
		return b
	}
	// other has pods of its own.
	other := func(changes ...change) Budget {
		b := Budget{Name: "other", Rules: Rules{MaxUnavailable: intstr.FromInt32(1)}, Pods: []Pod{podOf("x-0")}, Expected: map[types.UID]int{"x": 1}}
		for _, c := range changes {
			c(&b)
		}
		return b
	}
	type shared struct {
		// Granted pods with the budgets that record it, and Waiting pods with the budget.
		Granted map[string][]int
		Waiting map[string]string
		// Grants of each budget, and how many wait for it.
		Grants  [][]string
		Waiters []int
	}
	cases := map[string]struct {
		budgets  []Budget
		requests []Request
		want     shared
	}{
		"both record it": {
			[]Budget{zones(), pace()}, requests("a-0"),
			shared{Granted: map[string][]int{"a-0": {1, 0}}, Grants: [][]string{{"a-0"}, {"a-0"}}, Waiters: []int{0, 0}},
		},
		"what one refuses the other does not record": {
			[]Budget{zones(), pace(unready("c-0"))}, requests("a-0"),
			shared{Waiting: map[string]string{"a-0": "pace"}, Grants: [][]string{nil, nil}, Waiters: []int{0, 1}},
		},
		"if both refuse it waits for the first by name, and counts for both": {
			[]Budget{zones(unready("c-0")), pace(unready("c-0"))}, requests("a-0"),
			shared{Waiting: map[string]string{"a-0": "pace"}, Grants: [][]string{nil, nil}, Waiters: []int{1, 1}},
		},
		"what one has recorded before a crash the other records now": {
			[]Budget{zones(granted("a-0")), pace()}, requests("a-0"),
			shared{Granted: map[string][]int{"a-0": {1}}, Grants: [][]string{{"a-0"}, {"a-0"}}, Waiters: []int{0, 0}},
		},
		"or it is taken back": {
			[]Budget{zones(granted("a-0")), pace(unready("c-0"))}, requests("a-0"),
			shared{Waiting: map[string]string{"a-0": "pace"}, Grants: [][]string{nil, nil}, Waiters: []int{0, 1}},
		},
		"which leaves room for others": {
			[]Budget{zones(granted("a-0"), rules(func(r *Rules) { r.MaxUnavailable = intstr.FromInt32(1) })), pace(granted("a-1"))}, requests("a-0", "a-1"),
			shared{
				Granted: map[string][]int{"a-1": {0}}, Waiting: map[string]string{"a-0": "pace"}, Grants: [][]string{{"a-1"}, {"a-1"}}, Waiters: []int{0, 1},
			},
		},
		"also for other groups": {
			[]Budget{
				zones(granted("a-0")), pace(away("a-1", "b-0", "b-1", "c-0", "c-1"), func(b *Budget) { b.Expected["web"] = 1; b.Blocked = "the condition is not true" }),
			}, requests("c-0", "a-0", "b-0"),
			shared{
				Granted: map[string][]int{"b-0": {0}}, Waiting: map[string]string{"a-0": "pace", "c-0": "zones"}, Grants: [][]string{{"b-0"}, nil}, Waiters: []int{1, 1},
			},
		},
		"what both have recorded goes on": {
			[]Budget{zones(granted("a-0")), pace(granted("a-0"))}, requests("a-0"),
			shared{Granted: map[string][]int{"a-0": nil}, Grants: [][]string{{"a-0"}, {"a-0"}}, Waiters: []int{0, 0}},
		},
		"a pod that leaves is recorded by nobody": {
			[]Budget{zones(leaving("a-0")), pace(leaving("a-0"))}, requests("a-0"),
			shared{Granted: map[string][]int{"a-0": nil}, Grants: [][]string{nil, nil}, Waiters: []int{0, 0}},
		},
		"budgets of other pods have no say": {
			[]Budget{zones(), other(unready("x-0"), rules(func(r *Rules) { r.Refused = "InvalidWindow" }))}, requests("a-0"),
			shared{Granted: map[string][]int{"a-0": {0}}, Grants: [][]string{{"a-0"}, nil}, Waiters: []int{0, 0}},
		},
		"two requests for one pod are one grant": {
			[]Budget{zones(), pace()}, []Request{request("a-0", time.Hour), {UID: "second", Pod: "a-0", Created: at(-time.Minute)}},
			shared{Granted: map[string][]int{"a-0": nil}, Grants: [][]string{{"a-0"}, {"a-0"}}, Waiters: []int{0, 0}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Step(Input{Budgets: tc.budgets, Requests: tc.requests, Now: noon})
			var got shared
			for _, g := range d.Granted {
				if got.Granted == nil {
					got.Granted = map[string][]int{}
				}
				got.Granted[string(g.Pod)] = g.Budgets
			}
			for _, w := range d.Waiting {
				if got.Waiting == nil {
					got.Waiting = map[string]string{}
				}
				got.Waiting[string(w.Request)[len("request of "):]] = w.Budget
			}
			for _, s := range d.States {
				var names []string
				for _, g := range s.Grants {
					names = append(names, string(g.Pod))
				}
				got.Grants, got.Waiters = append(got.Grants, names), append(got.Waiters, s.Waiting)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
