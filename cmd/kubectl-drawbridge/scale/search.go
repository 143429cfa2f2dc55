package scale

import (
	"fmt"
	"slices"
	"strings"
)

// searchLimit is how many choices are tried where the simple one violates a constraint.
const searchLimit = 200_000

// search looks for the pods that go. Its counts are without those that were taken.
type search struct {
	counts counts
	// limit is how many choices may be tried.
	limit int
}

func (s *search) take(c *candidate) { s.counts.move(c.domains, -1) }

// group are candidates that are the same to all constraints, the first to go first.
type group struct {
	domains []int
	members []*candidate
	// going is how many go, in their order.
	going int
}

// choose returns n of the candidates, and whether a better choice cannot be excluded. It
// leaves the counts as they are.
func (s *search) choose(from []*candidate, n int) (chosen []*candidate, unproven bool) {
	var groups []*group
	for _, c := range from {
		i := slices.IndexFunc(groups, func(g *group) bool { return slices.Equal(g.domains, c.domains) })
		if i < 0 {
			groups, i = append(groups, &group{domains: c.domains}), len(groups)
		}
		groups[i].members = append(groups[i].members, c)
	}
	before := s.counts.clone()
	for range n {
		s.step(groups)
	}
	if s.counts.score().violates() {
		s.swap(groups)
		best := s.counts.score()
		s.counts.n = before
		complete := s.tryAll(groups, n, &best)
		unproven = !complete && best.violates()
	}
	s.counts.n = before
	for _, g := range groups {
		chosen = append(chosen, g.members[:g.going]...)
	}
	return chosen, unproven
}

// fuller compares how full the domains are, those of hard constraints first. With one
// constraint, taking from the fullest leaves the counts as even as they can become.
func (s *search) fuller(a, b []int) int {
	var difference [2]int
	for i := range s.counts.spreads {
		kind := 1
		if s.counts.spreads[i].hard {
			kind = 0
		}
		if a[i] >= 0 {
			difference[kind] += s.counts.n[i][a[i]]
		}
		if b[i] >= 0 {
			difference[kind] -= s.counts.n[i][b[i]]
		}
	}
	if difference[0] != 0 {
		return difference[0]
	}
	return difference[1]
}

// step takes one more pod.
func (s *search) step(groups []*group) {
	var best *group
	for _, g := range groups {
		if g.going == len(g.members) {
			continue
		}
		if best == nil {
			best = g
			continue
		}
		if f := s.fuller(g.domains, best.domains); f > 0 || f == 0 && g.members[g.going].order < best.members[best.going].order {
			best = g
		}
	}
	best.going++
	s.counts.move(best.domains, -1)
}

// swap exchanges one pod that goes for one that stays as long as that is better.
func (s *search) swap(groups []*group) {
	for better := true; better; {
		better = false
		for _, out := range groups {
			for _, in := range groups {
				if out == in || out.going == len(out.members) || in.going == 0 {
					continue
				}
				old := s.counts.score()
				s.exchange(out, in)
				if s.counts.score().less(old) {
					better = true
				} else {
					s.exchange(in, out)
				}
			}
		}
	}
}

func (s *search) exchange(out, in *group) {
	out.going++
	s.counts.move(out.domains, -1)
	in.going--
	s.counts.move(in.domains, 1)
}

// tryAll tries all choices of n pods, keeps what is better than the best so far, and reports
// whether it could: there may be more than the limit.
func (s *search) tryAll(groups []*group, n int, best *score) bool {
	at := goings(groups)
	room := make([]int, len(groups)+1) // How many pods the groups from here on have.
	for i := len(groups) - 1; i >= 0; i-- {
		room[i] = room[i+1] + len(groups[i].members)
	}
	tries := 0
	var try func(i, left int) bool
	try = func(i, left int) bool {
		if i == len(groups) {
			if tries == s.limit {
				return false
			}
			tries++
			if now := s.counts.score(); now.less(*best) {
				*best, at = now, goings(groups)
			}
			return true
		}
		g := groups[i]
		for g.going = max(0, left-room[i+1]); g.going <= min(left, len(g.members)); g.going++ {
			s.counts.move(g.domains, -g.going)
			complete := try(i+1, left-g.going)
			s.counts.move(g.domains, g.going)
			if !complete {
				return false
			}
		}
		return true
	}
	complete := try(0, n)
	for i, g := range groups {
		g.going = at[i]
	}
	return complete
}

func goings(groups []*group) []int {
	var all []int
	for _, g := range groups {
		all = append(all, g.going)
	}
	return all
}

// fullest is the index of the candidate that is in the fullest domains, among equals the
// first to go.
func (s *search) fullest(from []*candidate) int {
	best := 0
	for i, c := range from {
		f := s.fuller(c.domains, from[best].domains)
		if f > 0 || f == 0 && c.order < from[best].order {
			best = i
		}
	}
	return best
}

// why says why a candidate goes next: where it is, and what else makes it cheap to lose.
func (s *search) why(c *candidate) string {
	var why []string
	for i, d := range c.domains {
		if n := s.counts.n[i]; d >= 0 && n[d] == slices.Max(n) {
			why = append(why, fmt.Sprintf("%s has %d, the most", s.counts.spreads[i].domains[d], n[d]))
			break
		}
	}
	if c.cordoned {
		why = append(why, "its node is unschedulable")
	}
	if c.requested {
		why = append(why, "its eviction is requested")
	}
	if c.cost < 0 {
		why = append(why, fmt.Sprintf("its deletion cost is %d", c.cost))
	}
	if c.beside > 1 {
		why = append(why, fmt.Sprintf("%d on its node", c.beside))
	}
	if len(why) == 0 {
		return "keeps the others balanced"
	}
	return strings.Join(why, "; ")
}
