package webhook

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// What an allowed eviction call may hit without its interceptors: the eviction API reads
// the pod after we have answered.
const (
	// hitSuccessor: another pod had the name by then.
	hitSuccessor = "successor"
	// hitStarted: the pod was Pending, and ran by then.
	hitStarted = "started"
)

// bypassWindow is how long after its answer a call may hit a pod. The whole request has
// at most 34 s (callers.md, section 4).
const bypassWindow = time.Minute

// evictionReason is the reason of the condition DisruptionTarget that the eviction API
// sets on what it deletes.
const evictionReason = "EvictionByEvictionAPI"

// letThrough is the pod that a call by name was allowed for.
type letThrough struct {
	uid    types.UID
	reason translate.Reason
}

// noteLetThrough remembers a call whose pod may be another one, or another phase of it,
// when the eviction API looks at it. Pods that run and nobody intercepts are not
// remembered.
func (h *EvictionHandler) noteLetThrough(in gathered, verdict translate.Verdict) {
	if verdict.Outcome != translate.Allow || !in.Call.byName() {
		return
	}
	switch verdict.Reason {
	case translate.ReasonPodNotFound, translate.ReasonPodTerminating, translate.ReasonPodTerminal, translate.ReasonPodPending,
		translate.ReasonImperativeStage, translate.ReasonActiveInterceptor:
	default:
		return
	}
	through := letThrough{reason: verdict.Reason}
	if in.Pod != nil {
		through.uid = in.Pod.UID
	}
	h.passed.Add(in.Call.Namespace+"/"+in.Call.Pod, through, bypassWindow)
}

// Bypassed counts, from the events of the pod informer, the pods that were evicted without
// their interceptors by a call that this replica allowed for another pod or phase.
func (h *EvictionHandler) Bypassed() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok := before.(*corev1.Pod)
			pod, ok2 := after.(*corev1.Pod)
			if ok && ok2 && was.DeletionTimestamp == nil && pod.DeletionTimestamp != nil {
				h.countBypassed(pod)
			}
		},
		DeleteFunc: func(obj any) {
			// One that was deleted without a grace period never had a deletionTimestamp.
			if pod, ok := obj.(*corev1.Pod); ok && pod.DeletionTimestamp == nil {
				h.countBypassed(pod)
			}
		},
	}
}

func (h *EvictionHandler) countBypassed(pod *corev1.Pod) {
	value, ok := h.passed.Get(pod.Namespace + "/" + pod.Name)
	if !ok || !evictedByAPI(pod) {
		return
	}
	var hit string
	switch through := value.(letThrough); {
	case through.uid != pod.UID:
		hit = hitSuccessor
	case through.reason == translate.ReasonPodPending && pod.Status.Phase == corev1.PodRunning:
		hit = hitStarted
	default:
		return
	}
	if names, err := whoIntercepts(h.Resolver, pod); err != nil || len(names) == 0 {
		return
	}
	request, err := h.request(context.Background(), h.Cached, pod, client.UnsafeDisableDeepCopy)
	if err != nil || request != nil && turnOfEvictor(request) {
		return
	}
	h.Metrics.Bypassed(hit)
	h.Log.Info("A call that was let through evicted a pod without its interceptors", "namespace", pod.Namespace, "pod", pod.Name, "uid", pod.UID, "hit", hit)
}

// turnOfEvictor reports whether the interceptors of the request are done.
func turnOfEvictor(request *v1alpha1.EvictionRequest) bool {
	n := len(request.Status.TargetInterceptors)
	return n > 0 && len(request.Status.ProcessedInterceptors) >= n-1
}

func evictedByAPI(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Status == corev1.ConditionTrue && c.Reason == evictionReason
		}
	}
	return false
}
