// Package modelcheck visits every state of a small model and says how one that must
// not be is reached. It is breadth first and deterministic: the same model gives the
// same number of states and, for a violation, the same shortest way to it.
package modelcheck

import (
	"errors"
	"fmt"
	"strings"
)

// Move is one thing that can happen in a state.
type Move[S comparable] struct {
	// Label says what happens, for the trace.
	Label string
	// To is the state afterwards.
	To S
	// Own: it happens by itself, sooner or later, without help. A way to the goal
	// consists of such moves only.
	Own bool
	// Wrong says what is wrong with the move itself; nil if nothing is.
	Wrong error
}

// Model is what is explored. S holds all that matters, so two equal states are one.
type Model[S comparable] struct {
	// Start has the states to begin with.
	Start []S
	// Moves passes on all that can happen in a state, always in the same order.
	Moves func(s S, to func(Move[S]))
	// Check returns what is wrong with a state, nil if nothing is.
	Check func(s S) error
	// Goal: from every state one with Goal must be within reach by own moves. No
	// such demand is made if nil.
	Goal func(s S) bool
	// Limit is how many states are too many; 0 is no limit. A model that exceeds it
	// was not explored, which is an error.
	Limit int
}

// Result is what an exploration came to.
type Result struct {
	// States and Moves that were visited.
	States, Moves int
	// Depth is the length of the longest of the shortest ways to a state.
	Depth int
}

// ErrStuck is the problem of a state from which nothing leads to the goal without help.
var ErrStuck = errors.New("nothing that happens by itself leads to the goal any more")

// Violation is a state or a move that must not be, with the shortest way to it.
type Violation struct { //nolint:errname // It is one, whatever else an error may be.
	Problem error
	// Steps are the labels of the moves from the start, in order.
	Steps []string
	// Last is the state it ended in.
	Last string
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\nafter %d moves:\n", v.Problem, len(v.Steps))
	for i, step := range v.Steps {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, step)
	}
	fmt.Fprintf(&b, "in the state %s", v.Last)
	return b.String()
}

// Unwrap returns the problem.
func (v *Violation) Unwrap() error { return v.Problem }

// walk is an exploration under way.
type walk[S comparable] struct {
	model  Model[S]
	index  map[S]int32
	states []S
	parent []int32
	label  []string
	depth  []int32
	// Own moves as pairs of states.
	from, to []int32
	result   Result
	err      error
}

// Run explores the model. The error is a *Violation, or says that there were more
// states than the limit.
func Run[S comparable](m Model[S]) (Result, error) {
	w := &walk[S]{model: m, index: map[S]int32{}}
	for _, s := range m.Start {
		w.visit(s, -1, "")
	}
	for at := int32(0); w.err == nil && int(at) < len(w.states); at++ {
		w.result.Depth = int(w.depth[at])
		m.Moves(w.states[at], func(move Move[S]) { w.take(at, move) })
	}
	w.result.States = len(w.states)
	if w.err == nil && m.Goal != nil {
		w.err = w.reach()
	}
	return w.result, w.err
}

func (w *walk[S]) take(at int32, move Move[S]) {
	if w.err != nil {
		return
	}
	w.result.Moves++
	to := w.visit(move.To, at, move.Label)
	if move.Wrong != nil {
		w.err = w.violation(at, move.Wrong, move.Label, move.To)
		return
	}
	if move.Own && w.model.Goal != nil {
		w.from, w.to = append(w.from, at), append(w.to, to)
	}
}

// visit returns the number of a state, and checks it if it is new.
func (w *walk[S]) visit(s S, parent int32, label string) int32 {
	if known, ok := w.index[s]; ok {
		return known
	}
	number := int32(len(w.states))
	w.index[s] = number
	depth := int32(0)
	if parent >= 0 {
		depth = w.depth[parent] + 1
	}
	w.states, w.parent, w.label = append(w.states, s), append(w.parent, parent), append(w.label, label)
	w.depth = append(w.depth, depth)
	switch {
	case w.err != nil:
	case w.model.Limit > 0 && len(w.states) > w.model.Limit:
		w.err = fmt.Errorf("more than %d states: make the model smaller or raise the limit", w.model.Limit)
	case w.model.Check != nil:
		if err := w.model.Check(s); err != nil {
			w.err = w.violation(number, err)
		}
	}
	return number
}

// reach looks for states without a way to the goal.
func (w *walk[S]) reach() error {
	// The moves into each state, one after the other.
	begin := make([]int32, len(w.states)+1)
	for _, to := range w.to {
		begin[to+1]++
	}
	for i := range w.states {
		begin[i+1] += begin[i]
	}
	into := make([]int32, len(w.to))
	next := append([]int32(nil), begin...)
	for i, to := range w.to {
		into[next[to]] = w.from[i]
		next[to]++
	}

	reached := make([]bool, len(w.states))
	var open []int32
	for i, s := range w.states {
		if w.model.Goal(s) {
			reached[i] = true
			open = append(open, int32(i))
		}
	}
	for len(open) > 0 {
		at := open[len(open)-1]
		open = open[:len(open)-1]
		for _, from := range into[begin[at]:begin[at+1]] {
			if !reached[from] {
				reached[from] = true
				open = append(open, from)
			}
		}
	}
	for i, ok := range reached {
		if !ok {
			return w.violation(int32(i), ErrStuck)
		}
	}
	return nil
}

// violation tells the way to a state, and perhaps a last move from there.
func (w *walk[S]) violation(at int32, problem error, last ...any) *Violation {
	v := &Violation{Problem: problem, Last: fmt.Sprintf("%+v", w.states[at])}
	for i := at; w.parent[i] >= 0; i = w.parent[i] {
		v.Steps = append([]string{w.label[i]}, v.Steps...)
	}
	if len(last) == 2 {
		v.Steps = append(v.Steps, fmt.Sprint(last[0]))
		v.Last = fmt.Sprintf("%+v", last[1])
	}
	return v
}
