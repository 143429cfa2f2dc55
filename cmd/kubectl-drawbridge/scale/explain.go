package scale

import (
	"fmt"
	"io"
	"strconv"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// explain prints a plan: each constraint, and the pods that go.
func explain(out io.Writer, t *target, plan *Plan, wanted int32) error {
	fmt.Fprintf(out, "%s: from %d to %s, so %s\n", t, t.replicas, text.Counted(wanted, "pod"), goes(len(plan.Going)))
	for i := range plan.Spreads {
		if err := explainSpread(out, &plan.Spreads[i]); err != nil {
			return err
		}
	}
	if plan.Unproven {
		fmt.Fprintln(out, "\nThere are too many choices to try them all: a better one may exist.")
	}
	fmt.Fprintln(out)
	table := cli.NewTable(out)
	table.Row("POD", "NODE", "WHY")
	for _, l := range plan.Going {
		table.Row(l.Pod.Name, l.Pod.Spec.NodeName, l.Why)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the pods: %w", err)
	}
	fmt.Fprintln(out)
	return nil
}

func goes(n int) string {
	if n == 1 {
		return "1 goes"
	}
	return fmt.Sprintf("%d go", n)
}

func explainSpread(out io.Writer, s *Spread) error {
	when := "ScheduleAnyway"
	if s.Hard {
		when = "DoNotSchedule"
	}
	fmt.Fprintf(out, "\n%s (maxSkew %d, %s): %s\n", s.TopologyKey, s.MaxSkew, when, verdict(s))
	table := cli.NewTable(out)
	table.Row("DOMAIN", "NOW", "AFTER")
	empty := 0
	for _, d := range s.Domains {
		if d.Now == 0 {
			empty++
			continue
		}
		table.Row(text.Clean(d.Name), strconv.Itoa(d.Now), strconv.Itoa(d.After))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the domains: %w", err)
	}
	if empty > 0 {
		fmt.Fprintf(out, "and %s without such pods\n", text.Counted(empty, "domain"))
	}
	return nil
}

// verdict is what becomes of a constraint.
func verdict(s *Spread) string {
	switch {
	case s.SkewAfter <= s.MaxSkew && s.SkewNow > s.MaxSkew:
		return fmt.Sprintf("skew %d now, and it will hold with %d", s.SkewNow, s.SkewAfter)
	case s.SkewAfter <= s.MaxSkew:
		return fmt.Sprintf("it holds, with skew %d now and %d after", s.SkewNow, s.SkewAfter)
	case s.Broken():
		return fmt.Sprintf("it holds now, but no choice of pods keeps it: skew %d after", s.SkewAfter)
	default:
		return fmt.Sprintf("it does not hold now, with skew %d, nor after, with %d", s.SkewNow, s.SkewAfter)
	}
}
