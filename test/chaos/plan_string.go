package chaos

import (
	"fmt"
	"strings"
)

// Title is the mode for people.
func (m Mode) Title() string {
	switch m {
	case ModeFail:
		return "failurePolicy Fail with the guard"
	case ModeNoGuard:
		return "failurePolicy Fail without the guard"
	case ModeAlways:
		return "failurePolicy Ignore, `guard: Always`"
	default:
		return "failurePolicy Ignore, `guard: WhileEvacuating`"
	}
}

// String is the plan for people.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan of seed %d: mode %s, conflicting writers %t, lifecycle.k8s.io %t\n", p.Seed, p.Mode, p.Writers, p.Serves)
	for _, w := range p.Workloads {
		kind := "Deployment"
		if w.Stateful {
			kind = "StatefulSet"
		}
		fmt.Fprintf(&b, "  workload %s: %s, %s of %d", w.Name, w.Kind, kind, w.Replicas)
		if w.MaxUnavailable >= 0 {
			fmt.Fprintf(&b, ", maxUnavailable %d", w.MaxUnavailable)
		}
		if w.Registered && w.Kind == Intercepted {
			b.WriteString(", registered")
		}
		if w.Zone != "" {
			fmt.Fprintf(&b, ", zone %s", w.Zone)
			if w.Registered {
				b.WriteString(", registered")
			}
		}
		if w.Tolerates {
			b.WriteString(", tolerates everything")
		}
		if w.Pinned {
			fmt.Fprintf(&b, ", pinned to node %d", w.Node)
		}
		for _, i := range w.Interceptors {
			fmt.Fprintf(&b, ", %s (delay %s, work %s)", i.Habit, i.Delay, i.Work)
			if i.Forbids {
				b.WriteString(" and forbids to cancel")
			}
		}
		for i, r := range w.Responders {
			fmt.Fprintf(&b, ", responder r%d of %s with priority %d %s (delay %s, work %s)", i, r.Domain, r.Priority, r.Habit, r.Delay, r.Work)
		}
		b.WriteByte('\n')
	}
	if p.Rollout != nil {
		fmt.Fprintf(&b, "  an EvictionBudget for the zones: settle %s\n", p.Rollout.Settle)
		for _, l := range p.Rollout.Losses {
			fmt.Fprintf(&b, "  step %d: a pod of zone %s is deleted\n", l.At, l.Zone)
		}
	}
	if s := p.Singletons; s != nil {
		fmt.Fprintf(&b, "  an exhausted budget for %d singletons: by scale %t, windows %t, due in step %d\n", p.singletons(), s.ByScale, s.Windows, s.At)
	}
	for _, d := range p.Drains {
		fmt.Fprintf(&b, "  drain of node %d: %s, steps %d to %d", d.Node, d.Kind, d.From, d.To)
		if d.Deadline > 0 {
			fmt.Fprintf(&b, ", leaves the interceptors of each pod %d steps", d.Deadline)
		}
		if d.Hard {
			b.WriteString(", does not wait")
		}
		if d.Restless {
			b.WriteString(", changes its mind")
		}
		if d.Deletes {
			b.WriteString(", deletes in the end")
		}
		if d.Kind == Maintained {
			fmt.Fprintf(&b, ", %s", d.Order)
		}
		b.WriteByte('\n')
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  step %d, for %d: %s", f.At, f.Lasts, f.Kind)
		switch f.Kind {
		case KillManager, PauseManager, StopManager:
			fmt.Fprintf(&b, " %d", f.Replica)
		case SkewManager:
			fmt.Fprintf(&b, " %d by %s", f.Replica, f.Amount)
		case SlowWebhook:
			fmt.Fprintf(&b, " by %s", f.Amount)
		case RefuseWrites:
			fmt.Fprintf(&b, ": %s", f.Refusal)
		}
		b.WriteByte('\n')
	}
	for _, t := range p.Troubles {
		fmt.Fprintf(&b, "  trouble: %s\n", t)
	}
	if p.Finale {
		b.WriteString("  in the end, a node is drained once more\n")
	}
	return b.String()
}
