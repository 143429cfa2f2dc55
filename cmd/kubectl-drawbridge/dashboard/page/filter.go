package page

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// States of nodes that can be asked for, by the parameter "state".
const (
	stateBlocked     = "blocked"
	stateWaiting     = "waiting"
	stateWorking     = "in-progress"
	stateDraining    = "draining"
	stateDrained     = "drained"
	stateFinished    = "finished"
	stateCordoned    = "cordoned"
	stateSchedulable = "schedulable"
)

var nodeStates = []choice{
	{"", "any state"}, {stateBlocked, "blocked"}, {stateWaiting, "waiting for a budget"}, {stateWorking, "evictions in progress"}, {stateDraining, "draining"},
	{stateDrained, "drained"}, {stateFinished, "pods have left"}, {stateCordoned, "cordoned"}, {stateSchedulable, "schedulable"},
}

// sortHeld puts first what has waited longest.
const sortHeld = "longest"

var nodeOrders = []choice{{"", "blocked first"}, {sortHeld, "waiting longest first"}}

// nodeFilter is which nodes the first page shows, and in which order.
type nodeFilter struct {
	// Name is a part of the name; State one of the nodeStates, Sort one of the nodeOrders.
	Name, State, Sort string
	// Unknown says which parameters have values that are not known.
	Unknown []string
}

func nodeFilterOf(query url.Values) nodeFilter {
	f := nodeFilter{Name: strings.TrimSpace(query.Get("q"))}
	var state, sort string
	f.State, state = chosen(query, "state", nodeStates)
	f.Sort, sort = chosen(query, "sort", nodeOrders)
	f.Unknown = []string{state, sort}
	return f
}

// Active reports whether some nodes may be left out.
func (f nodeFilter) Active() bool { return f.Name != "" || f.State != "" }

// States and Orders are for the form.
func (nodeFilter) States() []choice { return nodeStates }

// Orders in which nodes can be.
func (nodeFilter) Orders() []choice { return nodeOrders }

// Shows reports whether a node is one of those that are wanted.
func (f nodeFilter) Shows(d drainRow) bool {
	if !strings.Contains(d.Node, f.Name) {
		return false
	}
	switch f.State {
	case stateBlocked:
		return d.Blocked > 0
	case stateWaiting:
		return d.Waiting > 0
	case stateWorking:
		return d.Running > 0
	case stateDraining:
		return d.Draining && d.State != "drained"
	case stateDrained:
		return d.State == "drained"
	case stateFinished:
		return d.Done > 0
	case stateCordoned:
		return d.Cordoned
	case stateSchedulable:
		return !d.Cordoned
	default:
		return true
	}
}

// Of are the nodes that are wanted, in the wanted order.
func (f nodeFilter) Of(all []drainRow) []drainRow {
	var found []drainRow
	for _, d := range all {
		if f.Shows(d) {
			found = append(found, d)
		}
	}
	slices.SortStableFunc(found, func(a, b drainRow) int {
		if f.Sort == sortHeld {
			return compareHeld(a, b)
		}
		return cmp.Compare(a.rank, b.rank)
	})
	return found
}

// compareHeld puts first what has waited longest, and last what waits for nothing.
func compareHeld(a, b drainRow) int {
	switch {
	case a.since.IsZero() && b.since.IsZero():
		return 0
	case a.since.IsZero():
		return 1
	case b.since.IsZero():
		return -1
	default:
		return a.since.Compare(b.since)
	}
}

// Touches reports whether a maintenance is about a node that is wanted; with a name only, also
// whether it has that in its own.
func (f nodeFilter) Touches(m *v1alpha1.NodeMaintenance, wanted map[string]bool) bool {
	if !f.Active() || f.State == "" && strings.Contains(m.Name, f.Name) {
		return true
	}
	return slices.ContainsFunc(m.Status.Nodes, func(n v1alpha1.MaintenanceNodeStatus) bool { return wanted[n.Name] })
}

// card is a number that leads to what it counts.
type card struct {
	Count            int
	Text, Href, Tone string
	Here             bool
}

// cardsOf are the numbers at the top. The name that is looked for stays, and so does the order.
func cardsOf(c counts, query url.Values, f nodeFilter) []card {
	var all []card
	for _, one := range []struct {
		n                 int
		text, state, tone string
	}{
		{c.Blocked, "blocked", stateBlocked, toneBad}, {c.Waiting, "waiting for a budget", stateWaiting, toneWait}, {c.Running, "evictions in progress", stateWorking, toneBusy},
		{c.Draining, "nodes draining", stateDraining, toneBusy}, {c.Finished, "finished recently", stateFinished, toneGood},
	} {
		k := card{Count: one.n, Text: one.text, Here: f.State == one.state, Href: with(query, "state", one.state, "page", "drains", "maintenances"), Tone: one.tone}
		if k.Here {
			k.Href = with(query, "state", "", "page", "drains", "maintenances")
		}
		if k.Count == 0 {
			k.Tone = toneFaint
		}
		all = append(all, k)
	}
	return all
}
