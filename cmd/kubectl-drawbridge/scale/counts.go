package scale

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// spread is a constraint of the template, prepared.
type spread struct {
	key        string
	maxSkew    int
	hard       bool
	minDomains int
	selector   labels.Selector
	// domains are the values of the key on nodes that count, sorted.
	domains []string
	// at is the index of the domain of each node that counts.
	at map[string]int
}

// counts are how many pods are in each domain of each constraint.
type counts struct {
	spreads []spread
	n       [][]int
}

// newCounts counts as the scheduler does (the plugin PodTopologySpread of kube-scheduler).
func newCounts(in *Input) (counts, error) {
	pod := &corev1.Pod{ObjectMeta: in.Template.ObjectMeta, Spec: in.Template.Spec}
	var c counts
	for i := range pod.Spec.TopologySpreadConstraints {
		s, err := newSpread(pod, &pod.Spec.TopologySpreadConstraints[i], in.Nodes)
		if err != nil {
			return counts{}, err
		}
		n := make([]int, len(s.domains))
		for _, list := range [][]*corev1.Pod{in.Pods, in.Others} {
			for _, pod := range list {
				if d := s.domain(pod); d >= 0 {
					n[d]++
				}
			}
		}
		c.spreads, c.n = append(c.spreads, s), append(c.n, n)
	}
	return c, nil
}

func newSpread(pod *corev1.Pod, constraint *corev1.TopologySpreadConstraint, nodes []*corev1.Node) (spread, error) {
	s := spread{
		key: constraint.TopologyKey, maxSkew: int(constraint.MaxSkew), hard: constraint.WhenUnsatisfiable != corev1.ScheduleAnyway,
		minDomains: int(ptr.Deref(constraint.MinDomains, 1)), at: map[string]int{},
	}
	var err error
	if s.selector, err = metav1.LabelSelectorAsSelector(constraint.LabelSelector); err != nil {
		return spread{}, fmt.Errorf("read the label selector of the topology spread constraint for %s: %w", s.key, err)
	}
	for _, key := range constraint.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			more, err := labels.NewRequirement(key, "in", []string{value})
			if err != nil {
				return spread{}, fmt.Errorf("read the label keys of the topology spread constraint for %s: %w", s.key, err)
			}
			s.selector = s.selector.Add(*more)
		}
	}
	values := map[string]bool{}
	for _, node := range nodes {
		if included(pod, constraint, node) {
			values[node.Labels[s.key]] = true
		}
	}
	s.domains = slices.Sorted(maps.Keys(values))
	for _, node := range nodes {
		if included(pod, constraint, node) {
			s.at[node.Name], _ = slices.BinarySearch(s.domains, node.Labels[s.key])
		}
	}
	return s, nil
}

// included reports whether a node counts for a constraint: it has the keys of all
// constraints of the same kind, and its policies for nodes include it.
func included(pod *corev1.Pod, constraint *corev1.TopologySpreadConstraint, node *corev1.Node) bool {
	for i := range pod.Spec.TopologySpreadConstraints {
		other := &pod.Spec.TopologySpreadConstraints[i]
		if _, ok := node.Labels[other.TopologyKey]; !ok && other.WhenUnsatisfiable == constraint.WhenUnsatisfiable {
			return false
		}
	}
	if ptr.Deref(constraint.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor {
		if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
			return false
		}
	}
	if ptr.Deref(constraint.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor {
		_, untolerated := schedulingv1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		}, true)
		return !untolerated
	}
	return true
}

// domain is the index of the domain that a pod counts in, -1 if it does not count.
func (s *spread) domain(pod *corev1.Pod) int {
	d, ok := s.at[pod.Spec.NodeName]
	if !ok || pod.DeletionTimestamp != nil || pods.HasEnded(pod) || !s.selector.Matches(labels.Set(pod.Labels)) {
		return -1
	}
	return d
}

// domainsOf are the indexes of a pod's domains, one for each constraint.
func (c *counts) domainsOf(pod *corev1.Pod) []int {
	var all []int
	for i := range c.spreads {
		all = append(all, c.spreads[i].domain(pod))
	}
	return all
}

// move changes the counts of some domains, one for each constraint.
func (c *counts) move(domains []int, by int) {
	for i, d := range domains {
		if d >= 0 {
			c.n[i][d] += by
		}
	}
}

func (c *counts) clone() [][]int {
	var n [][]int
	for _, domains := range c.n {
		n = append(n, slices.Clone(domains))
	}
	return n
}

// skew is how many pods the fullest domain has more than the emptiest one; with fewer
// domains than minDomains, more than none.
func (s *spread) skew(n []int) int {
	if len(n) == 0 {
		return 0
	}
	least := slices.Min(n)
	if len(n) < s.minDomains {
		least = 0
	}
	return slices.Max(n) - least
}

// spread is what is said of a constraint, with what was counted before.
func (c *counts) spread(i int, before [][]int) Spread {
	s := &c.spreads[i]
	told := Spread{TopologyKey: s.key, MaxSkew: s.maxSkew, Hard: s.hard, SkewNow: s.skew(before[i]), SkewAfter: s.skew(c.n[i])}
	for d, name := range s.domains {
		told.Domains = append(told.Domains, Domain{Name: name, Now: before[i][d], After: c.n[i][d]})
	}
	return told
}

// score says how bad counts are; lower is better, the first number first.
type score [4]int

// violates reports whether any constraint is violated.
func (s score) violates() bool { return s[0] > 0 || s[1] > 0 }

// less reports whether it is better than another one.
func (s score) less(o score) bool { return slices.Compare(s[:], o[:]) < 0 }

// score is the violation of hard constraints and of the others, in pods, and then how uneven
// both are, as sums of squares.
func (c *counts) score() score {
	var total score
	for i := range c.spreads {
		s := &c.spreads[i]
		kind := 1
		if s.hard {
			kind = 0
		}
		total[kind] += max(0, s.skew(c.n[i])-s.maxSkew)
		for _, n := range c.n[i] {
			total[2+kind] += n * n
		}
	}
	return total
}
