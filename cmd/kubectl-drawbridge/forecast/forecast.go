package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// Of returns the forecast. It is pure: the same input has the same one.
func Of(in Input) Forecast {
	w := newWorld(&in)
	drained := map[string]bool{}
	for _, name := range w.drain {
		drained[name] = true
	}
	f := Forecast{Nodes: w.drain, Fit: w.fitAll(newPlacer(&in, drained))}
	f.History, f.Unknowns = w.histories()
	stuck := map[int]bool{}
	for i := range w.pods {
		for _, b := range w.blockers {
			if b.Namespace == w.pods[i].pod.Namespace && b.Pod == w.pods[i].pod.Name {
				stuck[i] = true
			}
		}
		if len(w.blockers) == 0 {
			break
		}
	}
	runs := w.runAll(&f, stuck)
	w.pick(&f, runs, stuck)
	f.Blockers = w.blockers
	slices.SortStableFunc(f.Blockers, func(a, b Blocker) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod))
	})
	f.LeftOut = slices.Concat(in.LeftOut, w.leftOut, w.always())
	f.judge()
	return f
}

// always is what no forecast considers.
func (w *world) always() []string {
	out := []string{
		"affinity between pods, topology spread, volumes, scheduler profiles, preemption and a cluster autoscaler",
		"how many pods an interceptor or the hooks work on at a time, unless that is in their history; other drains that run or begin meanwhile",
		"the backoff after evictions that fail for other reasons than budgets",
	}
	if w.in.Settings.Wait == nil {
		out = append(out, "maintenance.evacuationWait, which is not known: pods without interceptors may be left to their owners for so long first")
	}
	return out
}

// runAll simulates as often as the bound of the work allows. The pods that cannot go never
// do, and all others do what they would do beside them.
func (w *world) runAll(f *Forecast, stuck map[int]bool) []*run {
	most := cmp.Or(max(w.in.Runs, 0), DefaultRuns)
	var runs []*run
	work := 0
	for n := range most {
		r := w.newRun(w.in.Seed, uint64(n))
		r.held = stuck
		r.simulate()
		runs = append(runs, r)
		if work += r.work + len(w.pods); n+1 >= minRuns && work+work/(n+1) > maxWork {
			break
		}
		r.drop()
	}
	f.Runs = len(runs)
	return runs
}

// pick reads the runs.
func (w *world) pick(f *Forecast, runs []*run, stuck map[int]bool) {
	totals := make([]time.Duration, len(runs))
	named := map[int]bool{}
	for i := range w.pods {
		v := &w.pods[i]
		p := Pod{Namespace: v.pod.Namespace, Name: v.pod.Name, Node: v.pod.Spec.NodeName, Wave: w.waveOf(v), AtLeast: v.unknown, Responders: v.responders}
		for _, t := range v.turns {
			p.Turns = append(p.Turns, text.Clean(t.name))
		}
		p.WaitsFor, p.Circle = cleaned(v.waitsFor), cleaned(v.circle)
		starts, ends, cut, late := make(samples, 0, len(runs)), make(samples, 0, len(runs)), 0, map[string]int{}
		for n, r := range runs {
			fate := &r.pods[i]
			if fate.cut {
				cut++
			}
			for _, name := range r.late[i] {
				late[name]++
			}
			starts = append(starts, fate.start)
			if fate.ended {
				ends = append(ends, fate.end)
				totals[n] = max(totals[n], fate.end)
				continue
			}
			p.Blocked = true
			if !stuck[i] && !named[i] {
				named[i] = true
				w.blockers = append(w.blockers, w.whyStuck(v, r, fate))
			}
		}
		slices.Sort(starts)
		slices.Sort(ends)
		p.StartSeconds = seconds(starts.quantile(0.5))
		if !p.Blocked {
			p.EndSeconds, p.EndP95Seconds = seconds(ends.quantile(0.5)), seconds(ends.quantile(0.95))
		}
		if 2*cut >= len(runs) && cut > 0 {
			p.CutOffAt = new(w.in.Now.Add(*v.cutOff))
		}
		for _, name := range slices.Sorted(maps.Keys(late)) {
			if 2*late[name] >= len(runs) {
				p.TimedOut = append(p.TimedOut, text.Clean(name))
			}
		}
		f.Pods = append(f.Pods, p)
	}
	slices.SortStableFunc(f.Pods, func(a, b Pod) int {
		if a.Blocked != b.Blocked {
			if b.Blocked {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.EndSeconds, b.EndSeconds), cmp.Compare(a.StartSeconds, b.StartSeconds), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	f.Pods = append(f.Pods, w.stays...)
	slices.Sort(totals)
	f.P50Seconds, f.P95Seconds = seconds(samples(totals).quantile(0.5)), seconds(samples(totals).quantile(0.95))
}

// whyStuck says why a pod did not go in a run.
func (w *world) whyStuck(v *victim, r *run, f *fate) Blocker {
	unfit := ""
	if n := w.unplacedLike(v); n > 0 {
		unfit = fmt.Sprintf("; %s of it fit nowhere", text.Counted(n, "replacement"))
	}
	switch {
	case r.short != "":
		return w.blocker(v, cmp.Or(text.Clean(f.waits), "the simulation"), r.short, "see kubectl drawbridge why")
	case f.waits == "PodDisruptionBudget":
		p := &w.pdbs[v.pdbs[0]]
		return w.blocker(v, "PodDisruptionBudget "+p.name, p.text+unfit, p.remedy)
	case strings.HasPrefix(f.waits, "EvictionBudget"):
		return w.blocker(v, "EvictionBudget", text.Clean(f.waits)+unfit, "change the budget, make its pods ready, or skip it: kubectl drawbridge skip")
	case v.wave > r.begun[v.node].wave && v.node < r.next && !v.asked:
		return w.blocker(v, "an earlier wave", "wave "+w.waveOf(v)+" waits for the pods of the waves before it on its node, and some never go", "see what blocks those, or give their wave a timeout")
	case f.start == 0 && !v.asked:
		return w.blocker(v, "the nodes before", "maxParallelNodes lets its node wait for others, which are never drained", "see what blocks those")
	default:
		return w.blocker(v, cmp.Or(text.Clean(f.waits), "unknown"), "it waits for other pods that never go"+unfit, "see what blocks those")
	}
}

// unplacedLike is how many replacements of the pods of its owner fit nowhere.
func (w *world) unplacedLike(v *victim) (n int) {
	if v.owner >= 0 {
		n = w.owners[v.owner].unplaced
	}
	return n
}

// histories of the interceptors that take part, and what has none although it matters.
func (w *world) histories() (found []History, unknowns []string) {
	used := map[string]int{}
	startups, stops := 0, 0
	blind := map[int]bool{}
	for i := range w.pods {
		v := &w.pods[i]
		for _, t := range v.turns {
			used[t.name]++
			switch {
			case isComputed(t.name), t.name == surgeInterceptor && v.owner >= 0:
			case len(w.history.turns[t.name]) == 0:
				v.unknown = true
			}
		}
		if len(w.history.termination(v.pod.Namespace)) == 0 {
			stops++
		}
		surges := slices.ContainsFunc(v.turns, func(t turn) bool { return t.name == surgeInterceptor })
		if v.owner < 0 || len(v.pdbs) == 0 && len(v.budgets) == 0 && !surges {
			continue
		}
		startups++
		if len(w.owners[v.owner].startups) == 0 {
			blind[v.owner], v.unknown = true, true
		}
	}
	w.spreadUnknown()
	for name, n := range used {
		if isComputed(name) {
			continue
		}
		s := w.history.turns[name]
		found = append(found, History{
			Name: text.Clean(name), Kind: "interceptor", Samples: len(s), Pods: n, NotFinished: w.history.notFinished[name],
			P50Seconds: seconds(s.quantile(0.5)), P95Seconds: seconds(s.quantile(0.95)),
		})
		if len(s) == 0 && name != surgeInterceptor {
			unknowns = append(unknowns, "interceptor "+text.Clean(name)+" has no history")
		}
	}
	slices.SortFunc(found, func(a, b History) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(unknowns)
	if len(blind) > 0 {
		unknowns = append(unknowns, "how long replacements take to start: no pod of an owner has started without a restart")
	}
	add := func(kind, name string, s samples, n int) {
		if n > 0 {
			found = append(found, History{Name: name, Kind: kind, Samples: len(s), Pods: n, P50Seconds: seconds(s.quantile(0.5)), P95Seconds: seconds(s.quantile(0.95))})
		}
	}
	add("startup", "replacements become ready", w.history.anyStartup, startups)
	add("termination", "evicted pods end", w.history.anyTermination, len(w.pods))
	if stops > 0 {
		w.leaveOut(fmt.Sprintf("how long evicted pods take to end: nothing was measured for %s, so it is their grace period", text.Counted(stops, "pod")))
	}
	return found, unknowns
}

// isComputed reports whether what an interceptor does is computed, by the manager's own rules.
func isComputed(interceptor string) bool {
	return interceptor == v1alpha1.BudgetInterceptor || interceptor == v1alpha1.OrderInterceptor
}

func cleaned(names []string) []string {
	var clean []string
	for _, name := range names {
		clean = append(clean, text.Clean(name))
	}
	return clean
}

func seconds(d time.Duration) float64 { return d.Round(100 * time.Millisecond).Seconds() }

// Human is a duration for people.
func Human(s float64) string {
	return duration.HumanDuration(time.Duration(s * float64(time.Second)).Round(time.Second))
}

// judge says it in one word, and in a sentence.
func (f *Forecast) judge() {
	about := fmt.Sprintf("about %s (p50; p95 %s)", Human(f.P50Seconds), Human(f.P95Seconds))
	nodes := text.Counted(len(f.Nodes), "node")
	switch {
	case len(f.Blockers) > 0:
		f.Verdict = Blocked
		first := f.Blockers[0]
		f.Headline = fmt.Sprintf("The drain of %s is blocked forever: %s by %s, because %s", nodes, text.Counted(len(f.Blockers), "pod")+", the first", first.Who, first.Why)
	case len(f.Unknowns) > 0:
		f.Verdict = Unknown
		f.Headline = fmt.Sprintf("The drain of %s takes an unknown time, at least %s: %s", nodes, about, f.Unknowns[0])
	default:
		f.Verdict = Done
		f.Headline = fmt.Sprintf("The drain of %s is done in %s", nodes, about)
	}
	if f.Fit.UnplacedPods > 0 {
		var missing []string
		for name, amount := range f.Fit.Missing {
			missing = append(missing, fmt.Sprintf("%s %s", name, amount))
		}
		slices.Sort(missing)
		f.Headline += fmt.Sprintf(". %s would fit nowhere", text.Counted(f.Fit.UnplacedPods, "pod"))
		if len(missing) > 0 {
			f.Headline += ", and needs " + strings.Join(missing, " and ") + " that is not there"
		}
	}
	f.Headline += "."
}
