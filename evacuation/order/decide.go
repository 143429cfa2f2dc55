package order

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
)

// input is everything that a decision depends on.
type input struct {
	// now is the time, and since when the pod's turn began.
	now, since time.Time
	node       string
	self       pod
	// others are the pods of the node that leave.
	others []pod
}

// pod is one of the node.
type pod struct {
	key types.NamespacedName
	uid types.UID
	// labels are its own and those of its namespace.
	labels, namespace map[string]string
	// after says whom it waits for: nobody if it never has a turn of the order.
	after []*registration.After
	// stays: drains leave it on the node, so that nobody waits for it.
	stays bool
}

// decision is what became of an input.
type decision struct {
	// done: the pod waits no longer.
	done bool
	// message is for people.
	message string
	// again is when to decide again even if nothing happens; zero if it is done.
	again time.Time
	// late are the pods that are still there, although the timeout is over. They are sorted.
	late []string
	// timeout is the longest of those that are over.
	timeout time.Duration
	// circle are the pods that would wait for this one in turn. They are sorted.
	circle []string
}

// decide decides whether the pod waits.
func decide(in *input) decision {
	if len(in.self.after) == 0 {
		return decision{done: true, message: "No registration says any more which pods leave before this one."}
	}
	var d decision
	var left []string
	var atMost time.Duration
	waiters := in.waiters()
	for i := range in.others {
		other := &in.others[i]
		timeout, waits := in.self.waitsFor(other)
		over := in.since.Add(timeout)
		switch name := other.key.String(); {
		case !waits:
		case waiters[i]:
			d.circle = append(d.circle, name)
		case !in.now.Before(over):
			d.late, d.timeout = append(d.late, name), max(d.timeout, timeout)
		default:
			left, atMost = append(left, name), max(atMost, timeout)
			if d.again.IsZero() || over.Before(d.again) {
				d.again = over
			}
		}
	}
	slices.Sort(d.late)
	slices.Sort(d.circle)
	slices.Sort(left)
	d.done = len(left) == 0
	d.message = in.message(left, atMost, &d)
	return d
}

// waitsFor reports whether a pod leaves after another one, and how long it waits at most.
func (p *pod) waitsFor(other *pod) (timeout time.Duration, waits bool) {
	if other.stays || other.uid == p.uid {
		return 0, false
	}
	for _, after := range p.after {
		if after.Selects(other.labels, other.namespace) {
			timeout, waits = max(timeout, after.Timeout), true
		}
	}
	return timeout, waits
}

// waiters says which of the others wait for the pod itself, directly or by way of each other.
func (in *input) waiters() []bool {
	found := make([]bool, len(in.others))
	for queue := []*pod{&in.self}; len(queue) > 0; queue = queue[1:] {
		for i := range in.others {
			if found[i] {
				continue
			}
			if _, waits := in.others[i].waitsFor(queue[0]); waits {
				found[i] = true
				queue = append(queue, &in.others[i])
			}
		}
	}
	return found
}

// message tells what was decided.
func (in *input) message(left []string, atMost time.Duration, d *decision) string {
	var sentences []string
	if len(left) > 0 {
		sentences = append(sentences, fmt.Sprintf("Waiting for %s of node %s to leave, at most %s: %s.", counted(left), in.node, duration.HumanDuration(atMost), list(left)))
	}
	if len(d.late) > 0 {
		sentences = append(sentences, fmt.Sprintf("Not waiting any longer after %s for %s of node %s: %s.", duration.HumanDuration(d.timeout), counted(d.late), in.node, list(d.late)))
	}
	if len(d.circle) > 0 {
		sentences = append(sentences, fmt.Sprintf("Not waiting for %s, because they would wait for each other: %s.", counted(d.circle), list(d.circle)))
	}
	if len(sentences) == 0 {
		return fmt.Sprintf("No pod is left on node %s that leaves before this one.", in.node)
	}
	return strings.Join(sentences, " ")
}

// maxNamed is how many pods a message names.
const maxNamed = 3

// list names the first few pods.
func list(names []string) string {
	named := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return named
}

// counted is how many pods they are.
func counted(names []string) string {
	if len(names) == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", len(names))
}
