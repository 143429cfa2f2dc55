package scale

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// Input is all that the decision depends on.
type Input struct {
	// Pods are those of the ReplicaSet that are active: neither ended nor being deleted.
	Pods []*corev1.Pod
	// Others are the other pods of the namespace; a constraint may count them, too.
	Others []*corev1.Pod
	// Nodes are all nodes.
	Nodes []*corev1.Node
	// Template is the pod template of the ReplicaSet.
	Template corev1.PodTemplateSpec
	// Requested are the pods whose eviction is requested and not finished.
	Requested map[types.UID]bool
	// Wanted is how many pods stay: from 0 to less than there are Pods.
	Wanted int
}

// Plan is which pods go, and what becomes of the constraints.
type Plan struct {
	// Going are the pods that go, in the order in which they were chosen.
	Going []Leaving
	// Spreads are the constraints, in the order of the template.
	Spreads []Spread
	// Unproven: a constraint will not hold, and there were too many choices to try them all.
	Unproven bool
}

// Leaving is a pod that goes.
type Leaving struct {
	Pod *corev1.Pod
	// Why, for people: a clause, or several separated by semicolons.
	Why string
}

// Spread is a topology spread constraint before and after. Pods of others are counted if
// the constraint selects them.
type Spread struct {
	TopologyKey string
	MaxSkew     int
	// Hard: the scheduler would rather leave a pod Pending than violate it.
	Hard    bool
	Domains []Domain
	// SkewNow and SkewAfter are how many pods the fullest domain has more than the emptiest.
	SkewNow, SkewAfter int
}

// Domain is one value of the topology key, and how many pods are there.
type Domain struct {
	Name       string
	Now, After int
}

// Broken reports whether it holds now and would not hold after.
func (s *Spread) Broken() bool { return s.SkewNow <= s.MaxSkew && s.SkewAfter > s.MaxSkew }

// Decide chooses the pods that go. The ReplicaSet controller takes pods that are not
// assigned, do not run or are not Ready before it looks at the deletion cost
// (ActivePodsWithRanks in pkg/controller of Kubernetes), so these go first here, too. Among
// the others, those go that leave the constraints violated least, then the pods most even,
// and then those that are lost most cheaply: on a cordoned node, about to be evicted, of a
// lower deletion cost, beside others on their node, Ready for a shorter time.
func Decide(in Input) (Plan, error) { return decide(in, searchLimit) }

// decide tries as many choices as given where the simple one violates a constraint.
func decide(in Input, limit int) (Plan, error) {
	leave := len(in.Pods) - in.Wanted
	if in.Wanted < 0 || leave <= 0 {
		return Plan{}, fmt.Errorf("there are %d pods, which cannot become %d by taking some away", len(in.Pods), in.Wanted)
	}
	counts, err := newCounts(&in)
	if err != nil {
		return Plan{}, err
	}
	ranked := rank(&in)
	for _, c := range ranked {
		c.domains = counts.domainsOf(c.pod)
	}
	s := search{counts: counts, limit: limit}
	now := counts.clone()
	// Whole tiers go first; within the tier that is left to divide, there is a choice.
	begin := 0
	for begin < leave {
		end := begin
		for end < len(ranked) && ranked[end].tier == ranked[begin].tier {
			end++
		}
		if end > leave {
			break
		}
		for _, c := range ranked[begin:end] {
			s.take(c)
		}
		begin = end
	}
	var chosen []*candidate
	unproven := false
	if begin < leave {
		end := begin
		for end < len(ranked) && ranked[end].tier == ranked[begin].tier {
			end++
		}
		if ranked[begin].tier.cost == 0 {
			return Plan{}, fmt.Errorf("%d pods have the deletion cost %d already, and only %d more would go, so no other cost tells which: remove the annotation %s from those that are to stay, first of all from %s",
				end-begin, pods.ChosenCost, leave-begin, corev1.PodDeletionCost, ranked[end-1].pod.Name)
		}
		chosen, unproven = s.choose(ranked[begin:end], leave-begin)
	}
	plan := Plan{Unproven: unproven}
	for _, c := range ranked[:begin] {
		plan.Going = append(plan.Going, Leaving{c.pod, c.tier.why()})
	}
	// The same choice once more, in an order in which each step can be explained.
	for len(chosen) > 0 {
		i := s.fullest(chosen)
		plan.Going = append(plan.Going, Leaving{chosen[i].pod, s.why(chosen[i])})
		s.take(chosen[i])
		chosen = slices.Delete(slices.Clone(chosen), i, i+1)
	}
	for i := range counts.spreads {
		plan.Spreads = append(plan.Spreads, counts.spread(i, now))
	}
	return plan, nil
}

// tier is what the ReplicaSet controller looks at before or with the deletion cost that this
// plan sets. Lower goes first.
type tier struct{ place, phase, ready, cost int }

// compare orders tiers; the first goes first.
func (t tier) compare(o tier) int {
	return cmp.Or(cmp.Compare(t.place, o.place), cmp.Compare(t.phase, o.phase), cmp.Compare(t.ready, o.ready), cmp.Compare(t.cost, o.cost))
}

func (t tier) why() string {
	var why string
	switch {
	case t.place == 0:
		why = "it is on no node"
	case t.phase < running:
		why = "it does not run yet"
	case t.ready == 0:
		why = "it is not Ready"
	case t.cost == 0:
		why = fmt.Sprintf("its deletion cost is %d already", pods.ChosenCost)
	default:
		return "all go"
	}
	return why + ": Kubernetes takes such pods before all others"
}

// running is the rank of the phase Running.
const running = 2

func tierOf(pod *corev1.Pod) tier {
	t := tier{place: 1, phase: running, ready: 1, cost: 1}
	if pod.Spec.NodeName == "" {
		t.place = 0
	}
	switch pod.Status.Phase {
	case corev1.PodPending, "":
		t.phase = 0
	case corev1.PodUnknown:
		t.phase = 1
	default:
	}
	if !pods.IsReady(pod) {
		t.ready = 0
	}
	if pods.DeletionCost(pod.Annotations) == pods.ChosenCost {
		t.cost = 0
	}
	return t
}

// candidate is a pod that may go.
type candidate struct {
	pod  *corev1.Pod
	tier tier
	// domains are the indexes of its domains, one for each constraint; -1 where it does not count.
	domains []int
	// cordoned: its node takes no pods, or is gone.
	cordoned  bool
	requested bool
	cost      int
	// beside is how many pods of the ReplicaSet are on its node.
	beside int
	// order is its place among all, the first to go is 0.
	order int
}

// rank returns the pods in the order in which they would go if nothing had to be balanced.
func rank(in *Input) []*candidate {
	takes := map[string]bool{}
	for _, node := range in.Nodes {
		takes[node.Name] = !node.Spec.Unschedulable
	}
	beside := map[string]int{}
	for _, pod := range in.Pods {
		beside[pod.Spec.NodeName]++
	}
	var all []*candidate
	for _, pod := range in.Pods {
		all = append(all, &candidate{
			pod: pod, tier: tierOf(pod), cordoned: !takes[pod.Spec.NodeName], requested: in.Requested[pod.UID],
			cost: int(pods.DeletionCost(pod.Annotations)), beside: beside[pod.Spec.NodeName],
		})
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(
			a.tier.compare(b.tier), first(a.cordoned, b.cordoned), first(a.requested, b.requested), cmp.Compare(a.cost, b.cost),
			cmp.Compare(b.beside, a.beside), readySince(b.pod).Compare(readySince(a.pod)),
			b.pod.CreationTimestamp.Compare(a.pod.CreationTimestamp.Time), cmp.Compare(a.pod.Name, b.pod.Name),
		)
	})
	for i := range all {
		all[i].order = i
	}
	return all
}

// first orders those that are before those that are not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// readySince is when the pod became Ready; zero if it is not, or nobody knows.
func readySince(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
