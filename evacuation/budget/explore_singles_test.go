package budget

import (
	"errors"
	"flag"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// singlesScopes bound what every test run explores.
var singlesScopes = map[string]singlesScope{
	"three pods":                         {count: 3, leaders: 1},
	"two leaders":                        {count: 2, leaders: 2},
	"two leaders, and one crashes":       {count: 2, leaders: 2, singleChances: singleChances{Crashes: 1}},
	"everything is late":                 {count: 2, leaders: 1, lags: true},
	"everything is late, two leaders":    {count: 2, leaders: 2, lags: true},
	"one StatefulSet, two leaders":       {count: 2, leaders: 2, shared: true},
	"one StatefulSet, all is late":       {count: 2, leaders: 1, shared: true, lags: true},
	"minAvailable is a number":           {count: 2, leaders: 1, integer: true, shared: true, lags: true},
	"deletions are refused, and hang":    {count: 2, leaders: 1, singleChances: singleChances{Refusals: 1, Hangs: 1}},
	"deletions hang, two leaders":        {count: 2, leaders: 2, singleChances: singleChances{Hangs: 1}},
	"the manager crashes, deletions too": {count: 2, leaders: 1, singleChances: singleChances{Crashes: 2, Refusals: 1}},
	"requests are given up":              {count: 2, leaders: 2, singleChances: singleChances{Cancels: 1}},
	"given up, and deletions hang":       {count: 2, leaders: 1, singleChances: singleChances{Cancels: 1, Hangs: 1, Crashes: 1}},
	"consent is withdrawn":               {count: 2, leaders: 1, singleChances: singleChances{Withdraws: 1, Refusals: 1}},
	"consent is withdrawn, two leaders":  {count: 2, leaders: 2, singleChances: singleChances{Withdraws: 1}},
	"the window closes":                  {count: 2, leaders: 1, singleChances: singleChances{Closes: 2, Crashes: 1}},
	"the window closes, two leaders":     {count: 2, leaders: 2, singleChances: singleChances{Closes: 1}},
	"pods fail":                          {count: 2, leaders: 1, lags: true, singleChances: singleChances{Faults: 1}},
	"pods of one StatefulSet fail":       {count: 3, leaders: 1, shared: true, singleChances: singleChances{Faults: 1}},
	"three pods, two leaders":            {count: 3, leaders: 2, singleChances: singleChances{Crashes: 1, Hangs: 1, Cancels: 1}},
	"pods fail, two leaders":             {count: 2, leaders: 2, lags: true, singleChances: singleChances{Faults: 1, Crashes: 1, Hangs: 1}},
}

// singlesWide are too much for every test run.
var singlesWide = map[string]singlesScope{
	"everything happens":              {count: 2, leaders: 1, lags: true, singleChances: singlesOnce},
	"everything happens, two leaders": {count: 2, leaders: 2, singleChances: singlesOnce},
	"three pods of one StatefulSet": {
		count: 3, leaders: 1, shared: true, lags: true, singleChances: singleChances{Cancels: 1, Faults: 1, Crashes: 1, Refusals: 1, Hangs: 1},
	},
	"three pods fail, two leaders":              {count: 3, leaders: 2, singleChances: singleChances{Cancels: 1, Faults: 1, Crashes: 1, Hangs: 1}},
	"three pods fail, two leaders, all is late": {count: 3, leaders: 2, lags: true, singleChances: singleChances{Faults: 1}},
}

// singlesOnce is all that may happen, once each.
var singlesOnce = singleChances{Cancels: 1, Faults: 1, Crashes: 1, Refusals: 1, Hangs: 1, Closes: 1, Withdraws: 1}

var exploreWide = flag.Bool("explore.wide", false, "explore more than a test run has time for (`make explore`)")

// singlesLimit is how many states there is memory for.
const singlesLimit = 2_000_000

func singlesModel(s singlesScope, p singlesParts) modelcheck.Model[singlesWorld] {
	x := newSingles(s, p)
	return modelcheck.Model[singlesWorld]{Start: []singlesWorld{x.start()}, Moves: x.moves, Goal: singlesWorld.settled, Limit: singlesLimit}
}

// Every order in which everything can happen: never are two singletons of one budget gone at a
// time, none goes outside of the windows, before its time or without consent, and all go in the
// end.
func TestEveryWayOfSingletons(t *testing.T) {
	scopes := maps.Clone(singlesScopes)
	if *exploreWide {
		maps.Copy(scopes, singlesWide)
	}
	for name, s := range scopes {
		t.Run(name, func(t *testing.T) {
			result, err := modelcheck.Run(singlesModel(s, productSingles()))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d moves, %d deep", result.States, result.Moves, result.Depth)
		})
	}
}

// singlesBugs are mistakes that somebody could make.
var singlesBugs = map[string]struct {
	scope string
	seed  func(*singlesParts)
	want  error
}{
	"that a pod goes is recorded when it has gone": {
		"two leaders", func(p *singlesParts) { p.marksFirst = false }, errTwoSingles,
	},
	"it is recorded whatever else was since": {
		"two leaders", func(p *singlesParts) { p.versions = false }, errTwoSingles,
	},
	"the budget is not read again": {
		"consent is withdrawn", func(p *singlesParts) { p.reads = false }, errSingleConsent,
	},
	"nobody looks again when that is recorded": {
		"the window closes", func(p *singlesParts) { p.looks = false }, errSingleClosed,
	},
	"the record ends with the request": {
		"requests are given up", func(p *singlesParts) { p.lasts = false }, errTwoSingles,
	},
	"what has gone in the same way counts for nothing": {
		"everything is late", singlesDecideAfter(func(in *disruption.Exhausted) { in.Agreements[0].Going = nil }), errTwoSingles,
	},
	"the status of the PodDisruptionBudget is believed": {
		"pods fail", singlesDecideAfter(func(in *disruption.Exhausted) {
			in.Agreements[0].Unavailable = 0
			in.All = slices.Clone(in.All)
			for i, pod := range in.All {
				in.All[i] = pod.DeepCopy()
				in.All[i].DeletionTimestamp = nil
				in.All[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
		}), errOtherUnready,
	},
	"the record ends when there is another pod in the place": {
		"pods fail", func(p *singlesParts) {
			p.step = func(in grant.Input) grant.Decision {
				for i := range in.Budgets[0].Grants {
					in.Budgets[0].Grants[i].UntilReady = false
				}
				return grant.Step(in)
			}
		}, errTwoSingles,
	},
	"the time counts for nothing": {
		"two leaders", singlesDecideAfter(func(in *disruption.Exhausted) { in.Agreements[0].After = 0 }), errSingleEarly,
	},
	"a place is never filled again": {
		"two leaders", func(p *singlesParts) {
			p.step = func(in grant.Input) grant.Decision {
				for i := range in.Budgets {
					for owner := range in.Budgets[i].Expected {
						in.Budgets[i].Expected[owner]++
					}
				}
				return grant.Step(in)
			}
		}, modelcheck.ErrStuck,
	},
}

// singlesDecideAfter lets the product decide on what was tampered with.
func singlesDecideAfter(tamper func(*disruption.Exhausted)) func(*singlesParts) {
	return func(p *singlesParts) {
		p.decide = func(in disruption.Exhausted) disruption.Consent {
			tamper(&in)
			return in.Decide()
		}
	}
}

// What is not found here could not be found in the product either.
func TestEveryMistakeWithSingletonsIsFound(t *testing.T) {
	for name, bug := range singlesBugs {
		t.Run(name, func(t *testing.T) {
			p := productSingles()
			bug.seed(&p)
			result, err := modelcheck.Run(singlesModel(singlesScopes[bug.scope], p))
			if !errors.Is(err, bug.want) {
				t.Fatalf("want %v after %d states, got %v", bug.want, result.States, err)
			}
			t.Logf("found after %d states: %v", result.States, err)
		})
	}
}
