package request

import (
	"errors"
	"regexp"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/modelcheck"
)

// The nine combinations of who asks and of who takes part.
var (
	nativeAsks = []struct {
		name           string
		legacy, native bool
	}{{"ours", true, false}, {"natively", false, true}, {"both", true, true}}
	nativeTakesPart = []struct {
		name string
		podOf
	}{
		{"native responders", podOf{responders: 1}},
		{"interceptors of ours", podOf{interceptors: 1}},
		{"both", podOf{responders: 1, interceptors: 1}},
		{"ten responders and interceptors of ours", podOf{responders: 1, interceptors: 1, full: true}},
	}
)

// nativeTroubles are what goes wrong once, in each combination. A test run has no time for many
// if both take part, nor for more if there are ten responders.
var nativeTroubles = []struct {
	name string
	nativeScope
	many, more bool
}{
	{"all goes well", nativeScope{}, false, false},
	{"requesters come and go", nativeScope{changes: 1}, false, false},
	{"somebody deletes or edits", nativeScope{hands: 1}, true, true},
	{"the manager is killed", nativeScope{kills: 1}, false, false},
	{"a cache lags", nativeScope{lags: 1}, true, true},
	{"the pod ends", nativeScope{ends: 1}, false, false},
	{"a requester of ours does not wait", nativeScope{hard: 1}, false, false},
	{"native requests get no status", nativeScope{podOf: podOf{mute: true}}, false, false},
}

// nativeWideTroubles are several at once, and two of a kind who take part.
var nativeWideTroubles = []struct {
	name string
	nativeScope
}{
	{"requesters come and go, and the manager is killed", nativeScope{changes: 1, kills: 1}},
	{"requesters come and go twice", nativeScope{changes: 2}},
	{"the manager is killed while a cache lags", nativeScope{kills: 1, lags: 1}},
	{"we are slow", nativeScope{slow: 1}},
	{"two of each", nativeScope{podOf: podOf{responders: 2, interceptors: 2}, kills: 1}},
}

// runNative explores a scope. A violation says what the objects of its last state say.
func runNative(a *nativeActors, s nativeScope) (modelcheck.Result, error) {
	a.pods = s.podOf
	result, err := modelcheck.Run(modelcheck.Model[nativeWorld]{
		Start: []nativeWorld{a.start(s)}, Moves: a.moves, Check: a.check, Goal: a.goal, Limit: exploreLimit,
	})
	if v := (*modelcheck.Violation)(nil); errors.As(err, &v) {
		v.Last += a.describe(v.Last)
	}
	return result, err
}

var numbersIn = regexp.MustCompile(`^{Ours:(\d+) .* Reqs:\[(\d+) (\d+)\] .* Evs:\[(\d+) (\d+)\]`)

// describe prints the objects of a state as modelcheck prints it.
func (a *nativeActors) describe(state string) (text string) {
	found := numbersIn.FindStringSubmatch(state)
	if found == nil {
		return ""
	}
	var of []id
	for _, number := range found[1:] {
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			panic(err)
		}
		of = append(of, id(n))
	}
	for i, object := range []any{a.ours.get(of[0]), a.requests.get(of[1]), a.requests.get(of[2]), a.evictions.get(of[3]), a.evictions.get(of[4])} {
		if of[i] != 0 {
			said, err := yaml.Marshal(object)
			if err != nil {
				panic(err)
			}
			text += "\n---\n" + string(said)
		}
	}
	return text
}

// Every order in which everything can happen around a pod that both APIs know.
func TestEveryNativeInterleaving(t *testing.T) {
	states, moves := 0, 0
	actors := map[podOf]*nativeActors{} // What they have decided once holds in all scopes.
	explore := func(name string, scope nativeScope) {
		t.Run(name, func(t *testing.T) {
			pod := scope.podOf
			pod.mute = false
			if actors[pod] == nil {
				actors[pod] = newNativeActors(productNativeParts(), pod)
			}
			result, err := runNative(actors[pod], scope)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d moves, %d deep", result.States, result.Moves, result.Depth)
			states, moves = states+result.States, moves+result.Moves
		})
	}
	for _, takesPart := range nativeTakesPart {
		both := takesPart.responders > 0 && takesPart.interceptors > 0
		for _, asks := range nativeAsks {
			name := takesPart.name + "/asked " + asks.name + "/"
			with := func(scope nativeScope) nativeScope {
				scope.responders, scope.interceptors = max(scope.responders, takesPart.responders), max(scope.interceptors, takesPart.interceptors)
				scope.full, scope.legacy, scope.native = takesPart.full, asks.legacy, asks.native
				return scope
			}
			for _, trouble := range nativeTroubles {
				if *exploreWide || (!trouble.many || !both) && (!trouble.more || !takesPart.full) {
					explore(name+trouble.name, with(trouble.nativeScope))
				}
			}
			for _, trouble := range nativeWideTroubles {
				if *exploreWide && !takesPart.full {
					explore(name+trouble.name, with(trouble.nativeScope))
				}
			}
		}
	}
	if !t.Failed() {
		t.Logf("%d states, %d moves, 0 violations", states, moves)
	}
}
