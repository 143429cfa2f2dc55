package budget

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/budget/grant"
	"github.com/drawbridge-dev/drawbridge/internal/disruption"
)

// entry is what a manager knows of a budget with these records.
func (x *singles) entry(w singlesWorld, b singleBudget) *entry {
	e := &entry{compiled: x.rules, members: map[types.UID]*member{}}
	record := func(i int, pod types.UID, marked bool) {
		owner := x.owner(i)
		g := v1alpha1.BudgetGrant{Pod: string(pod), PodUID: string(pod), Request: string(requestOf(pod)), Owner: &owner, Time: metav1.NewMicroTime(noon)}
		if marked {
			g.DisruptionBudget = pdbName
		}
		e.grants = append(e.grants, g)
	}
	for i := range x.count {
		r := b.Records[i]
		if r.Left {
			record(i, leftUID(i), r.LeftMarked)
		}
		if r.Granted {
			record(i, singleUID(i), r.Marked)
		}
		if uid, phase := w.cached(i); phase != singleAbsent {
			e.members[uid] = &member{pod: x.pod(i, uid, phase), placed: true}
		}
	}
	return e
}

// gather is what is gathered for a decision about it.
func (x *singles) gather(w singlesWorld, e *entry, over map[types.UID]bool) grant.Input {
	going := map[types.UID]*request{}
	for i, p := range w.Places[:x.count] {
		if uid := singleUID(i); p.Turn == singleRefused || p.Turn == singleDue {
			going[uid] = &request{uid: requestOf(uid), pod: uid, past: true}
		}
	}
	now := x.now(w)
	return grant.Input{Now: now, Budgets: []grant.Budget{e.gather("", going, over, &owners{found: x.found}, now)}}
}

// grants is what a manager decides as runner.decide does.
func (x *singles) grants(w singlesWorld) singlesStep {
	w.Managers, w.Left, w.Expected, w.Healthy = [maxLeaders]singleManager{}, singleChances{}, 0, 0
	if known, ok := x.steps[w]; ok {
		return known
	}
	over, pods := map[types.UID]bool{}, map[types.UID]identity{}
	var waiting []grant.Request
	for i, p := range w.Places[:x.count] {
		uid, owner := singleUID(i), x.owner(i)
		pods[uid] = identity{name: string(uid), owner: &owner}
		switch p.Turn {
		case singleUnwanted:
			over[requestOf(uid)] = p.there() && !p.Held
		case singleWaits:
			waiting = append(waiting, grant.Request{UID: requestOf(uid), Pod: uid, Created: noon, Name: string(uid)})
		case singleRefused, singleDue:
		}
	}
	e := x.entry(w, w.Budget)
	in := x.gather(w, e, over)
	in.Requests = waiting
	d := x.step(in)
	next := singlesStep{budget: singleBudget{Withdrawn: w.Budget.Withdrawn}}
	records := e.recorded(d.States[0].Grants, pods)
	for i := range x.count {
		r := &next.budget.Records[i]
		for _, g := range records {
			switch types.UID(g.PodUID) {
			case singleUID(i):
				r.Granted, r.Marked = true, g.DisruptionBudget != ""
			case leftUID(i):
				r.Left, r.LeftMarked = true, g.DisruptionBudget != ""
			}
		}
		for _, g := range d.Granted {
			next.told[i] = next.told[i] || g.Pod == singleUID(i)
		}
	}
	x.steps[w] = next
	return next
}

// deletes is what is decided about a pod, as Exhausted.Consent does, with these records; or
// again, after it was recorded that the pod goes.
func (x *singles) deletes(w singlesWorld, b singleBudget, i int, again bool) bool {
	w.Managers, w.Left, w.Budget = [maxLeaders]singleManager{}, singleChances{}, b
	asked := singlesAsked{w, i, again}
	if known, ok := x.consents[asked]; ok {
		return known
	}
	uid, now := singleUID(i), x.now(w)
	in := disruption.Exhausted{Now: now, Pod: uid, Since: now.Add(-2 * time.Minute), Budget: x.pdb(w), All: x.live(w)}
	if w.Places[i].Turn == singleRefused {
		in.Since = now
	}
	e := x.entry(w, b)
	counted := x.gather(w, e, nil)
	groups := x.step(counted).States[0].Groups
	a := e.agreement(requestOf(uid), uid, pdbName, &counted.Budgets[0], groups)
	if again { // The answer is that of before, when the pod might go.
		a.Granted, a.Going, a.Unavailable = true, nil, 0
	}
	in.Agreements = []disruption.Agreement{a}
	deletes := x.decide(in).Deletes
	x.consents[asked] = deletes
	return deletes
}
