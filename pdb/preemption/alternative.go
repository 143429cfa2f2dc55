package preemption

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// settled is how long a pod must have run before it is made a victim. The scheduler
// discards our whole answer if a pod in it was not yet on the node when its cycle began.
const settled = 5 * time.Second

// NodePod is a pod of a node.
type NodePod struct {
	Victim
	// Object is the whole pod.
	Object *corev1.Pod
}

// AlternativeInput is everything that the choice of other victims depends on.
type AlternativeInput struct {
	Preemptor Preemptor
	// Candidate is the node with the scheduler's victims.
	Candidate Candidate
	// NodePods are the pods of the node, those victims among them.
	NodePods []NodePod
	// Charges as in Input, for the budgets of all of them.
	Charges map[*Budget]int32
	Now     time.Time
}

// Alternative returns the node with other victims in place of those whose budgets the
// preemptor may not violate, or says why there are none.
//
// The scheduler has found that the preemptor fits without its victims. So it also fits
// without other pods that free at least as much of everything, if only resources matter:
// neither the preemptor nor an exchanged pod may have anything that entangled checks.
//
// Other victims may violate budgets that the preemptor may violate, as in the KEP. They
// must: the scheduler avoids violations if it can, so it has already found every node where
// victims without a violation are enough.
func Alternative(in AlternativeInput) (Candidate, string) {
	if in.Preemptor.Entangled != "" {
		return Candidate{}, "the preemptor has " + in.Preemptor.Entangled
	}
	rest, protected, why := in.split()
	if why != "" {
		return Candidate{}, why
	}
	if len(protected) == 0 {
		return Candidate{}, "nobody is protected there by now" // The scheduler will retry.
	}
	need := corev1.ResourceList{}
	for _, o := range protected {
		if what := entangled(o.Object); what != "" {
			return Candidate{}, fmt.Sprintf("%s/%s has %s", o.Namespace, o.Name, what)
		}
		add(need, occupies(o.Object))
	}
	chosen, why := in.choose(rest, need)
	if why != "" {
		return Candidate{}, why
	}
	other := Candidate{Node: in.Candidate.Node, Victims: in.ordered(slices.Concat(rest, chosen))}
	other.Violations = violations(other.Victims, in.Charges)
	if _, dropped := in.check(other.Victims); dropped || elsewhere(&other) != nil {
		return Candidate{}, "the others together would violate a budget as well"
	}
	return other, ""
}

// split removes protected victims, one after the other, until no protected budget would be
// violated.
func (in *AlternativeInput) split() (rest []Victim, protected []*NodePod, why string) {
	rest = slices.Clone(in.Candidate.Victims)
	for {
		dropped, found := in.check(rest)
		if !found {
			return rest, protected, ""
		}
		o := in.nodePod(dropped.Victim.UID)
		if dropped.Why != WhyBudget || o == nil {
			return nil, nil, fmt.Sprintf("victim %s is not known", dropped.Victim.UID)
		}
		protected = append(protected, o)
		rest = slices.DeleteFunc(rest, func(v Victim) bool { return v.UID == o.UID })
	}
}

func (in *AlternativeInput) check(victims []Victim) (Dropped, bool) {
	return check(&Input{Preemptor: in.Preemptor, Charges: in.Charges}, &Candidate{Node: in.Candidate.Node, Victims: victims})
}

func (in *AlternativeInput) nodePod(uid types.UID) *NodePod {
	for i := range in.NodePods {
		if in.NodePods[i].UID == uid {
			return &in.NodePods[i]
		}
	}
	return nil
}

// choose returns a minimal set of pods that free what is needed. Like the scheduler, it
// starts with all eligible pods and then spares as many as possible: first those whose
// budget would be violated, then the more important ones. Of equally important ones, those
// that free the least are spared first, so that few are enough.
func (in *AlternativeInput) choose(rest []Victim, need corev1.ResourceList) ([]Victim, string) {
	type option struct {
		*NodePod
		frees    corev1.ResourceList
		violates bool
		share    int64
	}
	var pool []option
	total := corev1.ResourceList{}
	before := violations(rest, in.Charges)
	for i := range in.NodePods {
		o := &in.NodePods[i]
		if !in.eligible(o) {
			continue
		}
		with := slices.Concat(rest, []Victim{o.Victim})
		if _, dropped := in.check(with); dropped {
			continue // It would use up the budget of a victim that is protected, too.
		}
		candidate := option{NodePod: o, frees: frees(o.Object), violates: violations(with, in.Charges) > before}
		candidate.share = share(candidate.frees, need)
		pool = append(pool, candidate)
		add(total, candidate.frees)
	}
	if !covers(total, need) {
		return nil, "other pods of lower priority do not free as much"
	}
	slices.SortFunc(pool, func(a, b option) int {
		return cmp.Or(
			compareBool(b.violates, a.violates),
			cmp.Compare(priorityOf(b.Object), priorityOf(a.Object)),
			cmp.Compare(a.share, b.share),
			moreImportant(a.Object, b.Object),
		)
	})
	var chosen []Victim
	for _, o := range pool {
		if left := without(total, o.frees); covers(left, need) {
			total = left
			continue
		}
		chosen = append(chosen, o.Victim)
	}
	return chosen, ""
}

// eligible reports whether a pod may be made a victim.
func (in *AlternativeInput) eligible(o *NodePod) bool {
	if find(in.Candidate.Victims, o.UID) != nil || o.NodeName != in.Candidate.Node {
		return false
	}
	if !expendable(&in.Preemptor, &o.Victim, o.Object) {
		return false
	}
	started := o.Object.Status.StartTime
	return started != nil && !in.Now.Before(started.Add(settled)) && entangled(o.Object) == ""
}

// expendable reports whether a pod may be made a victim as far as the view knows.
func expendable(by *Preemptor, v *Victim, pod *corev1.Pod) bool {
	switch {
	case v.Free, v.guarded(by), priorityOf(pod) >= by.Priority:
		return false
	case pods.IsMirror(pod):
		return false // The kubelet does not stop it.
	case pod.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed, pod.Annotations[v1alpha1.InterceptorsAnnotation] != "", len(pod.Spec.EvictionResponders) > 0:
		return false // The scheduler bypasses interceptors and responders; leave that choice to it.
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return false // It is already a victim of another preemptor.
		}
	}
	return true
}

// ordered sorts victims as the scheduler expects them, the most important first. Deleted
// ones come last.
func (in *AlternativeInput) ordered(victims []Victim) []Victim {
	slices.SortStableFunc(victims, func(a, b Victim) int {
		left, right := in.nodePod(a.UID), in.nodePod(b.UID)
		if left == nil || right == nil {
			return compareBool(right != nil, left != nil)
		}
		return cmp.Or(cmp.Compare(priorityOf(right.Object), priorityOf(left.Object)), moreImportant(left.Object, right.Object))
	})
	return victims
}

// violations is how many of the victims, in this order, would violate a budget: the
// scheduler compares nodes by it.
func violations(victims []Victim, charges map[*Budget]int32) int64 {
	var total int64
	taken := map[*Budget]int32{}
	for i := range victims {
		violates := false
		for _, b := range victims[i].Budgets {
			if !disrupts(&victims[i], b) {
				continue
			}
			taken[b]++
			violates = violates || taken[b] > b.Allowed-charges[b]
		}
		if violates {
			total++
		}
	}
	return total
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// moreImportant orders pods of one priority: those that run for longer come first, as
// they do for the scheduler.
func moreImportant(a, b *corev1.Pod) int {
	return cmp.Or(started(a).Compare(started(b)), cmp.Compare(a.UID, b.UID))
}

func started(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return pod.CreationTimestamp.Time
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
