package chaos

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// String is the verdict in a line.
func (v Verdict) String() string {
	text := fmt.Sprintf("%d violations, %d requests, %d evicted (%d intercepted), %d turns finished, %d timed out, %d cut off, %d went on, %d passed an outage, %d strayed, %d starting, %d of zones (%d unasked), %d deleted, %d waited, %d gaps, %d of %d attempts taken, %d writes a minute, %d writes refused (%d a minute)",
		len(v.Violations), v.Requests, v.Evicted, v.Intercepted, v.Finished, v.TimedOut, v.CutOff, v.WentOn, v.Passed, v.Strayed, v.Starting, v.Zoned, v.Unasked, v.Deleted, v.Waited, v.Gaps, v.Taken, v.Attempts, v.Busiest, v.Refused, v.MostRefused)
	if v.Wishes > 0 {
		text += fmt.Sprintf(", %d native requests, %d Evictions, %d native writes, %d evicted with native responders (%d unasked), native turns: %d finished, %d timed out, %d canceled, %d of ours",
			v.Wishes, v.Evictions, v.NativeWrites, v.Responded, v.NativeUnasked, v.NativeFinished, v.NativeTimedOut, v.NativeCanceled, v.Nested)
	}
	return text
}

// sum adds another verdict's numbers.
func sum(v, other Verdict) Verdict {
	v.Violations = append(v.Violations, other.Violations...)
	v.Evicted += other.Evicted
	v.Intercepted += other.Intercepted
	v.TimedOut += other.TimedOut
	v.CutOff += other.CutOff
	v.WentOn += other.WentOn
	v.Finished += other.Finished
	v.Passed += other.Passed
	v.Requests += other.Requests
	v.Gaps += other.Gaps
	v.Strayed += other.Strayed
	v.Starting += other.Starting
	v.Zoned += other.Zoned
	v.Unasked += other.Unasked
	v.Deleted += other.Deleted
	v.Waited += other.Waited
	v.Attempts += other.Attempts
	v.Taken += other.Taken
	v.Finales += other.Finales
	v.Refused += other.Refused
	v.MostRefused = max(v.MostRefused, other.MostRefused)
	v.Busiest = max(v.Busiest, other.Busiest)
	v.Wishes += other.Wishes
	v.Evictions += other.Evictions
	v.NativeWrites += other.NativeWrites
	v.Responded += other.Responded
	v.NativeUnasked += other.NativeUnasked
	v.NativeFinished += other.NativeFinished
	v.NativeTimedOut += other.NativeTimedOut
	v.NativeCanceled += other.NativeCanceled
	v.Nested += other.Nested
	return v
}

// Total of several runs.
type Total struct {
	// Runs is their number, Broken that of those with violations, whose seeds are Seeds.
	Runs, Broken int
	Seeds        []uint64
	// Failed are the seeds of runs that could not be set up.
	Failed []uint64
	Faults map[FaultKind]int
	Modes  map[Mode]int
	// Drains has, by kind of drainer, the runs that have one.
	Drains map[DrainKind]int
	// Troubles has the runs that have one.
	Troubles map[TroubleKind]int
	// Rollouts are the runs with a rollout group.
	Rollouts int
	// Singletons are the runs with an exhausted budget, and Orders those with a maintenance that has
	// waves.
	Singletons, Orders int
	// Natives are the runs whose control plane serves lifecycle.k8s.io.
	Natives int
	Sum     Verdict
	// Median of the runs' lengths.
	Median time.Duration
}

// TotalOf sums up. Of several records of a seed the last one counts that proved
// something.
func TotalOf(records []Record) Total {
	t := Total{Faults: map[FaultKind]int{}, Modes: map[Mode]int{}, Drains: map[DrainKind]int{}, Troubles: map[TroubleKind]int{}}
	last := map[uint64]Record{}
	for _, r := range records {
		if before, ok := last[r.Seed]; !ok || r.Failure == "" || before.Failure != "" {
			last[r.Seed] = r
		}
	}
	var lengths []float64
	for _, seed := range sortedSeeds(last) {
		r := last[seed]
		if r.Failure != "" {
			t.Failed = append(t.Failed, seed)
			continue
		}
		t.Runs++
		t.Modes[r.Mode]++
		for kind, n := range r.Faults {
			t.Faults[kind] += n
		}
		for _, kind := range r.Drainers {
			t.Drains[kind]++
		}
		for _, kind := range r.Troubles {
			t.Troubles[kind]++
		}
		if r.Rollout {
			t.Rollouts++
		}
		if r.Singletons {
			t.Singletons++
		}
		if r.Orders {
			t.Orders++
		}
		if r.Native {
			t.Natives++
		}
		if len(r.Verdict.Violations) > 0 {
			t.Broken++
			t.Seeds = append(t.Seeds, seed)
		}
		t.Sum = sum(t.Sum, r.Verdict)
		lengths = append(lengths, r.Seconds)
	}
	if slices.Sort(lengths); len(lengths) > 0 {
		t.Median = time.Duration(lengths[len(lengths)/2] * float64(time.Second)).Round(time.Second)
	}
	return t
}

func sortedSeeds(records map[uint64]Record) []uint64 {
	seeds := make([]uint64, 0, len(records))
	for seed := range records {
		seeds = append(seeds, seed)
	}
	slices.Sort(seeds)
	return seeds
}

// row is a line of a table.
type row struct {
	what  string
	count any
}

func table(b *strings.Builder, head row, rows []row) {
	fmt.Fprintf(b, "\n| %s | %v |\n|---|---|\n", head.what, head.count)
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %v |\n", r.what, r.count)
	}
}

// String are the tables of docs/chaos.md.
func (t *Total) String() string {
	var b strings.Builder
	s := &t.Sum
	what := []row{
		{"runs", t.Runs},
		{"runs with a violation", t.Broken},
		{"requests", s.Requests},
		{"pods evicted; with interceptors", fmt.Sprintf("%d; %d", s.Evicted, s.Intercepted)},
		{"turns of interceptors that ended well; by silence; by a deadline", fmt.Sprintf("%d; %d; %d", s.Finished, s.TimedOut, s.CutOff)},
		{"requests past the point of no return that went on although nobody wanted them", s.WentOn},
		{"passed an outage; strayed; starting", fmt.Sprintf("%d; %d; %d", s.Passed, s.Strayed, s.Starting)},
		{"runs with a rollout group", t.Rollouts},
		{"pods evicted of its zones; without its EvictionBudget", fmt.Sprintf("%d; %d", s.Zoned, s.Unasked)},
		{"runs with singletons; these deleted in spite of their budget", fmt.Sprintf("%d; %d", t.Singletons, s.Deleted)},
		{"runs with waves; pods that waited for earlier ones and were asked for", fmt.Sprintf("%d; %d", t.Orders, s.Waited)},
		{"runs with native requesters and responders", t.Natives},
		{"native requests; Evictions; writes of the managers to them", fmt.Sprintf("%d; %d; %d", s.Wishes, s.Evictions, s.NativeWrites)},
		{"pods evicted that had native responders; without time to ask these", fmt.Sprintf("%d; %d", s.Responded, s.NativeUnasked)},
		{"turns of native responders that ended well; by silence; because nobody wanted the eviction any more", fmt.Sprintf("%d; %d; %d", s.NativeFinished, s.NativeTimedOut, s.NativeCanceled)},
		{"turns of all our interceptors together in an Eviction", s.Nested},
		{"attempts of those who make trouble; accepted", fmt.Sprintf("%d; %d", s.Attempts, s.Taken)},
		{"drains in the end, with everything well", s.Finales},
		{"most writes of one object by the managers within a minute", s.Busiest},
		{"writes of the managers that were refused; most of one object within a minute", fmt.Sprintf("%d; %d", s.Refused, s.MostRefused)},
		{"median length of a run", t.Median},
	}
	if len(t.Seeds) > 0 {
		what = slices.Insert(what, 2, row{"their seeds", list(t.Seeds)})
	}
	if len(t.Failed) > 0 {
		what = append(what, row{"seeds that could not be set up, not counted above", list(t.Failed)})
	}
	table(&b, row{"What", "Number"}, what)
	var modes, drains, faults, troubles []row
	for _, mode := range []Mode{ModeFail, ModeNoGuard, ModeAlways, ModeIgnore} {
		modes = append(modes, row{mode.Title(), t.Modes[mode]})
	}
	for _, kind := range drainKinds {
		drains = append(drains, row{string(kind), t.Drains[kind]})
	}
	for _, kind := range slices.Compact(append(slices.Clone(faultKinds), KillManagers, RefuseWrites)) {
		faults = append(faults, row{string(kind), t.Faults[kind]})
	}
	for _, kind := range AllTroubles {
		troubles = append(troubles, row{string(kind), t.Troubles[kind]})
	}
	table(&b, row{"Installation", "Runs"}, modes)
	table(&b, row{"Drainer", "Runs with it"}, drains)
	table(&b, row{"Fault", "Times"}, faults)
	table(&b, row{"Trouble", "Runs with it"}, troubles)
	return b.String()
}

func list(seeds []uint64) string { return strings.Trim(fmt.Sprint(seeds), "[]") }

// Marks of the part of a page that WritePage writes.
const (
	pageBegin = "<!-- chaos result: begin -->\n"
	pageEnd   = "<!-- chaos result: end -->\n"
)

// WritePage puts the tables into a page, between two marks.
func (t *Total) WritePage(path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	before, rest, begins := bytes.Cut(page, []byte(pageBegin))
	_, after, ends := bytes.Cut(rest, []byte(pageEnd))
	if !begins || !ends {
		return fmt.Errorf("page %s has no place for the result: want the lines %q and %q", path, pageBegin, pageEnd)
	}
	page = slices.Concat(before, []byte(pageBegin), []byte(t.String()), []byte("\n"+pageEnd), after)
	if err := os.WriteFile(path, page, 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
