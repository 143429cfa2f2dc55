package page

import (
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// lead answers what everybody asks first: is something stuck, since when, and what to do.
type lead struct {
	Tone, Headline string
	// Node that it is about, with the pod, why and since when; empty if nothing waits.
	Node, Pod, PodHref, Why string
	Since                   *moment
	// Next is what to do: the words of the link to the pod, or a sentence if there is none.
	Next string
	// More leads to the rest of the nodes like that; MoreText says how many.
	More, MoreText string
}

// leadOf looks at all nodes, whatever the filter is.
func leadOf(all []drainRow, c counts, act bool) lead {
	var blocked, running []drainRow
	for _, d := range all {
		if d.Blocked > 0 {
			blocked = append(blocked, d)
		}
		if d.Running > 0 {
			running = append(running, d)
		}
	}
	oldest := func(rows []drainRow, of func(drainRow) held) (first drainRow, h held) {
		for _, d := range rows {
			if one := of(d); h.Pod == "" || !one.since.IsZero() && (h.since.IsZero() || one.since.Before(h.since)) {
				first, h = d, one
			}
		}
		return first, h
	}
	switch {
	case len(blocked) > 0:
		d, h := oldest(blocked, func(d drainRow) held { return d.stuck })
		l := lead{Tone: toneBad, Headline: text.Counted(c.Blocked, "pod") + " blocked on " + text.Counted(len(blocked), "node") + ".", Node: d.Node, Pod: h.Pod, PodHref: h.Href, Why: h.Why, Since: h.Since}
		if l.Pod != "" {
			l.Next = "What to do about " + l.Pod
		}
		if len(blocked) > 1 {
			l.More, l.MoreText = "?state="+stateBlocked+"&sort="+sortHeld, "All "+text.Counted(len(blocked), "blocked node")
		}
		return l
	case len(running) > 0:
		d, h := oldest(running, func(d drainRow) held { return d.held })
		return lead{Tone: toneBusy, Headline: "Nothing is blocked.", Node: d.Node, Pod: h.Pod, PodHref: h.Href, Why: h.Why, Since: h.Since, Next: "What " + h.Pod + " waits for"}
	case c.Draining > 0:
		return lead{Tone: toneBusy, Headline: "Nothing is blocked.", Next: "No pod waits for an interceptor or a budget now."}
	default:
		l := lead{Tone: toneGood, Headline: "No node is draining.", Next: "To drain one, run kubectl drawbridge drain NODE."}
		if act {
			l.Next = "To drain one, choose Drain in the list of nodes, or run kubectl drawbridge drain NODE."
		}
		return l
	}
}
