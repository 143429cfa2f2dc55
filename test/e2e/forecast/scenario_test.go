//go:build unix

package forecast

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// scenario is what is drained. It depends on its seed alone.
type scenario struct {
	seed uint64
	// nodes to drain, and how many of them at a time; 0 is all.
	nodes, parallel int
	loads           []load
}

// load is a workload on the nodes.
type load struct {
	name     string
	stateful bool
	pods     int
	// startup is from a pod's place on a node until it is Ready, stop from its eviction
	// until it is gone.
	startup, stop time.Duration
	// turns are those of its interceptors, one after the other.
	turns []turn
	// pdb is maxUnavailable of its PodDisruptionBudget; none if empty.
	pdb string
	// homeless: its replacements fit on no other node.
	homeless bool
	surges   bool
	paced    *paced
	// after is the workload whose pods leave a node before those of this one, and timeout how long
	// these wait.
	after   string
	timeout time.Duration
}

// turn is that of an interceptor, which takes between min and max.
type turn struct {
	interceptor string
	min, max    time.Duration
}

// paced is an EvictionBudget.
type paced struct {
	// by is the label of nodes that makes groups, one of which may be disrupted at a time.
	by                  string
	minInterval, settle time.Duration
}

const zoneLabel = "topology.kubernetes.io/zone"

// scenarioOf draws a scenario. Each feature is the main one of two in ten.
func scenarioOf(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 20))
	s := scenario{seed: seed, nodes: 1 + r.IntN(3)}
	if s.nodes > 1 && r.IntN(3) == 0 {
		s.parallel = 1
	}
	stop := between(r, 2, 4)
	features := []func(*rand.Rand, *scenario, *load){withPDB, withTurns, withPDB, withPace, withSurge}
	add := func(feature func(*rand.Rand, *scenario, *load), least, most int) *load {
		l := load{
			name: fmt.Sprintf("load-%d", len(s.loads)+1), stateful: r.IntN(2) == 0, pods: least + r.IntN(most-least+1),
			startup: between(r, 3, 6), stop: stop + between(r, 0, 1),
		}
		if feature != nil {
			feature(r, &s, &l)
		}
		s.loads = append(s.loads, l)
		return &s.loads[len(s.loads)-1]
	}
	main := int(seed-1) % len(features)
	add(features[main], 3, 5)
	for range r.IntN(3) {
		others := append(features, nil) //nolint:gocritic // A new one: the capacity is used up.
		add(others[r.IntN(len(others))], 1, 6)
	}
	switch seed % 10 {
	case 3: // Nothing of it may go.
		add(nil, 1, 2).pdb = "0"
	case 8: // One pod may go, and never comes back.
		l := add(nil, 2, 4)
		l.pdb, l.homeless = "1", true
	}
	return s
}

// afterOthers is a scenario that is not drawn: pods leave after others of their node, of which some
// take their time and one never leaves.
func afterOthers() scenario {
	const users, stuck = "load-1", "load-2"
	return scenario{seed: 100, nodes: 1, loads: []load{
		{name: users, pods: 2, startup: 3 * time.Second, stop: 3 * time.Second, turns: []turn{{"turn.users.example.com", 8 * time.Second, 10 * time.Second}}},
		{name: stuck, pods: 1, startup: 3 * time.Second, stop: 3 * time.Second, pdb: "0"},
		{name: "load-3", pods: 2, stateful: true, startup: 3 * time.Second, stop: 3 * time.Second, pdb: "1", after: users, timeout: patience},
		{name: "load-4", pods: 1, startup: 3 * time.Second, stop: 3 * time.Second, after: stuck, timeout: 25 * time.Second},
	}}
}

// between is a whole number of seconds, as the times in the API are.
func between(r *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+r.IntN(most-least+1)) * time.Second
}

func withPDB(r *rand.Rand, s *scenario, l *load) {
	l.pdb = "1"
	if r.IntN(3) == 0 {
		addTurn(r, s, l)
	}
}

func withTurns(r *rand.Rand, s *scenario, l *load) {
	addTurn(r, s, l)
	addTurn(r, s, l)
}

func addTurn(r *rand.Rand, s *scenario, l *load) {
	least := between(r, 3, 8)
	l.turns = append(l.turns, turn{fmt.Sprintf("turn-%d.%s-%d.example.com", len(l.turns)+1, l.name, s.seed), least, least + 4*time.Second})
}

func withPace(r *rand.Rand, _ *scenario, l *load) {
	switch r.IntN(3) {
	case 0:
		l.paced = &paced{by: "kubernetes.io/hostname", settle: between(r, 3, 4)}
	case 1:
		l.paced = &paced{by: zoneLabel, minInterval: between(r, 5, 7)}
	default:
		l.paced = &paced{minInterval: between(r, 6, 8)}
	}
}

func withSurge(_ *rand.Rand, _ *scenario, l *load) { l.surges, l.stateful = true, false }

// String says in words what is in it, for people.
func (s *scenario) String() string {
	nodes := "1 node"
	if s.nodes > 1 {
		nodes = fmt.Sprintf("%d nodes", s.nodes)
	}
	if s.parallel > 0 {
		nodes += fmt.Sprintf(", %d at a time", s.parallel)
	}
	var loads []string
	for i := range s.loads {
		loads = append(loads, s.loads[i].String())
	}
	return nodes + ": " + strings.Join(loads, "; ")
}

// String says in words what it is.
func (l *load) String() string {
	kind := "Deployment"
	if l.stateful {
		kind = "StatefulSet"
	}
	what := []string{fmt.Sprintf("%s of %d (starts in %s, ends in %s)", kind, l.pods, l.startup, l.stop)}
	for _, t := range l.turns {
		what = append(what, fmt.Sprintf("interceptor of %.0f to %s", t.min.Seconds(), t.max))
	}
	if l.pdb != "" {
		what = append(what, "PDB with maxUnavailable "+l.pdb)
	}
	if l.homeless {
		what = append(what, "fits nowhere else")
	}
	if l.surges {
		what = append(what, "surge")
	}
	if l.after != "" {
		what = append(what, fmt.Sprintf("after %s, at most %s", l.after, l.timeout))
	}
	if p := l.paced; p != nil {
		var rules []string
		if p.by != "" {
			rules = append(rules, "one "+p.by[strings.Index(p.by, "/")+1:]+" at a time")
		}
		if p.settle > 0 {
			rules = append(rules, "settle "+p.settle.String())
		}
		if p.minInterval > 0 {
			rules = append(rules, "minInterval "+p.minInterval.String())
		}
		what = append(what, "EvictionBudget: "+strings.Join(rules, ", "))
	}
	return strings.Join(what, ", ")
}
