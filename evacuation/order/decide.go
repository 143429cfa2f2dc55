package order

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Input is everything that a decision depends on.
type Input struct {
	// Now is the time, and Since when the pod's turn began.
	Now, Since time.Time
	Node       string
	Self       Pod
	// Others are the pods of the node that leave.
	Others []Pod
}

// Pod is one of the node, as PodOf reads it.
type Pod struct {
	key types.NamespacedName
	uid types.UID
	// labels are its own and those of its namespace.
	labels, namespace map[string]string
	// after says whom it waits for: nobody if it never has a turn of the order.
	after []*registration.After
	// stays: drains leave it on the node, so that nobody waits for it.
	stays bool
}

// PodOf is a pod with the labels of its namespace and its request, which may be nil. The error is
// that of the registry; the pod has what is known nevertheless.
func PodOf(object *corev1.Pod, namespace map[string]string, request *v1alpha1.EvictionRequest, registry Registry) (Pod, error) {
	one := Pod{key: client.ObjectKeyFromObject(object), uid: object.UID, labels: object.Labels, namespace: namespace, stays: pods.StaysOnNode(object)}
	if !mayWait(request) {
		return one, nil
	}
	var err error
	if one.after, err = registry.After(object); err != nil {
		return one, fmt.Errorf("find whom pod %s waits for: %w", one.key, err)
	}
	return one, nil
}

// Decision is what became of an input. All lists are sorted.
type Decision struct {
	// Done: the pod waits no longer.
	Done bool
	// Message is for people.
	Message string
	// Left are the pods that it waits for, as namespace/name; none if it is done.
	Left []string
	// Again is when to decide again even if nothing happens; zero if it is done.
	Again time.Time
	// Late are the pods that are still there, although the timeout is over.
	Late []string
	// Timeout is the longest of those that are over.
	Timeout time.Duration
	// Circle are the pods that would wait for this one in turn.
	Circle []string
}

// Decide decides whether the pod waits.
func Decide(in *Input) Decision {
	if len(in.Self.after) == 0 {
		return Decision{Done: true, Message: "No registration says any more which pods leave before this one."}
	}
	var d Decision
	var atMost time.Duration
	waiters := in.waiters()
	for i := range in.Others {
		other := &in.Others[i]
		timeout, waits := in.Self.waitsFor(other)
		over := in.Since.Add(timeout)
		switch {
		case !waits:
		case waiters[i]:
			d.Circle = append(d.Circle, other.key.String())
		case !in.Now.Before(over):
			d.Late, d.Timeout = append(d.Late, other.key.String()), max(d.Timeout, timeout)
		default:
			d.Left, atMost = append(d.Left, other.key.String()), max(atMost, timeout)
			if d.Again.IsZero() || over.Before(d.Again) {
				d.Again = over
			}
		}
	}
	slices.Sort(d.Late)
	slices.Sort(d.Circle)
	slices.Sort(d.Left)
	d.Done = len(d.Left) == 0
	d.Message = in.message(&d, atMost)
	return d
}

// waitsFor reports whether a pod leaves after another one, and how long it waits at most.
func (p *Pod) waitsFor(other *Pod) (timeout time.Duration, waits bool) {
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
func (in *Input) waiters() []bool {
	found := make([]bool, len(in.Others))
	for queue := []*Pod{&in.Self}; len(queue) > 0; queue = queue[1:] {
		for i := range in.Others {
			if found[i] {
				continue
			}
			if _, waits := in.Others[i].waitsFor(queue[0]); waits {
				found[i] = true
				queue = append(queue, &in.Others[i])
			}
		}
	}
	return found
}

// message tells what was decided.
func (in *Input) message(d *Decision, atMost time.Duration) string {
	var sentences []string
	if len(d.Left) > 0 {
		sentences = append(sentences, fmt.Sprintf("Waiting for %s of node %s to leave, at most %s: %s.", counted(d.Left), in.Node, duration.HumanDuration(atMost), list(d.Left)))
	}
	if len(d.Late) > 0 {
		sentences = append(sentences, fmt.Sprintf("Not waiting any longer after %s for %s of node %s: %s.", duration.HumanDuration(d.Timeout), counted(d.Late), in.Node, list(d.Late)))
	}
	if len(d.Circle) > 0 {
		sentences = append(sentences, fmt.Sprintf("Not waiting for %s, because they would wait for each other: %s.", counted(d.Circle), list(d.Circle)))
	}
	if len(sentences) == 0 {
		return fmt.Sprintf("No pod is left on node %s that leaves before this one.", in.Node)
	}
	return strings.Join(sentences, " ")
}

// maxNamed is how many pods a message names.
const maxNamed = 3

// list names the first few pods.
func list(names []string) string { return text.Few(names, maxNamed) }

// counted is how many pods they are.
func counted(names []string) string {
	if len(names) == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", len(names))
}
