package surge

import (
	"math"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// revisionAnnotation numbers the revisions of a Deployment; the ReplicaSet that
	// has the Deployment's own is the current one (kubernetes:
	// pkg/controller/deployment/util/deployment_util.go, RevisionAnnotation).
	revisionAnnotation = "deployment.kubernetes.io/revision"
	// failedCreate and deadlineExceeded are reasons of conditions (the same file).
	failedCreate     = "FailedCreate"
	deadlineExceeded = "ProgressDeadlineExceeded"
	// defaultProgressDeadline is the API's default of progressDeadlineSeconds.
	defaultProgressDeadline = 600 * time.Second
)

// Policy has the constants of the interceptor.
type Policy struct {
	// ProgressDeadline is how long a replacement may take to become available. Zero
	// leaves it to the Deployment's progressDeadlineSeconds.
	ProgressDeadline time.Duration
	// ClusterLimit is how many pods of the cluster may be handed up at a time. Zero
	// means any number.
	ClusterLimit int
}

// input is everything that a decision depends on.
type input struct {
	now    time.Time
	policy Policy
	// live: pod, set and deployment were read from the API server. Only then, decisions
	// other than waiting are made.
	live bool
	// request is the UID of the EvictionRequest, activatedAt the begin of the turn.
	request     types.UID
	activatedAt time.Time

	// pod is nil if this pod is gone. If it comes from the cache, it has only what
	// package podcache keeps.
	pod *corev1.Pod
	// set is the ReplicaSet that the pod belongs to, or did before it was handed up;
	// deployment is the Deployment of both. Nil when there is none. If the ReplicaSet is
	// of another owner, it is treated like a Deployment itself: see owner.go.
	set        *appsv1.ReplicaSet
	deployment *appsv1.Deployment
	// sets are the UIDs of all ReplicaSets of the Deployment; replicas is how many
	// pods they want together.
	sets     []types.UID
	replicas int
	// above is the UID of the ReplicaSet's owner, and rival the name of another of its
	// ReplicaSets that wants pods. Both are empty if there is none, and for Deployments.
	above types.UID
	rival string
	// service is the name of a Service that the pod would leave if it lost its label;
	// empty if there is none, for Deployments, and unless live.
	service string
	// pods are those of these ReplicaSets, without handed-up ones. They are set only
	// after the pod itself was handed up: a pod that waits for its place must not cost
	// a list of all others whenever one of them changes.
	pods []corev1.Pod
	// volumes says what the pod's volumes allow.
	volumes volumes
	// occupied is how many others are handed up.
	occupied occupied
}

// occupied is how many other pods are handed up.
type occupied struct{ deployment, cluster int }

// wanted is how many replicas the Deployment wants.
func wanted(d *appsv1.Deployment) int { return int(ptr.Deref(d.Spec.Replicas, 1)) }

// maxSurge is how many pods the Deployment may have above that. Percentages are
// rounded up, as its controller does.
func maxSurge(d *appsv1.Deployment) int {
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0
	}
	value := ptr.Deref(d.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, wanted(d), true)
	if err != nil {
		return 0
	}
	return n
}

// deadline is how long a replacement may take to become available.
func (p Policy) deadline(d *appsv1.Deployment) time.Duration {
	seconds := ptr.Deref(d.Spec.ProgressDeadlineSeconds, math.MaxInt32)
	switch {
	case p.ProgressDeadline > 0:
		return p.ProgressDeadline
	case seconds == math.MaxInt32: // The API's value for none; a drain must still end.
		return defaultProgressDeadline
	default:
		return time.Duration(seconds) * time.Second
	}
}

// observed reports whether the Deployment's controller has observed the current spec.
// Before that, the current ReplicaSet is unknown.
func observed(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }

// current reports whether the Deployment wants its pods to be this ReplicaSet's.
func current(d *appsv1.Deployment, set *appsv1.ReplicaSet) bool {
	if d.UID == set.UID {
		return true // It is treated like a Deployment itself.
	}
	revision, err := strconv.ParseInt(d.Annotations[revisionAnnotation], 10, 64)
	if err != nil {
		return false
	}
	of, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
	return err == nil && of >= revision
}

// stuck reports whether the Deployment's rollout makes no progress.
func stuck(d *appsv1.Deployment) bool {
	if d.Spec.Paused {
		return true
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == deadlineExceeded {
			return true
		}
	}
	return false
}

// progressed is when the Deployment's rollout last made progress.
func progressed(d *appsv1.Deployment) time.Time {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return c.LastUpdateTime.Time
		}
	}
	return time.Time{}
}

// cannotCreate returns why the ReplicaSet cannot create pods, for example because
// a quota is used up; empty if it can.
func cannotCreate(set *appsv1.ReplicaSet) string {
	if set == nil {
		return ""
	}
	for _, c := range set.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue && c.Reason == failedCreate {
			return c.Message
		}
	}
	return ""
}

// available counts the Available pods of the Deployment's ReplicaSets: Ready for
// minReadySeconds. The Deployment's own count may still have the pod that was
// handed up. Next is when one that is Ready becomes Available; zero if none will.
func (in *input) available() (n int, next time.Time) {
	minReady := time.Duration(in.deployment.Spec.MinReadySeconds) * time.Second
	for i := range in.pods {
		pod := &in.pods[i]
		if ended(pod) || pod.UID == in.pod.UID {
			continue
		}
		ready := condition(pod, corev1.PodReady)
		if ready == nil || ready.Status != corev1.ConditionTrue {
			continue
		}
		at := ready.LastTransitionTime.Add(minReady)
		if minReady > 0 && in.now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		n++
	}
	return n, next
}

// unsettled reports whether the pod's ReplicaSet has more pods than it wants, including
// this one, or has just begun to remove one, so that budgets may not count it yet.
func (in *input) unsettled() bool {
	if in.set == nil {
		return false
	}
	have := 1 // The cache may not yet show that the pod was given back.
	for i := range in.pods {
		pod := &in.pods[i]
		controller := metav1.GetControllerOfNoCopy(pod)
		switch {
		case pod.UID == in.pod.UID || controller == nil || controller.UID != in.set.UID:
		case pod.DeletionTimestamp != nil:
			grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
			if in.now.Before(pod.DeletionTimestamp.Add(recheckSoon - grace)) {
				return true
			}
		case !pods.HasEnded(pod):
			have++
		}
	}
	return in.deployment != nil && have > int(ptr.Deref(in.set.Spec.Replicas, 1))
}

// obstacle says what keeps a replacement from being available, in the words of the
// scheduler or the kubelet; empty if unknown. Pods are compared by name, so that the
// same state gives the same text.
func (in *input) obstacle() string {
	var name, text string
	for i := range in.pods {
		pod := &in.pods[i]
		if ended(pod) || pod.UID == in.pod.UID || name != "" && pod.Name > name {
			continue
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.ContainersReady, corev1.PodReady} {
			if c := condition(pod, kind); c != nil && c.Status == corev1.ConditionFalse && c.Message != "" {
				name, text = pod.Name, c.Message
				break
			}
		}
	}
	return text
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// ended reports whether nothing is left of the pod to protect.
func ended(pod *corev1.Pod) bool {
	return pod == nil || pod.DeletionTimestamp != nil || pods.HasEnded(pod)
}

// notReadySince is since when the pod is not Ready; zero if it is.
func notReadySince(pod *corev1.Pod) time.Time {
	ready := condition(pod, corev1.PodReady)
	switch {
	case ready == nil:
		return pod.CreationTimestamp.Time
	case ready.Status == corev1.ConditionTrue:
		return time.Time{}
	default:
		return latest(ready.LastTransitionTime, pod.CreationTimestamp)
	}
}

func latest(a, b metav1.Time) time.Time {
	if a.Time.Before(b.Time) {
		return b.Time
	}
	return a.Time
}
