package chaos

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// checkWaves wants that a maintenance asks for a pod only when the pods have gone that are to go before
// it, at some time since the maintenance began: one that came later need not be waited for.
func (c *checker) checkWaves() {
	for _, o := range c.Ordered {
		for _, join := range c.joins(o.Requester) {
			c.checkJoin(o, join)
		}
	}
}

// joins are the states in which a maintenance was seen first in each request.
func (c *checker) joins(requester string) (joins []RequestSeen) {
	for _, uid := range sortedKeys(c.requests) {
		i := slices.IndexFunc(c.requests[uid], func(seen RequestSeen) bool {
			return slices.ContainsFunc(seen.Request.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == requester })
		})
		if i >= 0 {
			joins = append(joins, c.requests[uid][i])
		}
	}
	return joins
}

// checkJoin goes through the pods of the node up to the version of the request. What was seen before
// the maintenance was created was true then, or before.
func (c *checker) checkJoin(o Ordered, join RequestSeen) {
	wanted, version := "", versionOf(join.Request.ResourceVersion)
	if w := c.workloadOf(types.UID(join.Request.Name)); w != nil {
		wanted = w.Name
	}
	earlier := map[types.UID]*corev1.Pod{} // Those that are there and go before it.
	began, waited, free := false, false, false
	begin := func() {
		if !began {
			began, waited, free = true, len(earlier) > 0, len(earlier) == 0
		}
	}
	for _, seen := range c.Pods {
		pod := seen.Pod
		if !seen.Gap && versionOf(pod.ResourceVersion) > version {
			break
		}
		if !seen.At.Before(o.From) {
			begin()
		}
		if there := !seen.Gone && pod.Spec.NodeName == o.Node && !hasEnded(pod) && o.Order.waits(wanted, pod.Labels[appLabel]); there {
			earlier[pod.UID] = pod
		} else {
			delete(earlier, pod.UID)
		}
		// Nobody knows what there was in a gap.
		free = free || began && (len(earlier) == 0 || seen.Gap)
	}
	begin()
	switch {
	case !free:
		first := slices.MinFunc(slices.Collect(maps.Values(earlier)), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		c.violatedf(PromiseWaves, "pod "+join.Request.Name, "maintenance of %s, %s, asked for a pod of %s at %s, and pod %s was there",
			o.Node, o.Order, wanted, stamp(join.At), first.Name)
	case waited:
		c.Waited++
	}
}

// hasEnded reports whether a pod has ended by itself.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
