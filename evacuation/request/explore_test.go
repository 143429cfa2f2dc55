package request

import (
	"flag"
	"testing"

	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

var exploreWide = flag.Bool("explore.wide", false, "explore more than a test run has time for (`make explore`)")

// exploreLimit is how many states fit into some gigabytes of memory.
const exploreLimit = 16_000_000

// exploreScopes bound what every test run explores. What can go wrong goes wrong
// once, at any moment; exploreWideScopes let several things go wrong.
var exploreScopes = []struct {
	name string
	scope
}{
	{"nobody intercepts, a crash", scope{crashes: 1}},
	{"nobody intercepts, requesters come and go", scope{changes: 1}},
	{"nobody intercepts, evictions fail", scope{refusals: 1}},
	{"nobody intercepts, the clock goes back", scope{back: 1}},
	{"nobody intercepts, somebody reports for the last resort", scope{lies: 1}},
	{"one intercepts, a crash", scope{custom: 1, crashes: 1}},
	{"one intercepts, a deadline", scope{custom: 1, deadlines: 1}},
	{"three intercept", scope{custom: 3}},
}

var exploreWideScopes = []struct {
	name string
	scope
}{
	{"nobody intercepts, evictions fail twice", scope{refusals: 2}},
	{"one intercepts, the clock goes back", scope{custom: 1, back: 1}},
	{"one intercepts, requesters come and go", scope{custom: 1, changes: 1}},
	{"one intercepts, evictions fail", scope{custom: 1, refusals: 1}},
	{"one intercepts and lies", scope{custom: 1, lies: 1}},
	{"nobody intercepts, two crashes", scope{crashes: 2}},
	{"nobody intercepts, a crash, requesters come and go, evictions fail", scope{crashes: 1, changes: 1, refusals: 1}},
	{"one intercepts, requesters come and go twice", scope{custom: 1, changes: 2}},
	{"one intercepts, a crash, evictions fail", scope{custom: 1, crashes: 1, refusals: 1}},
	{"one intercepts and lies, a crash", scope{custom: 1, crashes: 1, lies: 1}},
	{"one intercepts, a deadline, evictions fail", scope{custom: 1, deadlines: 1, refusals: 1}},
	{"one intercepts, a deadline, requesters come and go", scope{custom: 1, deadlines: 1, changes: 1}},
	{"one intercepts, a deadline is moved or taken away", scope{custom: 1, deadlines: 2}},
	{"two intercept, a crash", scope{custom: 2, crashes: 1}},
	{"one intercepts, a deadline, a crash", scope{custom: 1, deadlines: 1, crashes: 1}},
	{"two intercept, a deadline, and one needs longer", scope{custom: 2, deadlines: 1}},
	{"two intercept, requesters come and go", scope{custom: 2, changes: 1}},
	{"one intercepts and forbids to cancel, requesters come and go", scope{custom: 1, forbids: 1, changes: 1}},
	{"one intercepts and forbids to cancel, requesters come and go, a crash", scope{custom: 1, forbids: 1, changes: 1, crashes: 1}},
	{"one intercepts and forbids to cancel, a deadline", scope{custom: 1, forbids: 1, deadlines: 1}},
	{"two intercept and one forbids to cancel, requesters come and go", scope{custom: 2, forbids: 1, changes: 1}},
	{"three intercept, a crash", scope{custom: 3, crashes: 1}},
	{"three intercept and lie", scope{custom: 3, lies: 1}},
}

func model(p parts, s scope) modelcheck.Model[world] {
	return modelcheck.Model[world]{
		Start: []world{s.start()},
		Moves: newActors(p, s.custom).moves,
		Check: checkWorld,
		Goal:  func(w world) bool { return w.Stored.End != running },
		Limit: exploreLimit,
	}
}

// Every order in which everything can happen: see explore_world_test.go for what
// there is, explore_moves_test.go for what can happen and what must not.
func TestEveryInterleaving(t *testing.T) {
	states, moves := 0, 0
	scopes := exploreScopes
	if *exploreWide {
		scopes = exploreWideScopes
	}
	for _, s := range scopes {
		t.Run(s.name, func(t *testing.T) {
			result, err := modelcheck.Run(model(exploredParts(), s.scope))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d moves, %d deep", result.States, result.Moves, result.Depth)
			states, moves = states+result.States, moves+result.Moves
		})
	}
	if !t.Failed() {
		t.Logf("%d states, %d moves, 0 violations", states, moves)
	}
}
