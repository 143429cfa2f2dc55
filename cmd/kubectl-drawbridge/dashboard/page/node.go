package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// nodeModel is what the page says of the node itself.
type nodeModel struct {
	drainRow
	Name         string
	Schedulable  bool
	Markers      []string
	Maintenances []string
	Blockers     []string
	// Wave says which one waits, or has begun; empty without any.
	Wave     string
	Pods     int
	Act      bool
	Draining bool
}

// podRow is a pod of the node.
type podRow struct {
	ID, Namespace, Pod string
	State, Tone        string
	Message            string
	// Waves: pods of the node go by waves. Wave is the pod's; empty if it stays.
	Waves bool
	Wave  string
}

func renderNode(_ context.Context, r Request) (Content, error) {
	s := r.Snapshot
	name := r.Values["node"]
	node := s.NodeByName[name]
	title := Content{Title: "Node " + text.Clean(name), Section: SectionDrains}
	if node == nil && len(s.ProcessesByNode[name]) == 0 && len(s.PodsByNode[name]) == 0 {
		return title, fmt.Errorf("there is no node %q: %w", name, ErrNotFound)
	}
	span, unknown := chosen(r.Query, "range", ranges)
	every := lanesOf(s, name)
	lanes := within(every, backOf(span), s.Now)
	shown, pages := paged(lanes, r, "lanes")
	around := chartModel{Pager: pages, Left: len(every) - len(lanes), Empty: "No eviction of a pod of this node was requested. A drain requests them."}
	if len(every) > 0 {
		around.Empty = "Nothing happened in this range."
		if !r.Export {
			around.Links = linksOf(r.Query, "range", span, ranges, "lanes")
		}
	}
	fragments := []live.Fragment{
		fragment("node", "node", nodeOf(s, name, node, !r.ReadOnly && !r.Export)), unknownFragment(unknown),
		chartOf(shown, lanes, windowOf(shown, backOf(span), s.Now), around, r.Export),
	}
	if len(shown) > 0 {
		words := live.Fragment{ID: "words", Before: rendered("words-begin", r.Export), After: rendered("words-end", nil)}
		for _, l := range textsOf(s, shown) {
			words.Children = append(words.Children, fragment(l.ID, "words-row", l))
		}
		fragments = append(fragments, words)
	}
	var rows []live.Fragment
	waves := orderOf(s, name)
	heads := []string{"Namespace", "Pod", "State", "Message"}
	if waves != nil {
		heads = []string{"Namespace", "Pod", "Wave", "State", "Message"}
	}
	here, pages := paged(podsOf(s, name, waves), r, "pods")
	for _, p := range here {
		rows = append(rows, fragment(p.ID, "pod-row", p))
	}
	fragments = append(fragments, tableOf{ID: "pods", Title: "Pods on the node", Heads: heads, Empty: emptyNode(node), Pager: pages}.with(rows))
	title.Fragments = fragments
	return title, nil
}

// emptyNode says what to do with a node without pods.
func emptyNode(node *corev1.Node) string {
	if node != nil && node.Spec.Unschedulable {
		return "There are no pods on the node. Uncordon it when the work on it is done."
	}
	return "There are no pods on the node."
}

// nodeOf is what is known of the node; it may be gone.
func nodeOf(s *state.Snapshot, name string, node *corev1.Node, act bool) nodeModel {
	m := nodeModel{drainRow: drainOf(s, name), Name: name, Pods: len(s.PodsByNode[name]), Act: act && node != nil, Schedulable: true}
	if node != nil {
		m.Schedulable, m.Markers = !node.Spec.Unschedulable, translate.NodeMarkers(node)
	}
	for _, maintenance := range s.Maintenances {
		if i := slices.IndexFunc(maintenance.Status.Nodes, func(n v1alpha1.MaintenanceNodeStatus) bool { return n.Name == name }); i >= 0 {
			n := maintenance.Status.Nodes[i]
			m.Done, m.Total = int(n.PodsEvacuated), int(n.PodsEvacuated+n.PodsPendingEvacuation)
			m.Draining = m.Draining || maintenance.Spec.Drain && maintenance.DeletionTimestamp == nil
			stage, _, _ := stageOf(maintenance, n.PodsBlocking > 0)
			m.Maintenances = append(m.Maintenances, strings.TrimSuffix(text.Clean(fmt.Sprintf("%s, %s: %s", maintenance.Name, stage, maintenance.Spec.Reason)), ": "))
			m.Blocked = max(m.Blocked, int(n.PodsBlocking))
			for _, b := range n.BlockingPods {
				m.Blockers = append(m.Blockers, text.Clean(b.Namespace+"/"+b.Name+": "+b.Message))
			}
		}
	}
	if waves := orderOf(s, name); waves != nil {
		m.Wave = waves.says(s.PodsByNode[name])
	}
	m.Bar = podBarOf(m.Done, m.Running, m.Waiting, m.Blocked, m.Total)
	m.By, m.Blockers = unique(m.By), unique(m.Blockers)
	return m
}

// podsOf are the pods that are on the node now. Waves are nil if they go in no order.
func podsOf(s *state.Snapshot, node string, waves *order) []podRow {
	rows := make([]podRow, 0, len(s.PodsByNode[node]))
	for _, p := range s.PodsByNode[node] {
		row := podRow{ID: idOf("pod", string(p.UID), p.Namespace, p.Name), Namespace: p.Namespace, Pod: p.Name, State: "stays", Tone: toneFaint}
		process, evicted := s.ProcessByPod[p.UID]
		switch {
		case p.DeletionTimestamp != nil:
			row.State, row.Tone = "terminating", toneGood
		case evicted:
			l := laneOf(s, process)
			row.State, row.Tone, row.Message = l.State, l.Tone, l.Message
		case pods.IsMirror(p):
			row.Message = "static pod"
		case pods.IsOfDaemonSet(p):
			row.Message = "of a DaemonSet"
		case pods.HasEnded(p):
			row.Message = "has ended"
		default:
			row.State, row.Tone = "running", toneGood
		}
		if waves != nil {
			row.Waves = true
			if position, goes := waves.of(p); goes {
				row.Wave = waves.name(position)
				if position > waves.begun && !evicted && p.DeletionTimestamp == nil {
					row.State, row.Tone, row.Message = "waiting", toneWait, "waits for its wave"
				} else if pods.IsOfDaemonSet(p) && p.DeletionTimestamp == nil {
					row.State, row.Tone = "running", toneGood // It is evicted without a request.
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// laneText is a lane in words, for those who do not see the drawing.
type laneText struct {
	ID, Namespace, Pod, State, Tone string
	Turns                           []string
}

func textsOf(s *state.Snapshot, lanes []lane) []laneText {
	var all []laneText
	for _, l := range lanes {
		words := laneText{ID: l.ID, Namespace: l.Namespace, Pod: l.Pod, State: l.State, Tone: l.Tone}
		for _, t := range l.Turns {
			words.Turns = append(words.Turns, t.title(s.Now))
		}
		if len(l.Next) > 0 {
			words.Turns = append(words.Turns, "still to come: "+strings.Join(l.Next, ", "))
		}
		all = append(all, words)
	}
	return all
}
