package app

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// maxBlockingTold is how many blocking pods of a maintenance are named.
const maxBlockingTold = 10

// printStatus prints the status for people.
func (o commands) printStatus(s Status, now time.Time) error {
	if s.Node != nil {
		o.printNode(s.Node)
	}
	if len(s.Maintenances) == 0 && len(s.Evictions) == 0 {
		fmt.Fprintln(o.Out, "No maintenance, and no eviction in progress.")
		return nil
	}
	if len(s.Maintenances) > 0 {
		t := cli.NewTable(o.Out)
		t.Row("MAINTENANCE", "STAGE", "NODES", "DRAINED", "PODS", "MOVING", "BLOCKED", "AGE", "REASON")
		for _, m := range s.Maintenances {
			p := m.Progress
			t.Row(m.Name, m.Stage, number(p.Nodes), number(p.NodesDrained), number(p.PodsPendingEvacuation), number(p.PodsEvacuating), number(p.PodsBlocking), cli.Age(now, m.Created), text.Clean(m.Reason))
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
		fmt.Fprintf(o.Out, "\n%s finished recently.\n", text.Counted(s.Finished, "eviction"))
	}
	return nil
}

func (o commands) printNode(n *NodeState) {
	state := "is schedulable"
	if !n.Schedulable {
		state = "is cordoned"
		if n.CordonedBefore {
			state += ", and was before its maintenance: it stays cordoned afterwards"
		}
	}
	if n.Phase != "" {
		state += "; maintenance: " + n.Phase
	}
	if len(n.Markers) > 0 {
		state += "; drain markers: " + strings.Join(n.Markers, ", ")
	}
	fmt.Fprintf(o.Out, "Node %s %s\n\n", n.Name, state)
}

func (o commands) printTrouble(m MaintenanceState) {
	if m.Trouble != "" {
		fmt.Fprintf(o.Out, "  %s: %s\n", m.Name, m.Trouble)
	}
	if m.PodsInLaterWaves > 0 {
		line := fmt.Sprintf("  %s: %s in later waves", m.Name, text.Counted(m.PodsInLaterWaves, "pod"))
		if m.Wave != "" {
			line += "; the last one that has begun is " + m.Wave
		}
		fmt.Fprintln(o.Out, line)
	}
	for i, pod := range m.Blocking {
		if i == maxBlockingTold {
			fmt.Fprintf(o.Out, "  ... and %d more\n", int(m.Progress.PodsBlocking)-maxBlockingTold)
			return
		}
		line := fmt.Sprintf("  %s/%s makes no progress: %s", pod.Namespace, pod.Name, pod.Reason)
		if pod.Message != "" {
			line += ": " + text.Clean(pod.Message)
		}
		fmt.Fprintln(o.Out, line)
	}
}

func (o commands) printEvictions(evictions []EvictionState, now time.Time) error {
	wide := o.Output == cli.FormatWide
	t := cli.NewTable(o.Out)
	heading := []string{"NAMESPACE", "POD", "NODE", "STATE", "INTERCEPTOR", "ETA", "AGE"}
	if wide {
		heading = append(heading, "REQUESTERS", "MESSAGE")
	}
	t.Row(heading...)
	for _, e := range evictions {
		turn, eta := "", ""
		if e.Interceptor != "" {
			turn = fmt.Sprintf("%s %d/%d", e.Interceptor, e.Position, e.Total)
		}
		if e.Expected != nil {
			eta = left(now, *e.Expected)
		}
		row := []string{e.Namespace, e.Pod, e.Node, e.State, turn, eta, cli.Age(now, e.Created)}
		if wide {
			row = append(row, strings.Join(e.Requesters, ","), text.Hurried(text.Clean(e.Message), ptr.Deref(e.Deadline, time.Time{}), now))
		}
		t.Row(row...)
	}
	return t.Flush()
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// left is the time left until t; empty if unknown or over.
func left(now, t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return duration.HumanDuration(t.Sub(now))
	default:
		return "late"
	}
}
