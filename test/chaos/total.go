package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// String is the verdict in a line.
func (v Verdict) String() string {
	return fmt.Sprintf("%d violations, %d requests, %d evicted (%d intercepted), %d turns finished, %d timed out, %d passed an outage, %d lies passed, %d strayed, %d starting, %d gaps",
		len(v.Violations), v.Requests, v.Evicted, v.Intercepted, v.Finished, v.TimedOut, v.Passed, v.LiesPassed, v.Strayed, v.Starting, v.Gaps)
}

// Total of several runs.
type Total struct {
	// Runs is their number, Broken that of those with violations, whose seeds are Seeds.
	Runs, Broken int
	Seeds        []uint64
	Faults       map[FaultKind]int
	Modes        map[Mode]int
	// Drains has, by kind of drainer, the runs that have one.
	Drains map[DrainKind]int
	Sum    Verdict
}

// Add a run.
func (t *Total) Add(p Plan, v Verdict) {
	if t.Faults == nil {
		t.Faults, t.Modes, t.Drains = map[FaultKind]int{}, map[Mode]int{}, map[DrainKind]int{}
	}
	t.Runs++
	t.Modes[p.Mode]++
	for _, f := range p.Faults {
		t.Faults[f.Kind]++
	}
	for _, kind := range drainKinds {
		if slices.ContainsFunc(p.Drains, func(d Drain) bool { return d.Kind == kind }) {
			t.Drains[kind]++
		}
	}
	if len(v.Violations) > 0 {
		t.Broken++
		t.Seeds = append(t.Seeds, p.Seed)
	}
	t.Sum.Violations = append(t.Sum.Violations, v.Violations...)
	t.Sum.Evicted += v.Evicted
	t.Sum.Intercepted += v.Intercepted
	t.Sum.TimedOut += v.TimedOut
	t.Sum.Finished += v.Finished
	t.Sum.Passed += v.Passed
	t.Sum.LiesPassed += v.LiesPassed
	t.Sum.Requests += v.Requests
	t.Sum.Gaps += v.Gaps
	t.Sum.Strayed += v.Strayed
	t.Sum.Starting += v.Starting
}

// String are the tables of the docs.
func (t *Total) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d with violations %v: %s\n", t.Runs, t.Broken, t.Seeds, t.Sum)
	b.WriteString("\n| mode | runs |\n|---|---|\n")
	for _, mode := range []Mode{ModeFail, ModeNoGuard, ModeAlways, ModeIgnore} {
		fmt.Fprintf(&b, "| %s | %d |\n", mode, t.Modes[mode])
	}
	b.WriteString("\n| drainer | runs |\n|---|---|\n")
	for _, kind := range drainKinds {
		fmt.Fprintf(&b, "| %s | %d |\n", kind, t.Drains[kind])
	}
	b.WriteString("\n| fault | times |\n|---|---|\n")
	last := FaultKind("")
	for _, kind := range faultKinds {
		if kind != last {
			fmt.Fprintf(&b, "| %s | %d |\n", kind, t.Faults[kind])
		}
		last = kind
	}
	return b.String()
}
