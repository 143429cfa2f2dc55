package grant

import (
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

var (
	exploreAll = intstr.FromString("100%")
	exploreOne = intstr.FromInt32(1)
)

// exploreScopes bound what every test run explores: what can go wrong goes wrong once, at
// any moment.
var exploreScopes = map[string]exploreScope{
	"three zones":              {groups: 3, size: 2, maxGroups: 1, maxUnavailable: exploreAll, requests: 4},
	"two zones at a time":      {groups: 3, size: 2, maxGroups: 2, maxUnavailable: exploreOne, requests: 3},
	"two zones at a time fail": {groups: 3, size: 1, maxGroups: 2, maxUnavailable: exploreOne, requests: 3, faults: 1},
	"partitions":               {groups: 2, size: 2, maxGroups: 2, maxUnavailable: exploreOne, across: true, requests: 2, faults: 1},
	"partitions, crashes":      {groups: 2, size: 2, maxGroups: 2, maxUnavailable: exploreOne, across: true, requests: 1, faults: 2, crashes: 1},
	"zones of one owner":       {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, across: true, requests: 2, faults: 1, crashes: 1},
	"pods fail":                {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, requests: 2, faults: 1},
	"pods fail, one at a time": {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreOne, requests: 3, faults: 1},
	"the manager crashes":      {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, requests: 2, faults: 1, crashes: 1},
	"requests are given up":    {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, requests: 3, changes: 1},
	"an interval, and windows": {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, requests: 2, faults: 1, interval: true, windows: true},
	"two budgets":              {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, second: true, requests: 2, faults: 1},
	"two budgets, one blocked": {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, second: true, blocks: true, requests: 2, crashes: 1},
	"two budgets, given up":    {groups: 2, size: 2, maxGroups: 1, maxUnavailable: exploreAll, second: true, requests: 3, changes: 1, crashes: 1},
}

func exploreModel(s exploreScope, step func(Input) Decision) modelcheck.Model[exploredWorld] {
	return modelcheck.Model[exploredWorld]{
		Start: []exploredWorld{s.start()},
		Moves: s.moves(step),
		Goal:  s.settled,
		Limit: 2_000_000,
	}
}

// Every order in which everything can happen: no pod is granted that must not be, and
// whoever waits is granted in the end.
func TestEveryInterleaving(t *testing.T) {
	for name, s := range exploreScopes {
		t.Run(name, func(t *testing.T) {
			result, err := modelcheck.Run(exploreModel(s, Step))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d moves, %d deep", result.States, result.Moves, result.Depth)
		})
	}
}

// exploreBug is a mistake that somebody could make in the place of Step.
type exploreBug struct {
	scope exploreScope
	step  func(in Input) Decision
	want  error
}

// stepWith lets Step decide on budgets that were tampered with.
func stepWith(tamper func(b *Budget)) func(Input) Decision {
	return func(in Input) Decision {
		for i := range in.Budgets {
			tamper(&in.Budgets[i])
		}
		return Step(in)
	}
}

var exploreBugs = map[string]exploreBug{
	"a group is not disrupted": {
		exploreScopes["three zones"], stepWith(func(b *Budget) { b.Rules.MaxGroups++ }), errGroups,
	},
	"what was granted before does not count": {
		exploreScopes["three zones"], stepWith(func(b *Budget) { b.Grants = nil }), errGroups,
	},
	"what was granted to pods that stay does not count": {
		exploreScopes["pods fail, one at a time"], stepWith(func(b *Budget) {
			for i := range b.Grants {
				b.Grants[i].Over = true
			}
		}), errPods,
	},
	"what is missing does not count": {
		exploreScopes["pods fail"], stepWith(func(b *Budget) { b.Expected = nil }), errGroups,
	},
	"what has not settled counts": {
		exploreScopes["pods fail"], stepWith(func(b *Budget) { b.Rules.Settle = 0 }), errGroups,
	},
	"the last that has left is the one that is missing": {
		exploreScopes["partitions"], stepWith(func(b *Budget) {
			for i := range b.Pods {
				b.Pods[i].Created = time.Time{}
			}
		}), errPods,
	},
	"the group of another pod is that of the missing one": {
		exploreScopes["zones of one owner"], stepWith(func(b *Budget) { b.Rules.Spread = false }), errGroups,
	},
	"windows are always open": {
		exploreScopes["an interval, and windows"], stepWith(func(b *Budget) { b.Rules.Windows = nil }), errWindow,
	},
	"a grant is kept although nobody wants the pod gone": {
		exploreScopes["requests are given up"], stepWith(func(b *Budget) {
			for i := range b.Grants {
				b.Grants[i].Over = false
			}
		}), modelcheck.ErrStuck,
	},
	"half of a grant is not taken back": {
		exploreScopes["two budgets, one blocked"], func(in Input) Decision {
			for _, w := range Step(in).Waiting {
				if slices.ContainsFunc(in.Budgets, func(b Budget) bool {
					return slices.ContainsFunc(b.Grants, func(g Grant) bool { return g.Pod == w.Request })
				}) {
					in.Requests = slices.DeleteFunc(in.Requests, func(r Request) bool { return r.UID == w.Request })
				}
			}
			return Step(in)
		}, modelcheck.ErrStuck,
	},
	"only one of two budgets records a grant": {
		exploreScopes["two budgets"], func(in Input) Decision {
			d := Step(in)
			d.States[1].Grants = nil
			return d
		}, errPartial,
	},
	"who waits is forgotten": {
		exploreScopes["pods fail"], func(in Input) Decision {
			in.Requests = in.Requests[:min(len(in.Requests), 1)]
			if len(in.Requests) > 0 && in.Requests[0].Pod == "b-1" {
				in.Requests = nil
			}
			return Step(in)
		}, modelcheck.ErrStuck,
	},
}

// What is not found here could not be found in the product either.
func TestEverySeededBugIsFound(t *testing.T) {
	for name, bug := range exploreBugs {
		t.Run(name, func(t *testing.T) {
			result, err := modelcheck.Run(exploreModel(bug.scope, bug.step))
			if !errors.Is(err, bug.want) {
				t.Fatalf("want %v after %d states, got %v", bug.want, result.States, err)
			}
			t.Logf("found after %d states: %v", result.States, err)
		})
	}
}
