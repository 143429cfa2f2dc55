package app

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// maxBlockingTold is how many blocking pods of a maintenance are named.
const maxBlockingTold = 10

// printStatus prints what is going on for people.
func (o *Options) printStatus(s Status, now time.Time) error {
	if s.Node != nil {
		o.printNode(s.Node)
	}
	if len(s.Maintenances) == 0 && len(s.Evictions) == 0 {
		fmt.Fprintln(o.Out, "No maintenance, and no eviction that is not finished.")
		return nil
	}
	if len(s.Maintenances) > 0 {
		t := newTable(o.Out)
		t.row("MAINTENANCE", "STAGE", "NODES", "DRAINED", "PODS", "MOVING", "BLOCKED", "AGE", "REASON")
		for _, m := range s.Maintenances {
			p := m.Progress
			t.row(m.Name, m.Stage, number(p.Nodes), number(p.NodesDrained), number(p.PodsPendingEvacuation), number(p.PodsEvacuating), number(p.PodsBlocking), age(now, m.Created), text.Clean(m.Reason))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, m := range s.Maintenances {
			o.printTrouble(m)
		}
	}
	if len(s.Evictions) > 0 {
		if len(s.Maintenances) > 0 {
			fmt.Fprintln(o.Out)
		}
		if err := o.printEvictions(s.Evictions, now); err != nil {
			return err
		}
	}
	if s.Finished > 0 {
		fmt.Fprintf(o.Out, "\n%s finished not long ago.\n", counted(s.Finished, "eviction"))
	}
	return nil
}

func (o *Options) printNode(n *NodeState) {
	state := "is schedulable"
	if !n.Schedulable {
		state = "is cordoned"
		if n.CordonedBefore {
			state += ", and was before its maintenance: it stays so afterwards"
		}
	}
	if n.Phase != "" {
		state += "; maintenance: " + n.Phase
	}
	if len(n.Markers) > 0 {
		state += "; signs of a drain: " + strings.Join(n.Markers, ", ")
	}
	fmt.Fprintf(o.Out, "Node %s %s\n\n", n.Name, state)
}

func (o *Options) printTrouble(m MaintenanceState) {
	if m.Trouble != "" {
		fmt.Fprintf(o.Out, "  %s: %s\n", m.Name, m.Trouble)
	}
	for i, pod := range m.Blocking {
		if i == maxBlockingTold {
			fmt.Fprintf(o.Out, "  ... and %d more\n", int(m.Progress.PodsBlocking)-maxBlockingTold)
			return
		}
		line := fmt.Sprintf("  %s/%s does not get on: %s", pod.Namespace, pod.Name, pod.Reason)
		if pod.Message != "" {
			line += ": " + text.Clean(pod.Message)
		}
		fmt.Fprintln(o.Out, line)
	}
}

func (o *Options) printEvictions(evictions []EvictionState, now time.Time) error {
	wide := o.output == formatWide
	t := newTable(o.Out)
	heading := []string{"NAMESPACE", "POD", "NODE", "STATE", "INTERCEPTOR", "ETA", "AGE"}
	if wide {
		heading = append(heading, "REQUESTERS", "MESSAGE")
	}
	t.row(heading...)
	for _, e := range evictions {
		turn, eta := "", ""
		if e.Interceptor != "" {
			turn = fmt.Sprintf("%s %d/%d", e.Interceptor, e.Position, e.Total)
		}
		if e.Expected != nil {
			eta = left(now, *e.Expected)
		}
		row := []string{e.Namespace, e.Pod, e.Node, e.State, turn, eta, age(now, e.Created)}
		if wide {
			row = append(row, strings.Join(e.Requesters, ","), text.Clean(e.Message))
		}
		t.row(row...)
	}
	return t.Flush()
}

func number(n int32) string { return strconv.Itoa(int(n)) }
