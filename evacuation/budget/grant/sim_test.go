package grant

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// simulation plays the drain of many pods in virtual time, with one or two budgets, windows
// and intervals. It steps when something has changed and when the last step said so, and
// at no other time.
type simulation struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	now    time.Time
	agenda []simEvent

	zones, size int
	// across: an owner has a pod in each zone, not all of one.
	across bool
	// rules of the zones, and of a second budget of all pods if there is one.
	rules   []Rules
	blocked bool
	pods    []*simPod
	serial  int

	grants  [][]Grant
	gone    [][]Gone
	last    []time.Time
	granted int
}

type simEvent struct {
	at time.Time
	do func()
}

// simPod is a pod of an owner, or its place while there is none.
type simPod struct {
	uid, owner                 types.UID
	zone                       string
	ready, deleting            bool
	absent                     bool
	created, readySince, since time.Time
	// wanted since: it waits for the budgets. passed: it may be evicted at any time.
	wanted time.Time
	passed bool
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 19)), now: noon}
	s.zones, s.size, s.across = 2+s.random.IntN(3), 1+s.random.IntN(5), s.random.IntN(2) == 0
	zones := Rules{
		Grouped: true, MaxGroups: 1 + s.random.IntN(2), MaxUnavailable: s.oneOf(intstr.FromInt32(1), intstr.FromString("34%"), intstr.FromString("100%")),
		Settle: s.upTo(5 * time.Minute), Spread: s.across,
	}
	s.pace(&zones)
	s.rules = []Rules{zones}
	if s.random.IntN(2) == 0 {
		second := Rules{MaxUnavailable: s.oneOf(intstr.FromInt32(1), intstr.FromInt32(3), intstr.FromString("20%")), Settle: s.upTo(time.Minute)}
		s.pace(&second)
		s.rules = append(s.rules, second)
	}
	s.grants, s.gone, s.last = make([][]Grant, len(s.rules)), make([][]Gone, len(s.rules)), make([]time.Time, len(s.rules))
	for z := range s.zones {
		for i := range s.size {
			p := &simPod{zone: string(rune('a' + z)), ready: true, created: at(-time.Hour), readySince: at(-time.Hour)}
			p.owner = types.UID(p.zone)
			if s.across {
				p.owner = types.UID(fmt.Sprintf("owner-%d", i))
			}
			s.name(p)
			s.pods = append(s.pods, p)
			s.after(s.upTo(time.Hour), func() { s.want(p) })
		}
	}
	return s
}

func (s *simulation) oneOf(values ...intstr.IntOrString) intstr.IntOrString {
	return values[s.random.IntN(len(values))]
}

func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d)))
}

// pace adds an interval or a window, or neither.
func (s *simulation) pace(r *Rules) {
	switch s.random.IntN(4) {
	case 0:
		r.MinInterval = 1 + s.upTo(20*time.Minute)
	case 1:
		if len(s.rules) > 0 {
			return // Windows of two budgets may have no moment in common.
		}
		r.Windows = windows(s.t, spec{fmt.Sprintf("%d %d * * *", s.random.IntN(60), s.random.IntN(24)), "Europe/Berlin", time.Hour + s.upTo(8*time.Hour)})
	}
}

// name gives a new pod another UID.
func (s *simulation) name(p *simPod) {
	s.serial++
	p.uid = types.UID(fmt.Sprintf("%s-%d", p.zone, s.serial))
}

func (s *simulation) after(d time.Duration, do func()) {
	s.agenda = append(s.agenda, simEvent{s.now.Add(d), do})
}

func (s *simulation) want(p *simPod) {
	if !p.absent && !p.passed {
		p.wanted = s.now
	}
}

// leave deletes a pod, which makes way for another one.
func (s *simulation) leave(p *simPod) {
	if p.absent || p.deleting {
		return
	}
	p.deleting, p.since = true, s.now
	uid := p.uid
	s.after(s.upTo(time.Minute), func() {
		for b := range s.rules {
			if !slices.ContainsFunc(s.grants[b], func(g Grant) bool { return g.Pod == uid }) {
				s.gone[b] = append(s.gone[b], Gone{Owner: p.owner, Group: s.label(b, p), Created: p.created, At: s.now})
			}
		}
		*p = simPod{uid: uid, owner: p.owner, zone: p.zone, absent: true}
		s.after(s.upTo(time.Minute), func() {
			// The API server knows the seconds of a creation only.
			*p = simPod{owner: p.owner, zone: p.zone, created: s.now.Truncate(time.Second)}
			s.name(p)
			s.after(s.upTo(3*time.Minute), func() { s.recover(p, p.uid) })
		})
	})
}

func (s *simulation) recover(p *simPod, uid types.UID) {
	if p.uid == uid && !p.absent {
		p.ready, p.readySince = true, s.now
	}
}

// disturb lets something go wrong.
func (s *simulation) disturb() {
	p := s.pods[s.random.IntN(len(s.pods))]
	switch s.random.IntN(5) {
	case 0:
		s.leave(p)
	case 1:
		uid := p.uid
		p.ready = false
		s.after(s.upTo(10*time.Minute), func() { s.recover(p, uid) })
	case 2:
		clear(s.gone) // The manager restarts.
	case 3:
		p.wanted, p.passed = time.Time{}, false
		s.after(s.upTo(time.Hour), func() { s.want(p) })
	case 4:
		s.blocked = true
		s.after(s.upTo(30*time.Minute), func() { s.blocked = false })
	}
}

func (s *simulation) label(b int, p *simPod) string {
	if s.rules[b].Grouped {
		return p.zone
	}
	return ""
}

func (s *simulation) input() Input {
	in := Input{Now: s.now}
	for b, rules := range s.rules {
		budget := Budget{Name: fmt.Sprintf("budget-%d", b), Rules: rules, Grants: s.grants[b], Gone: s.gone[b], LastGrant: s.last[b], Expected: map[types.UID]int{}}
		if b == 0 && s.blocked {
			budget.Blocked = "condition calm is not true"
		}
		for _, p := range s.pods {
			budget.Expected[p.owner]++
			if p.absent {
				continue
			}
			budget.Pods = append(budget.Pods, Pod{
				UID: p.uid, Owner: p.owner, Group: s.label(b, p), Placed: true, Created: p.created,
				Ready: p.ready, ReadySince: p.readySince, Leaving: p.deleting, LeavingSince: p.since,
			})
			for i := range budget.Grants {
				if budget.Grants[i].Pod == p.uid {
					budget.Grants[i].Over = p.wanted.IsZero() && !p.passed
				}
			}
		}
		in.Budgets = append(in.Budgets, budget)
	}
	for _, p := range s.pods {
		if !p.absent && !p.wanted.IsZero() {
			in.Requests = append(in.Requests, Request{UID: p.uid, Pod: p.uid, Created: p.wanted, Name: string(p.uid)})
		}
	}
	return in
}

// step is what the controller does. It returns when to step again.
func (s *simulation) step() time.Time {
	in := s.input()
	d := Step(in)
	if len(in.Requests) == 0 && len(in.Budgets) == 1 {
		s.tryAll(in, d.States[0].Allowed)
	}
	if len(d.Granted)+len(d.Waiting) != len(in.Requests) {
		s.t.Fatalf("seed %d: %d are granted and %d wait of %d", s.seed, len(d.Granted), len(d.Waiting), len(in.Requests))
	}
	for _, g := range d.Granted {
		p := s.pods[slices.IndexFunc(s.pods, func(p *simPod) bool { return p.uid == g.Pod })]
		for _, b := range g.Budgets {
			if problem := s.wrong(b, p); problem != "" {
				s.t.Fatalf("seed %d: at %s budget %d grants %s, %s: %+v", s.seed, s.now, b, p.uid, problem, s.rules[b])
			}
			s.last[b] = s.now
		}
		p.wanted, p.passed = time.Time{}, true
		s.granted++
		uid := p.uid
		s.after(s.upTo(time.Minute), func() {
			if p.uid == uid && p.passed {
				s.leave(p)
			}
		})
	}
	for b, state := range d.States {
		s.grants[b], s.gone[b], s.last[b] = state.Grants, state.Gone, state.LastGrant
	}
	return d.WakeAt
}

// tryAll asks for all pods at once, in some order: as many as allowed go, or fewer if the
// first are of a small zone; none only if none is allowed.
func (s *simulation) tryAll(in Input, allowed int) {
	available := map[types.UID]bool{}
	for _, p := range s.pods {
		if s.serves(0, p) {
			available[p.uid] = true
			in.Requests = append(in.Requests, Request{UID: p.uid, Pod: p.uid, Created: s.now, Name: string(p.uid)})
		}
	}
	n := len(Step(in).Granted)
	if n > allowed || n == 0 && allowed > 0 || allowed > len(available) {
		s.t.Fatalf("seed %d: %d are allowed and %d would be granted of %d: %+v", s.seed, allowed, n, len(available), s.rules)
	}
}

// serves: a pod is there for its users, and nobody may evict it.
func (s *simulation) serves(b int, p *simPod) bool {
	return !p.absent && p.ready && !p.deleting && !p.passed && !s.now.Before(p.readySince.Add(s.rules[b].Settle))
}

// wrong says why a budget may not grant a pod now, by what the pods themselves say: see
// explore_world_test.go.
func (s *simulation) wrong(b int, p *simPod) string {
	rules := s.rules[b]
	open := len(rules.Windows) == 0
	if !open {
		_, open, _ = rules.Windows.At(s.now)
	}
	switch {
	case !open:
		return "but no window is open"
	case b == 0 && s.blocked:
		return "but the condition is not true"
	case rules.MinInterval > 0 && s.now.Before(s.last[b].Add(rules.MinInterval)):
		return "but another one was a moment ago"
	case !p.ready:
		return ""
	}
	missing, others, expected := 1, map[string]bool{}, 0
	for _, q := range s.pods {
		same := !rules.Grouped || q.zone == p.zone
		if same {
			expected++
		}
		switch {
		case q == p || s.serves(b, q):
		case same:
			missing++
		default:
			others[q.zone] = true
		}
	}
	allowed, err := intstr.GetScaledValueFromIntOrPercent(&rules.MaxUnavailable, expected, true)
	switch {
	case err != nil:
		return err.Error()
	case missing > allowed:
		return fmt.Sprintf("but then %d are unavailable of at most %d", missing, allowed)
	case rules.Grouped && len(others) >= rules.MaxGroups:
		return fmt.Sprintf("but %d other zones are disrupted", len(others))
	}
	return ""
}

// run plays until nothing happens any more.
func (s *simulation) run() {
	wake := s.step()
	for s.now.Before(at(60 * 24 * time.Hour)) {
		slices.SortStableFunc(s.agenda, func(a, b simEvent) int { return a.at.Compare(b.at) })
		switch {
		case !wake.IsZero() && (len(s.agenda) == 0 || wake.Before(s.agenda[0].at)):
			if !wake.After(s.now) {
				s.t.Fatalf("seed %d: at %s it wants to be woken at %s", s.seed, s.now, wake)
			}
			s.now = wake
			if len(s.agenda) == 0 && len(s.input().Requests) == 0 {
				return // Only windows open and close.
			}
		case len(s.agenda) > 0:
			next := s.agenda[0]
			s.agenda, s.now = s.agenda[1:], next.at
			next.do()
		default:
			return
		}
		wake = s.step()
	}
}

// Whatever happens, nobody is granted who must not be, and everybody is granted in the end.
func TestEverybodyGoesInTheEnd(t *testing.T) {
	granted := 0
	for seed := range uint64(1500) {
		s := newSimulation(t, seed)
		for range s.random.IntN(12) {
			s.after(s.upTo(3*time.Hour), s.disturb)
		}
		s.run()
		for _, r := range s.input().Requests {
			t.Fatalf("seed %d: %s waits since %s and nothing happens any more at %s", seed, r.Pod, r.Created, s.now)
		}
		granted += s.granted
	}
	if granted < 10_000 {
		t.Errorf("only %d were granted", granted)
	}
	t.Logf("%d were granted", granted)
}
