package preemption

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// NewBudget returns the relevant fields of a budget.
func NewBudget(pdb *policyv1.PodDisruptionBudget) *Budget {
	b := &Budget{
		Namespace: pdb.Namespace, Name: pdb.Name, UID: pdb.UID, ResourceVersion: pdb.ResourceVersion,
		UnhealthyFree: pdb.Status.DesiredHealthy > 0 && pdb.Status.CurrentHealthy >= pdb.Status.DesiredHealthy,
	}
	if policy := pdb.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		b.UnhealthyFree = true
	}
	if pdb.Status.ObservedGeneration >= pdb.Generation {
		b.Allowed = max(pdb.Status.DisruptionsAllowed, 0)
	}
	if len(pdb.Status.DisruptedPods) > 0 {
		b.Disrupted = make(map[string]struct{}, len(pdb.Status.DisruptedPods))
		for name := range pdb.Status.DisruptedPods {
			b.Disrupted[name] = struct{}{}
		}
	}
	return b
}

// ofGuard reports whether the budget is our own: it protects evacuations from
// evictions, and does not come from the application.
func ofGuard(pdb *policyv1.PodDisruptionBudget) bool {
	return pdb.Labels[v1alpha1.GuardBudgetLabel] == "true" && pdb.Name == v1alpha1.GuardBudgetName
}

// budgetEntry is a budget and its selector.
type budgetEntry struct {
	budget   *Budget
	selector labels.Selector
	// source is what the selector was made of.
	source *metav1.LabelSelector
	bucket bucket
	// leaving are pods that left since this state of the budget was seen, and when.
	leaving map[types.UID]time.Time
}

// charge is how many disruptions the budget does not count yet, as far as we know.
// Those older than uncountedFor are counted by now.
func (e *budgetEntry) charge(now time.Time) int32 {
	var charge int32
	for _, at := range e.leaving {
		if now.Before(at.Add(uncountedFor)) {
			charge++
		}
	}
	return charge
}

// uncountedFor is how long the disruption controller may take to count a pod that left.
// Pods and budgets are separate watches, so one may be behind the other, and without
// this limit a pod that is already counted could be charged for long.
const uncountedFor = 5 * time.Second

// budgetIndex finds the budgets of a pod without evaluating all of its namespace:
// budgets whose selectors require a label with a value are indexed by it. It is not
// safe for concurrent use.
type budgetIndex struct {
	// byBucket are the budgets by namespace and bucket.
	byBucket map[string]map[bucket]map[string]*budgetEntry
	// byName are all of them.
	byName map[types.NamespacedName]*budgetEntry
}

// bucket is a label that all pods of a selector have; the zero value is for selectors
// that name none with its value.
type bucket struct{ key, value string }

func newBudgetIndex() *budgetIndex {
	return &budgetIndex{byBucket: map[string]map[bucket]map[string]*budgetEntry{}, byName: map[types.NamespacedName]*budgetEntry{}}
}

// set adds or replaces a budget. One that selects nothing, or cannot be read (the API
// server admits none such), is not kept.
func (x *budgetIndex) set(pdb *policyv1.PodDisruptionBudget) {
	name := types.NamespacedName{Namespace: pdb.Namespace, Name: pdb.Name}
	before := x.byName[name]
	if before != nil && before.budget.UID == pdb.UID && before.budget.ResourceVersion == pdb.ResourceVersion {
		return // A resync.
	}
	if ofGuard(pdb) || pdb.Spec.Selector == nil {
		x.remove(name)
		return
	}
	entry := &budgetEntry{budget: NewBudget(pdb), source: pdb.Spec.Selector, bucket: bucketOf(pdb.Spec.Selector)}
	if before != nil && sameSelector(before.source, pdb.Spec.Selector) {
		entry.selector = before.selector // Its status changes all the time.
	} else {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil {
			x.remove(name)
			return
		}
		entry.selector = selector
	}
	if before != nil && before.bucket != entry.bucket {
		x.remove(name)
	}
	x.byName[name] = entry
	buckets := x.byBucket[pdb.Namespace]
	if buckets == nil {
		buckets = map[bucket]map[string]*budgetEntry{}
		x.byBucket[pdb.Namespace] = buckets
	}
	if buckets[entry.bucket] == nil {
		buckets[entry.bucket] = map[string]*budgetEntry{}
	}
	buckets[entry.bucket][pdb.Name] = entry
}

func (x *budgetIndex) remove(name types.NamespacedName) {
	entry := x.byName[name]
	if entry == nil {
		return
	}
	delete(x.byName, name)
	buckets := x.byBucket[name.Namespace]
	delete(buckets[entry.bucket], name.Name)
	if len(buckets[entry.bucket]) == 0 {
		delete(buckets, entry.bucket)
	}
	if len(buckets) == 0 {
		delete(x.byBucket, name.Namespace)
	}
}

// of returns the budgets that select a pod with these labels, by name.
func (x *budgetIndex) of(namespace string, podLabels map[string]string) []*Budget {
	var found []*Budget
	for _, entry := range x.entriesOf(namespace, podLabels) {
		found = append(found, entry.budget)
	}
	return found
}

func (x *budgetIndex) entriesOf(namespace string, podLabels map[string]string) []*budgetEntry {
	buckets := x.byBucket[namespace]
	if len(buckets) == 0 {
		return nil
	}
	var found []*budgetEntry
	collect := func(of bucket) {
		for _, entry := range buckets[of] {
			if entry.selector.Matches(labels.Set(podLabels)) {
				found = append(found, entry)
			}
		}
	}
	collect(bucket{})
	for key, value := range podLabels {
		collect(bucket{key, value})
	}
	slices.SortFunc(found, func(a, b *budgetEntry) int { return strings.Compare(a.budget.Name, b.budget.Name) })
	return found
}

// entry is the current entry of a budget, nil if it is gone or has changed.
func (x *budgetIndex) entry(b *Budget) *budgetEntry {
	if entry := x.byName[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}]; entry != nil && entry.budget == b {
		return entry
	}
	return nil
}

// left notes that a pod left, in the budgets that count it. The eviction API has
// already updated its budget.
func (x *budgetIndex) left(pod *corev1.Pod, now time.Time) {
	for _, entry := range x.entriesOf(pod.Namespace, pod.Labels) {
		if _, counted := entry.budget.Disrupted[pod.Name]; counted {
			continue
		}
		if entry.leaving == nil {
			entry.leaving = map[types.UID]time.Time{}
		}
		entry.leaving[pod.UID] = now
	}
}

// bucketOf is the first label, by name, that every selected pod must have.
func bucketOf(selector *metav1.LabelSelector) bucket {
	if len(selector.MatchLabels) == 0 {
		return bucket{}
	}
	key := slices.Min(slices.Collect(maps.Keys(selector.MatchLabels)))
	return bucket{key, selector.MatchLabels[key]}
}

func sameSelector(a, b *metav1.LabelSelector) bool {
	return maps.Equal(a.MatchLabels, b.MatchLabels) && slices.EqualFunc(a.MatchExpressions, b.MatchExpressions,
		func(a, b metav1.LabelSelectorRequirement) bool {
			return a.Key == b.Key && a.Operator == b.Operator && slices.Equal(a.Values, b.Values)
		})
}
