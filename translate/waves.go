package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// Waves are the waves of a NodeMaintenance, compiled. A wave is known by its position: the
// first of the list has 1, and 0 is before all.
type Waves []wave

// wave selects pods that match all of its fields; without priorityAtLeast, those of any priority.
// It selects either pods of DaemonSets or others.
type wave struct {
	Selectors

	name            string
	daemonSets      bool
	priorityAtLeast *int32
}

// CompileWaves compiles spec.waves. The error says which selector cannot be read.
func CompileWaves(from []v1alpha1.MaintenanceWave) (Waves, error) {
	var waves Waves
	for i, w := range from {
		selectors, err := CompileSelectors(w.PodSelector, w.NamespaceSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.waves[%d].%w", i, err)
		}
		waves = append(waves, wave{Selectors: selectors, name: w.Name, daemonSets: w.DaemonSets, priorityAtLeast: w.PriorityAtLeast})
	}
	return waves, nil
}

// Of is the position of a pod's wave: the last one that selects it, 0 if none does. The labels
// are those of its namespace; they matter only if SeeNamespaces.
func (w Waves) Of(pod *corev1.Pod, namespace map[string]string) int {
	for i := len(w) - 1; i >= 0; i-- {
		if w[i].selects(pod, namespace) {
			return i + 1
		}
	}
	return 0
}

// DaemonSets is the position of the wave of the pods of DaemonSets, 0 if there is none.
func (w Waves) DaemonSets() int {
	return slices.IndexFunc(w, func(one wave) bool { return one.daemonSets }) + 1
}

// AllDaemonSets reports whether that wave selects the pods of all DaemonSets, but for those that the
// node or the cluster needs.
func (w Waves) AllDaemonSets() bool {
	last := w.DaemonSets()
	return last > 0 && w[last-1].Pods.Empty() && w[last-1].Namespaces.Empty() && w[last-1].priorityAtLeast == nil
}

// Takes reports whether the pod of a DaemonSet leaves in that wave. Its tolerations must be known.
func (w Waves) Takes(pod *corev1.Pod, namespace map[string]string) bool {
	last := w.DaemonSets()
	return last > 0 && w.Of(pod, namespace) == last && !ToleratesMaintenance(pod.Spec.Tolerations)
}

// Position is that of the wave of this name, 0 if there is none.
func (w Waves) Position(name string) int {
	return slices.IndexFunc(w, func(one wave) bool { return one.name == name }) + 1
}

// Name is that of the wave at a position from 1 on.
func (w Waves) Name(position int) string { return w[position-1].name }

// SeeNamespaces reports whether a wave selects by the labels of namespaces.
func (w Waves) SeeNamespaces() bool {
	return slices.ContainsFunc(w, func(one wave) bool { return !one.Namespaces.Empty() })
}

func (w wave) selects(pod *corev1.Pod, namespace map[string]string) bool {
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	switch {
	case w.daemonSets != ofDaemonSet(pod) || w.daemonSets && critical(pod, priority):
		return false
	case w.priorityAtLeast != nil && priority < *w.priorityAtLeast:
		return false
	default:
		return w.Match(pod.Labels, namespace)
	}
}

// ofDaemonSet reports whether a DaemonSet controls the pod.
func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// systemPriority is the lowest of Kubernetes' own PriorityClasses. No other one may have it.
const systemPriority = 2_000_000_000

// critical reports whether the node or the cluster needs the pod.
func critical(pod *corev1.Pod, priority int32) bool {
	return priority >= systemPriority || slices.Contains([]string{"system-node-critical", "system-cluster-critical"}, pod.Spec.PriorityClassName)
}

// MaintenanceTaint keeps the pods of DaemonSets from a node under maintenance.
func MaintenanceTaint() corev1.Taint {
	return corev1.Taint{Key: v1alpha1.MaintenanceTaint, Effect: corev1.TaintEffectNoSchedule}
}

// ToleratesMaintenance reports whether a pod with these tolerations may be bound to a node with
// MaintenanceTaint.
func ToleratesMaintenance(tolerations []corev1.Toleration) bool {
	taint := MaintenanceTaint()
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, true) })
}

// NextWave is the position of the wave that begins on a node now, 0 if none does, and how many pods
// of earlier ones are left then. Until is when the time of the current wave is over, if another one
// waits for that; zero otherwise. Begun is the position of the wave that has begun last, at since,
// and pods are how many each wave has, those before all waves first; nil if nobody knows.
//
// The next wave is the first one after the current one that has pods. It waits for the pods of
// the current wave, at most for its timeout, and for those of earlier waves that have none. Pods
// of earlier waves with a timeout have had their time.
func NextWave(waves []v1alpha1.MaintenanceWave, begun int, since time.Time, pods []int32, now time.Time) (next int, left int32, until time.Time) {
	for i := begun + 1; i < len(pods) && next == 0; i++ {
		if pods[i] > 0 {
			next = i
		}
	}
	if next == 0 {
		return 0, 0, time.Time{}
	}
	for i, there := range pods[:begun+1] {
		if there == 0 {
			continue
		}
		left += there
		if i == 0 || waves[i-1].Timeout == nil {
			return 0, 0, time.Time{}
		}
		if i == begun {
			if until = since.Add(waves[i-1].Timeout.Duration); now.Before(until) {
				return 0, 0, until
			}
		}
	}
	return next, left, time.Time{}
}

// BegunWave is the wave that a maintenance has begun last on a node.
type BegunWave struct {
	Name string
	// Since is when it began, to the second.
	Since time.Time
}

// BegunWaves are those of a node, by the name of the maintenance.
type BegunWaves map[string]BegunWave

// BegunWavesOf reads v1alpha1.MaintenanceWavesAnnotation of a node. What cannot be read is
// ignored: those waves begin again, which withdraws nothing.
func BegunWavesOf(node *corev1.Node) BegunWaves {
	annotation := node.Annotations[v1alpha1.MaintenanceWavesAnnotation]
	if annotation == "" {
		return nil
	}
	begun := BegunWaves{}
	for item := range strings.SplitSeq(annotation, ",") {
		maintenance, rest, _ := strings.Cut(item, "=")
		name, at, _ := strings.Cut(rest, "@")
		since, err := time.Parse(time.RFC3339, at)
		if maintenance != "" && name != "" && err == nil {
			begun[maintenance] = BegunWave{Name: name, Since: since}
		}
	}
	return begun
}

// String is the annotation's value.
func (w BegunWaves) String() string {
	items := make([]string, 0, len(w))
	for _, maintenance := range slices.Sorted(maps.Keys(w)) {
		items = append(items, maintenance+"="+w[maintenance].Name+"@"+w[maintenance].Since.UTC().Format(time.RFC3339))
	}
	return strings.Join(items, ",")
}
