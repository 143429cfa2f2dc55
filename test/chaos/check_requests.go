package chaos

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
)

// checkRequests follows each request.
func (c *checker) checkRequests() {
	for _, uid := range sortedKeys(c.requests) {
		var before *v1alpha1.EvictionRequest
		for _, seen := range c.requests[uid] {
			c.checkRequest(before, seen.Request)
			before = seen.Request
		}
		if before != nil && meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionCancellationForbidden) {
			c.WentOn++
		}
	}
}

func sortedKeys(m map[types.UID][]RequestSeen) []types.UID {
	keys := make([]types.UID, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (c *checker) checkRequest(before, now *v1alpha1.EvictionRequest) {
	about := "request for " + now.Name
	var targets []string
	for _, target := range now.Status.TargetInterceptors {
		targets = append(targets, target.Name)
	}
	active, processed := now.Status.ActiveInterceptors, now.Status.ProcessedInterceptors
	if want, ok := c.planned(now); ok && len(targets) > 0 && !slices.Equal(targets, want) {
		c.violatedf(PromiseOrder, about, "its interceptors are %v, want %v", targets, want)
	}
	switch {
	case len(active) > 1:
		c.violatedf(PromiseOrder, about, "%v are active at a time", active)
	case len(processed)+len(active) > len(targets) || !slices.Equal(targets[:len(processed)+len(active)], slices.Concat(processed, active)):
		c.violatedf(PromiseOrder, about, "processed %v, active %v of %v", processed, active, targets)
	}
	if by := v1alpha1.Forbidding(now); by != "" && meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionCanceled) {
		c.violatedf(PromiseNoWay, about, "%s has forbidden to cancel it", by)
	}
	if before == nil {
		return
	}
	if by := v1alpha1.Forbidding(before); by != "" && v1alpha1.Forbidding(now) != by {
		c.violatedf(PromiseNoWay, about, "%s no longer forbids to cancel it", by)
	}
	if was, is := outcome(before), outcome(now); was != "" && was != is {
		c.violatedf(PromiseOrder, about, "it was %s and is %q", was, is)
	}
	if !slices.Equal(before.Status.ProcessedInterceptors, processed[:min(len(before.Status.ProcessedInterceptors), len(processed))]) {
		c.violatedf(PromiseOrder, about, "processed were %v and are %v", before.Status.ProcessedInterceptors, processed)
	}
}

// planned are the interceptors that a request must have.
func (c *checker) planned(request *v1alpha1.EvictionRequest) ([]string, bool) {
	for _, seen := range c.Pods {
		if string(seen.Pod.UID) == request.Name {
			w := c.workload(seen.Pod)
			if w == nil {
				return nil, false
			}
			names := slices.Clone(c.Names[w.Name])
			if w.Kind == Surging {
				names = append(names, surge.Name)
			}
			if w.budgeted() {
				names = append(names, v1alpha1.BudgetInterceptor)
			}
			return append(c.withNative(w, names), v1alpha1.ImperativeEvictionInterceptor), true
		}
	}
	return nil, false
}

// outcome is the final condition, "" while the request runs.
func outcome(request *v1alpha1.EvictionRequest) string {
	for _, kind := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		if meta.IsStatusConditionTrue(request.Status.Conditions, kind) {
			return kind
		}
	}
	return ""
}

// runs reports whether a request has not come to its end. One that was deleted and is held
// by somebody needs no end while its pod is there: it is nobody's wish any more.
func runs(er *v1alpha1.EvictionRequest, pods []corev1.Pod) bool {
	isThere := slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return string(pod.UID) == er.Name })
	return outcome(er) == "" && (er.DeletionTimestamp == nil || !isThere)
}

// checkEnd looks at what is left when everything has been called off.
func (c *checker) checkEnd() {
	if c.Unsettled != "" {
		c.violatedf(PromiseEnd, "the run", "%s", c.Unsettled)
	}
	for i := range c.LeftRequests {
		if er := &c.LeftRequests[i]; runs(er, c.LeftPods) {
			c.violatedf(PromiseEnd, "request for "+er.Name, "active %v, processed %v, requesters %v", er.Status.ActiveInterceptors, er.Status.ProcessedInterceptors, er.Spec.Requesters)
		}
	}
	for i := range c.LeftPods {
		pod := &c.LeftPods[i]
		if left := c.leftOn(pod); left != "" {
			c.violatedf(PromisePutBack, "pod "+pod.Name+" "+string(pod.UID), "%s", left)
		}
	}
	for i := range c.LeftNodes {
		if left := c.leftOnNode(i); left != "" {
			c.violatedf(PromisePutBack, "node "+c.LeftNodes[i].Name, "%s", left)
		}
	}
	slices.SortStableFunc(c.Violations, func(a, b Violation) int { return cmp.Compare(a.Promise, b.Promise) })
}

// inProgressAnnotation is the descheduler's.
const inProgressAnnotation = "descheduler.alpha.kubernetes.io/eviction-in-progress"

// leftOn says what was not put back on a pod.
func (c *checker) leftOn(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return ""
	}
	w := c.workload(pod)
	always := w != nil && c.Plan.Mode == ModeAlways && (len(w.Interceptors) > 0 || w.Zone != "") && w.MaxUnavailable < 0
	closed := pod.Labels[v1alpha1.GuardLabel] == v1alpha1.GuardClosed
	switch {
	case closed && !always && c.Plan.Mode != ModeNoGuard:
		return "its guard is closed"
	case !closed && always:
		return "its guard is open"
	case pod.Annotations[surge.HandedUpAnnotation] != "":
		return "it is handed up"
	case pod.Annotations[evacuateAnnotation] != "":
		return "it is marked for its platform"
	case pod.Annotations[inProgressAnnotation] != "":
		return "it is marked for the descheduler"
	case slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == v1alpha1.PodEvacuationRequest && condition.Reason == v1alpha1.PodReasonNodeMaintenance
	}):
		return "it is told of a maintenance"
	}
	return ""
}

// leftOnNode says what the maintenances have not put back on a node.
func (c *checker) leftOnNode(number int) string {
	node := &c.LeftNodes[number]
	for _, key := range []string{v1alpha1.MaintenancesAnnotation, v1alpha1.MaintenancePhaseAnnotation, v1alpha1.MaintenanceWavesAnnotation, v1alpha1.CordonAnnotation} {
		if value, ok := node.Annotations[key]; ok {
			return fmt.Sprintf("it has the annotation %s: %q", key, value)
		}
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.MaintenanceTaint }) {
		return "it has the taint " + v1alpha1.MaintenanceTaint
	}
	others := slices.ContainsFunc(c.Plan.Drains, func(d Drain) bool { return d.Node == number && (d.Kind == Kubectl || d.Kind == Loop) })
	if node.Spec.Unschedulable && !others {
		return "it is unschedulable, and only maintenances have made it so"
	}
	return ""
}
