package order

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// stage is how far the eviction of a pod is.
type stage uint8

const (
	unasked stage = iota // Nobody has called for it yet.
	waiting              // It is its turn of the order.
	going                // The order has let it go.
	left
)

// maxPods is how many pods an exploration has.
const maxPods = 4

// situation is the state of an exploration.
type situation struct {
	pods [maxPods]stage
	// over: the timeouts are.
	over bool
}

// drain is what is explored: all orders in which the pods of a node are called for, looked at
// and leave.
type drain struct {
	waitsOn
	// marked: the node shows that it is drained, so that all its pods leave. Then each of them is
	// called for at some time. Without, only those that are called for leave.
	marked bool
	// stuck never leaves the node; -1 for none. Only with one does time pass.
	stuck int
	// decide is what is explored.
	decide func(*Input) Decision
}

// there are the pods that leave, as seen by others.
func (d drain) there(s situation) func(int) bool {
	return func(i int) bool { return s.pods[i] != left && (d.marked || s.pods[i] != unasked) }
}

// moves are the situations that may come next, whether some of them need no call, and what is
// wrong with one of them.
func (d drain) moves(s situation) (next []situation, uncalled bool, problem string) {
	now := t0
	if s.over {
		now = t0.Add(time.Minute)
	}
	to := func(i int, at stage) {
		moved := s
		moved.pods[i] = at
		next = append(next, moved)
		uncalled = uncalled || at != waiting
	}
	for i := range d.on {
		switch s.pods[i] {
		case unasked:
			to(i, waiting)
		case waiting:
			if !d.decide(d.input(i, now, t0, d.there(s))).Done {
				continue
			}
			to(i, going)
			for _, j := range d.on[i] {
				if d.there(s)(j) && !s.over && !d.reaches(j, i, d.there(s)) {
					problem = fmt.Sprintf("pod %d of %v goes before pod %d: %+v", i, d.on, j, s)
				}
			}
		case going:
			if i != d.stuck {
				to(i, left)
			}
		case left:
		}
	}
	if d.stuck >= 0 && !s.over {
		moved := s
		moved.over = true
		next, uncalled = append(next, moved), true
	}
	return next, uncalled, problem
}

// explore looks at all situations that can come, until there is a problem. Each move brings a
// drain nearer to its end, so a drain that always has a move ends.
func (d drain) explore() (situations int, problem string) {
	seen := map[situation]bool{{}: true}
	for todo := []situation{{}}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		next, uncalled, problem := d.moves(s)
		open, finished := false, true
		for i := range d.on {
			open = open || s.pods[i] == waiting
			finished = finished && (s.pods[i] == left || i == d.stuck && s.pods[i] == going)
		}
		switch {
		case problem != "":
			return len(seen), problem
		case len(next) == 0 && !finished:
			return len(seen), fmt.Sprintf("the drain of %v never ends, with pod %d stuck: %+v", d.on, d.stuck, s)
		case open && !d.marked && !uncalled:
			return len(seen), fmt.Sprintf("what was called for of %v waits until more is called for: %+v", d.on, s)
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), ""
}

// relation reads who waits for whom of n pods from bits.
func relation(n int, bits uint64) [][]int {
	on := make([][]int, n)
	for i := range n {
		for j := range n {
			if i == j {
				continue
			}
			if bits&1 == 1 {
				on[i] = append(on[i], j)
			}
			bits >>= 1
		}
	}
	return on
}

// Whoever waits for whom, also in circles, whatever order the pods are called for in, and whichever pod
// never goes: each drain ends, and no pod goes before one that it is behind, but for circles
// and after the timeout.
func TestNoDrainIsWithoutAnEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	var relations [][][]int
	for bits := range uint64(1 << 6) {
		relations = append(relations, relation(3, bits))
	}
	ring := [][]int{{1}, {2}, {3}, {0}}
	relations = append(relations, ring, relation(4, 1<<12-1), [][]int{{1, 2, 3}, nil, nil, nil}, [][]int{{1}, {2}, {1}, {0}})
	for range 20 {
		relations = append(relations, relation(4, random.Uint64()))
	}
	situations := 0
	for _, on := range relations {
		for _, marked := range []bool{true, false} {
			for stuck := -1; stuck < len(on); stuck++ {
				d := drain{waitsOn: world(on, func(int) time.Duration { return time.Minute }), marked: marked, stuck: stuck, decide: Decide}
				n, problem := d.explore()
				if problem != "" {
					t.Fatal(problem)
				}
				situations += n
			}
		}
	}
	t.Logf("%d situations of %d relations", situations, len(relations))
	if situations < 10000 {
		t.Errorf("only %d situations were looked at", situations)
	}
}

// The exploration finds what it is for.
func TestTheExplorationFindsMistakes(t *testing.T) {
	ring := [][]int{{1}, {2}, {0}}
	behindOne := [][]int{{1}, nil}
	cases := map[string]struct {
		on     [][]int
		stuck  int
		decide func(*Input) Decision
		want   string
	}{
		"circles are not broken": {ring, -1, func(in *Input) Decision {
			others := *in
			others.Others = slices.Clone(in.Others)
			for i := range others.Others {
				others.Others[i].after = nil
			}
			return Decide(&others)
		}, "never ends"},
		"the time is never over": {behindOne, 1, func(in *Input) Decision {
			early := *in
			early.Now = in.Since
			return Decide(&early)
		}, "never ends"},
		"nobody waits": {behindOne, -1, func(*Input) Decision { return Decision{Done: true} }, "goes before"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := drain{waitsOn: world(tc.on, func(int) time.Duration { return time.Minute }), marked: true, stuck: tc.stuck, decide: tc.decide}
			if _, problem := d.explore(); !strings.Contains(problem, tc.want) {
				t.Errorf("it finds %q, want %q in it", problem, tc.want)
			}
		})
	}
}
