package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// draining are the maintenances that have begun to drain the pod's node.
func (c *podCase) draining() []v1alpha1.NodeMaintenance {
	if c.Node == nil || c.Request != nil && !v1alpha1.IsFinished(c.Request) {
		return nil
	}
	var found []v1alpha1.NodeMaintenance
	for _, m := range c.Maintenances {
		for item := range strings.SplitSeq(c.Node.Annotations[v1alpha1.MaintenancesAnnotation], ",") {
			name, stage, _ := strings.Cut(item, "=")
			drains := stage == string(v1alpha1.StageDrain) || stage == string(v1alpha1.StageDrainComplete)
			if name == m.Name && drains && m.Spec.Drain && m.DeletionTimestamp == nil {
				found = append(found, m)
			}
		}
	}
	return found
}

// kept is for pods that every maintenance of their node keeps.
func kept(c *podCase) (string, []string, bool) {
	all := c.taking()
	if len(all) == 0 {
		return "", nil, false
	}
	var why v1alpha1.BlockReason
	for i := range all {
		if why = all[i].Keeps(c.Pod); why == "" {
			return "", nil, false
		}
	}
	field, because := "unmanagedPods", "no controller would recreate it"
	if why == v1alpha1.BlockEmptyDirData {
		field, because = "emptyDirPods", "it has emptyDir volumes, whose data would be lost"
	}
	name := all[len(all)-1].Name
	return fmt.Sprintf("NodeMaintenance %s keeps the pod, because %s; the node is not drained before it has gone.", name, because), []string{
		"Move or delete it by hand, when what it has is safe.",
		fmt.Sprintf("Or let it be evicted: kubectl patch nodemaintenance %s --type=merge -p '{\"spec\":{\"%s\":\"Evict\"}}'", name, field),
	}, true
}

// waitsForWave is for pods of waves that have not begun on the pod's node, in the order of every
// maintenance that evicts the pod.
func waitsForWave(c *podCase) (string, []string, bool) {
	all := c.taking()
	if len(all) == 0 {
		return "", nil, false
	}
	begun := translate.BegunWavesOf(c.Node)
	var headline, name string
	for i := range all {
		m := &all[i]
		if m.Keeps(c.Pod) != "" {
			continue
		}
		waves, err := translate.CompileWaves(m.Spec.Waves)
		if err != nil || waves.SeeNamespaces() && c.Namespace == nil {
			return "", nil, false
		}
		is, current := waves.Of(c.Pod, c.namespaceLabels()), waves.Position(begun[m.Name].Name)
		if is <= current {
			return "", nil, false
		}
		name = m.Name
		headline = fmt.Sprintf("NodeMaintenance %s evicts the pod in wave %s (%d of %d), which has not begun on node %s: ", name, waves.Name(is), is, len(waves), c.Node.Name)
		if current == 0 {
			headline += "pods that go before all waves are still there."
		} else {
			headline += fmt.Sprintf("pods of wave %s or of earlier ones are still there.", waves.Name(current))
		}
	}
	return headline, []string{
		fmt.Sprintf("Nothing: wait. To see what goes first, and what blocks it: kubectl drawbridge status %s", c.Node.Name),
		fmt.Sprintf("If the pods before it cannot go, give their wave a timeout, or change the order: kubectl edit nodemaintenance %s", name),
	}, headline != ""
}

// taking are the maintenances that drain the pod's node and do not leave it out for the DaemonSet
// that it belongs to.
func (c *podCase) taking() []v1alpha1.NodeMaintenance {
	all := c.draining()
	if !pods.IsOfDaemonSet(c.Pod) {
		return all
	}
	return slices.DeleteFunc(all, func(m v1alpha1.NodeMaintenance) bool {
		waves, err := translate.CompileWaves(m.Spec.Waves)
		return err != nil || !waves.Takes(c.Pod, c.namespaceLabels())
	})
}

// namespaceLabels are those of the pod's namespace, nil if they are not known.
func (c *podCase) namespaceLabels() map[string]string {
	if c.Namespace == nil {
		return nil
	}
	return c.Namespace.Labels
}

// daemonSet is for pods of DaemonSets. Most drains leave them where they are.
func daemonSet(c *podCase) (string, []string, bool) {
	if !pods.IsOfDaemonSet(c.Pod) {
		return "", nil, false
	}
	all := c.taking()
	for i := range all {
		m := &all[i]
		begun := translate.BegunWavesOf(c.Node)[m.Name].Name
		// The wave of DaemonSets is the last one.
		if m.Keeps(c.Pod) != "" || begun != m.Spec.Waves[len(m.Spec.Waves)-1].Name {
			continue
		}
		return fmt.Sprintf("NodeMaintenance %s evicts the pod in wave %s, the last one. Node %s has the taint %s, so that %s does not recreate it.",
				m.Name, begun, c.Node.Name, v1alpha1.MaintenanceTaint, controller(c.Pod)), []string{
				fmt.Sprintf("Nothing: wait. If it stays, the maintenance says what refuses it: kubectl drawbridge status %s", c.Node.Name),
			}, true
	}
	return "The pod belongs to " + controller(c.Pod) + ", which would make another one on the same node. Drains leave it out.", nil, true
}

// leftToOwner is for pods without interceptors that a maintenance leaves to their owner
// for a while.
func leftToOwner(c *podCase) (string, []string, bool) {
	all := c.draining()
	asked := podCondition(c.Pod, v1alpha1.PodEvacuationRequest)
	if len(all) == 0 || pods.IsOfDaemonSet(c.Pod) || asked == nil || asked.Status != corev1.ConditionTrue {
		return "", nil, false
	}
	name := all[0].Name
	initiated := podCondition(c.Pod, v1alpha1.PodEvacuationInitiated)
	if initiated != nil && initiated.Reason != v1alpha1.PodReasonInterceptorStarted {
		if initiated.Status != corev1.ConditionTrue {
			return "", nil, false
		}
		return fmt.Sprintf("NodeMaintenance %s leaves the pod to its owner, who says that it moves it (condition %s, reason %s).", name, v1alpha1.PodEvacuationInitiated, initiated.Reason),
			[]string{"Nothing: wait. If the owner makes no progress, ask it, or evict the pod: an eviction call is not held up by the maintenance."}, true
	}
	shorten := "To wait less in the future, set maintenance.evacuationWait in the values of the chart; 0s is right where no owner sets the condition " + v1alpha1.PodEvacuationInitiated + "."
	if c.Wait == nil {
		return fmt.Sprintf("NodeMaintenance %s leaves the pod to its owner, since %s, for as long as maintenance.evacuationWait says, which could not be read; then its eviction is requested.", name, c.ago(asked.LastTransitionTime.Time)),
			[]string{"Nothing: wait.", shorten}, true
	}
	left := asked.LastTransitionTime.Add(*c.Wait).Sub(c.Now)
	if left <= 0 {
		return fmt.Sprintf("NodeMaintenance %s has left the pod to its owner for %s, and requests its eviction in a moment.", name, *c.Wait), []string{"Nothing: wait."}, true
	}
	return fmt.Sprintf("NodeMaintenance %s leaves the pod to its owner for %s (maintenance.evacuationWait), and requests its eviction in %s.", name, *c.Wait, duration.HumanDuration(left.Round(time.Second))),
		[]string{"Nothing: wait.", shorten}, true
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
