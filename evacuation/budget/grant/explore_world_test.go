package grant

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The exploration of every interleaving: explore_world_test.go has the world, what the
// manager does in it and what must not be, explore_moves_test.go says what else can happen,
// explore_test.go runs it all.
//
// What must not be is defined by the pods alone, not by what a budget counts. A pod serves
// if it is ready, has settled and nobody may evict it. No pod that is ready may be granted
// while as many other groups as allowed have one that does not serve, nor if more of its
// group than allowed would not serve then; none at all outside of the windows. A pod that
// crashes after a grant may let more be disrupted, but nothing more is granted then.

var (
	errGroups  = errors.New("a pod was granted while too many other groups were disrupted")
	errPods    = errors.New("a pod was granted while too many of its group were unavailable")
	errWindow  = errors.New("a pod was granted outside of the windows")
	errBlocked = errors.New("a pod was granted although a condition is not true")
	errPartial = errors.New("a pod was granted that not all of its budgets have recorded")
)

const (
	// maxPlaces is how many pods a world has at most, and maxBudgets how many budgets.
	maxPlaces, maxBudgets = 6, 2
	// exploreSettle and exploreInterval are over when time passes once, and a request is
	// too old then to be overtaken by new ones.
	exploreSettle, exploreInterval, longAgo = time.Minute, time.Minute, 2 * Overtake
)

// phase is what a pod is doing.
type phase uint8

const (
	up phase = iota
	settling
	notReady
	deleting
	absent
)

// turn is that of the interceptor in the pod's request.
type turn uint8

const (
	noRequest turn = iota
	waits
	waitsLong
	// passed: the budgets' turn is over, and the pod may be evicted at any time.
	passed
)

// bits is a set of budgets.
type bits uint8

func (s bits) has(b int) bool { return s&(1<<b) != 0 }

// place of a pod: there is one, or its owner will make another one.
type place struct {
	Phase phase
	Turn  turn
	// Granted have recorded a grant of this pod, Left one of a pod that was here before.
	Granted, Left bits
	// Gone remember that a pod has left otherwise. A crash of the manager forgets it.
	Gone bits
}

// serves: the pod is there for its users, and nobody may evict it.
func (p place) serves() bool { return p.Phase == up && p.Turn != passed }

// exploredWorld is a state. Places of one group are next to each other.
type exploredWorld struct {
	Places [maxPlaces]place
	// Closed: no window is open. Blocked: the condition of the first budget is not true.
	Closed, Blocked bool
	// Paused have granted a moment ago.
	Paused bits
	// What may still happen so many times.
	Requests, Faults, Crashes, Changes, Closes, Blocks uint8
}

// exploreScope bounds an exploration.
type exploreScope struct {
	groups, size, maxGroups int
	maxUnavailable          intstr.IntOrString
	// interval between two grants. windows: they open and close. second is a budget of all
	// pods without groups; with blocks the first one has only the first group, and a
	// condition that is false one day for good.
	interval, windows, second, blocks bool
	// across: an owner has a pod in each group, not all of one.
	across bool
	// How often somebody wants a pod gone, a pod is deleted or is not ready any more, the
	// manager crashes, a request is given up.
	requests, faults, crashes, changes uint8
}

func (s exploreScope) start() exploredWorld {
	w := exploredWorld{Requests: s.requests, Faults: s.faults, Crashes: s.crashes, Changes: s.changes}
	if s.windows {
		w.Closes = 1
	}
	if s.blocks {
		w.Blocks = 1
	}
	return w
}

func (s exploreScope) places() int { return s.groups * s.size }

func (s exploreScope) budgets() int {
	if s.second {
		return 2
	}
	return 1
}

// covers says which budgets a place is in.
func (s exploreScope) covers(i int) bits {
	if s.blocks && i >= s.size {
		return 1 << 1
	}
	return 1<<s.budgets() - 1
}

// now is in the window, or before the next one.
func (s exploreScope) now(w exploredWorld) time.Time {
	if w.Closed {
		return noon.Add(-3 * time.Hour)
	}
	return noon
}

var exploreWindow = Windows{must(ParseWindow("0 12 * * *", "UTC", time.Hour))}

func must(w Window, err error) Window {
	if err != nil {
		panic(err)
	}
	return w
}

func (s exploreScope) group(i int) string { return string(rune('a' + i/s.size)) }

func (s exploreScope) owner(i int) types.UID {
	if s.across {
		return types.UID(fmt.Sprintf("owner-%d", i%s.size))
	}
	return types.UID(s.group(i))
}

func (s exploreScope) uid(i int) types.UID {
	return types.UID(fmt.Sprintf("%s-%d", s.group(i), i%s.size))
}

// rules of the budgets: that of the zones, and one of all pods.
func (s exploreScope) rules(b int) Rules {
	r := Rules{Grouped: true, MaxGroups: s.maxGroups, MaxUnavailable: s.maxUnavailable, Settle: exploreSettle}
	if b == 1 {
		r = Rules{MaxUnavailable: intstr.FromInt32(1), Settle: exploreSettle}
	}
	r.Spread = s.across
	if s.interval {
		r.MinInterval = exploreInterval
	}
	if s.windows {
		r.Windows = exploreWindow
	}
	return r
}

// input is what the controller gathers.
func (s exploreScope) input(w exploredWorld) Input {
	in := Input{Now: s.now(w)}
	for b := range s.budgets() {
		budget := Budget{Name: fmt.Sprintf("budget-%d", b), Rules: s.rules(b), Expected: map[types.UID]int{}}
		if w.Paused.has(b) {
			budget.LastGrant = in.Now
		}
		if b == 0 && w.Blocked {
			budget.Blocked = "the condition is not true"
		}
		for i := range s.places() {
			if s.covers(i).has(b) {
				s.gather(&budget, b, i, w.Places[i], in.Now)
			}
		}
		in.Budgets = append(in.Budgets, budget)
	}
	for i := range s.places() {
		p := w.Places[i]
		if p.Turn == waits || p.Turn == waitsLong {
			r := Request{UID: s.uid(i), Pod: s.uid(i), Created: in.Now, Name: string(s.uid(i))}
			if p.Turn == waitsLong {
				r.Created = in.Now.Add(-longAgo)
			}
			in.Requests = append(in.Requests, r)
		}
	}
	return in
}

func (s exploreScope) gather(budget *Budget, b, i int, p place, now time.Time) {
	owner, label := s.owner(i), s.group(i)
	if !budget.Rules.Grouped {
		label = ""
	}
	budget.Expected[owner]++
	// The time tells what belongs to which place.
	left := now.Add(-time.Hour + time.Duration(i))
	if p.Left.has(b) {
		budget.Grants = append(budget.Grants, Grant{Pod: "left " + s.uid(i), Owner: owner, Group: label, At: left})
	}
	if p.Gone.has(b) {
		gone := Gone{Owner: owner, Group: label, Created: now.Add(-2 * time.Hour), At: left.Add(time.Minute)}
		if p.Left.has(b) {
			gone.Created = left.Add(30 * time.Second) // It has come after the one that was granted.
		}
		budget.Gone = append(budget.Gone, gone)
	}
	if p.Phase == absent {
		return
	}
	pod := Pod{
		UID: s.uid(i), Owner: owner, Group: label, Placed: true, Created: now.Add(-2 * time.Hour),
		Ready: p.Phase == up || p.Phase == settling, ReadySince: now.Add(-time.Hour), Leaving: p.Phase == deleting, LeavingSince: now,
	}
	if p.Phase == settling {
		pod.ReadySince = now
	}
	if p.Left.has(b) || p.Gone.has(b) {
		pod.Created = now.Add(-time.Minute)
	}
	budget.Pods = append(budget.Pods, pod)
	if p.Granted.has(b) {
		budget.Grants = append(budget.Grants, Grant{Pod: pod.UID, Owner: owner, Group: label, At: now.Add(-time.Hour), Over: p.Turn == noRequest})
	}
}

// decide lets the controller step, write some of the statuses, and then report unless it
// crashes before. It says what is wrong with what was granted.
func (s exploreScope) decide(w exploredWorld, step func(Input) Decision, writes bits, reports bool) (exploredWorld, error) {
	in := s.input(w)
	d := step(in)
	before := w
	for b := range s.budgets() {
		if !writes.has(b) {
			continue
		}
		w.Paused &^= 1 << b
		if d.States[b].LastGrant.Equal(in.Now) {
			w.Paused |= 1 << b
		}
		for i := range s.places() {
			p := &w.Places[i]
			p.Granted, p.Left, p.Gone = p.Granted&^(1<<b), p.Left&^(1<<b), p.Gone&^(1<<b)
			for _, g := range d.States[b].Grants {
				switch g.Pod {
				case s.uid(i):
					p.Granted |= 1 << b
				case "left " + s.uid(i):
					p.Left |= 1 << b
				}
			}
			for _, g := range d.States[b].Gone {
				if g.At.Equal(in.Now.Add(-time.Hour + time.Duration(i) + time.Minute)) {
					p.Gone |= 1 << b
				}
			}
		}
	}
	if !reports {
		return w, nil
	}
	var wrong error
	for _, g := range d.Granted {
		for i := range s.places() {
			if s.uid(i) == g.Pod {
				wrong = errors.Join(wrong, s.wrong(w, before, i))
				w.Places[i].Turn = passed
			}
		}
	}
	return w, wrong
}

// wrong says why a pod may not be granted in a world.
func (s exploreScope) wrong(w, before exploredWorld, i int) error {
	p := w.Places[i]
	if p.Phase == deleting {
		return nil
	}
	if p.Granted != s.covers(i) {
		return errPartial
	}
	var wrong error
	for b := range s.budgets() {
		if s.covers(i).has(b) && !before.Places[i].Granted.has(b) {
			wrong = errors.Join(wrong, s.wrongFor(w, b, i))
		}
	}
	return wrong
}

// wrongFor says why a budget may not grant a pod now.
func (s exploreScope) wrongFor(w exploredWorld, b, i int) error {
	switch {
	case w.Closed:
		return errWindow
	case b == 0 && w.Blocked:
		return errBlocked
	case w.Places[i].Phase == notReady:
		return nil
	}
	missing, others := 1, map[string]bool{}
	for j := range s.places() {
		switch {
		case j == i || !s.covers(j).has(b) || w.Places[j].serves():
		case b == 1 || s.group(j) == s.group(i):
			missing++
		default:
			others[s.group(j)] = true
		}
	}
	rules, expected := s.rules(b), s.size
	if b == 1 {
		expected = s.places()
	}
	allowed, err := intstr.GetScaledValueFromIntOrPercent(&rules.MaxUnavailable, expected, true)
	switch {
	case err != nil:
		return err
	case b == 0 && len(others) >= s.maxGroups:
		return errGroups
	case missing > allowed:
		return errPods
	}
	return nil
}
