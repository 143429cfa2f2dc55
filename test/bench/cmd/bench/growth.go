package main

import "fmt"

// mostGrowth is what the cost per unit may grow by from the small to the large cluster
// and still count as linear: two measurements of the same differ by as much.
const mostGrowth = 1.3

// grown is a line of a cost at two sizes. Each size is given in units, of which the cost
// per unit is compared.
func grown(what, unit string, small, large float64, smallUnits, largeUnits int, tell func(float64) string) line {
	perSmall, perLarge := small/float64(smallUnits), large/float64(largeUnits)
	of := func(units int) string {
		if units == 1 {
			return ""
		}
		return fmt.Sprintf(" for %d %s", units, unit)
	}
	l := line{
		what: what, ours: tell(large) + of(largeUnits), theirs: tell(small) + of(smallUnits),
		goal: fmt.Sprintf("<= %.1f per unit", mostGrowth),
	}
	if small <= 0 { // Too little to be measured.
		l.met = new(large <= 0)
		return l
	}
	l.ratio, l.met = ratioOf(perLarge, perSmall), new(perLarge <= mostGrowth*perSmall)
	return l
}
