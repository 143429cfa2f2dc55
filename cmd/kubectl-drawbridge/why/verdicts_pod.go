package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

func gone(c *podCase) (string, []string, bool) {
	if c.Pod != nil {
		return "", nil, false
	}
	if c.Request == nil {
		return "The pod does not exist.", nil, true
	}
	if condition := meta.FindStatusCondition(c.Request.Status.Conditions, v1alpha1.ConditionEvicted); condition != nil && condition.Status == "True" {
		return fmt.Sprintf("The pod is gone: its eviction was finished %s.", c.ago(condition.LastTransitionTime.Time)), nil, true
	}
	return "The pod is gone; its request will notice in a moment.", nil, true
}

func stuckTerminating(c *podCase) (string, []string, bool) {
	if c.Pod == nil || c.Pod.DeletionTimestamp == nil || c.Now.Before(c.Pod.DeletionTimestamp.Add(silence)) {
		return "", nil, false
	}
	since := "The pod should have ended " + c.ago(c.Pod.DeletionTimestamp.Time) + ", and has not."
	if len(c.Pod.Finalizers) > 0 {
		return since + " Finalizers hold it: " + strings.Join(c.Pod.Finalizers, ", ") + ".",
			[]string{"Find out why the owner of the finalizer does not remove it. Remove it yourself only if you know what is left undone then."}, true
	}
	if c.Node != nil && !nodeReady(c.Node) {
		return since + " Its node is not ready, so nobody can say whether its containers run.",
			[]string{
				"Bring the node back.",
				"If the machine is off for good, say so: kubectl taint node " + c.Node.Name + " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
			}, true
	}
	return since, []string{"Look at the kubelet of node " + c.Pod.Spec.NodeName + ": a container does not end, or a volume is not released."}, true
}

func terminating(c *podCase) (string, []string, bool) {
	if c.Pod.DeletionTimestamp == nil {
		return "", nil, false
	}
	left := c.Pod.DeletionTimestamp.Sub(c.Now)
	if left <= 0 {
		return "The pod is being deleted, and its grace period is over: it ends in a moment.", []string{"Nothing: wait."}, true
	}
	return "The pod is being deleted; its grace period ends in " + duration.HumanDuration(left) + ".", []string{"Nothing: wait."}, true
}

func over(c *podCase) (string, []string, bool) {
	return fmt.Sprintf("The pod has ended (%s); there is nothing to evict.", c.Pod.Status.Phase), nil, pods.HasEnded(c.Pod)
}

func mirror(c *podCase) (string, []string, bool) {
	return "The pod is a static pod of its node. It cannot be evicted; drains leave it where it is.",
		[]string{"To stop it, take its manifest off the node."}, pods.IsMirror(c.Pod)
}

func notScheduled(c *podCase) (string, []string, bool) {
	return "The pod is on no node, so no drain meets it; an eviction would delete it at once.", nil, c.Pod.Spec.NodeName == ""
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
