package forecast

import (
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// samples are durations that were measured. They are sorted.
type samples []time.Duration

// quantile is 0 without samples.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// draw returns one that is greater than after.
func (s samples) draw(r *rand.Rand, after time.Duration) time.Duration {
	from, _ := slices.BinarySearch(s, after+1)
	n := r.IntN(1 << 30) // One number, whatever is left: other pods have the same luck.
	if from >= len(s) {
		return after // It takes longer than ever before, so it may end any time.
	}
	return s[from+n%(len(s)-from)]
}

// history is what was measured on the cluster.
type history struct {
	turns       map[string]samples
	notFinished map[string]int
	// startups by owner, and of the pods of all owners.
	startups   map[types.UID]samples
	anyStartup samples
	// terminations by namespace, and of all.
	terminations   map[string]samples
	anyTermination samples
}

// historyOf measures the turns of the kept requests and the startups of the pods.
func historyOf(requests []*v1alpha1.EvictionRequest, pods []*corev1.Pod) *history {
	h := &history{turns: map[string]samples{}, notFinished: map[string]int{}, startups: map[types.UID]samples{}, terminations: map[string]samples{}}
	for _, er := range requests {
		h.addRequest(er)
	}
	for _, pod := range pods {
		h.addPod(pod)
	}
	for _, m := range []map[string]samples{h.turns, h.terminations} {
		for _, s := range m {
			slices.Sort(s)
		}
	}
	for _, s := range h.startups {
		slices.Sort(s)
	}
	slices.Sort(h.anyStartup)
	slices.Sort(h.anyTermination)
	return h
}

// addRequest measures each turn from the end of the one before. So it has all of what a drain
// waits for: also the time until the interceptor notices.
func (h *history) addRequest(er *v1alpha1.EvictionRequest) {
	began := er.CreationTimestamp.Time
	known := !began.IsZero()
	for _, target := range er.Status.TargetInterceptors {
		report := v1alpha1.ReportOf(er, target.Name)
		if target.Name == v1alpha1.ImperativeEvictionInterceptor {
			if known {
				h.addTermination(er, &report, began)
			}
			return
		}
		processed := slices.Contains(er.Status.ProcessedInterceptors, target.Name)
		switch {
		case report.CompletionTime != nil && report.SkippedBy == "":
			if d := report.CompletionTime.Sub(began); known && d >= 0 {
				h.turns[target.Name] = append(h.turns[target.Name], d)
			}
		case report.CompletionTime != nil, processed:
			h.notFinished[target.Name]++
		}
		known = report.CompletionTime != nil
		if known {
			began = report.CompletionTime.Time
		}
	}
}

// addTermination measures an eviction that nothing refused, until the pod was gone.
func (h *history) addTermination(er *v1alpha1.EvictionRequest, report *v1alpha1.InterceptorStatus, began time.Time) {
	evicted := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionEvicted)
	if evicted == nil || evicted.Status != metav1.ConditionTrue || report.Retries > 0 || report.Refusal != nil {
		return
	}
	if d := evicted.LastTransitionTime.Sub(began); d >= 0 {
		h.terminations[er.Namespace] = append(h.terminations[er.Namespace], d)
		h.anyTermination = append(h.anyTermination, d)
	}
}

// addPod measures from the pod's creation until it was ready. A pod that was restarted became
// ready again, which says nothing.
func (h *history) addPod(pod *corev1.Pod) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || pod.CreationTimestamp.IsZero() {
		return
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.RestartCount > 0 {
			return
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodReady || c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() {
			continue
		}
		if d := c.LastTransitionTime.Sub(pod.CreationTimestamp.Time); d >= 0 {
			h.startups[owner.UID] = append(h.startups[owner.UID], d)
			h.anyStartup = append(h.anyStartup, d)
		}
	}
}

// startup is that of pods like those of the owner.
func (h *history) startup(owner types.UID) samples {
	if s := h.startups[owner]; len(s) > 0 {
		return s
	}
	return h.anyStartup
}

// enough is how many samples of a namespace are better than all those of the cluster.
const enough = 3

func (h *history) termination(namespace string) samples {
	if s := h.terminations[namespace]; len(s) >= enough {
		return s
	}
	return h.anyTermination
}
