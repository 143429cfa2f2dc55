package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

func podIsMissing(in *Input) (Decision, bool) {
	switch {
	case in.Pod != nil:
		return nothing()
	case in.PodSource != Live:
		return need(NeedLivePod)
	default:
		return podHasLeft(in)
	}
}

// preconditionFails answers as the registry would, if it came to that: it looks at the
// budgets first, and the guard's refuses for as long as the pod is there. A cached pod
// proves nothing here: the right one may not have reached us yet.
func preconditionFails(in *Input) (Decision, bool) {
	switch {
	case in.Call.meets(in.Pod):
		return nothing()
	case in.PodSource != Live && !in.Stale:
		return need(NeedLivePod)
	case in.Call.UID != "" && in.Call.UID != in.Pod.UID:
		return say(translate.OtherPod(in.subject()))
	default:
		return say(translate.PodChanged(in.subject()))
	}
}

// podIsEnding allows calls for a pod that is terminating or gone, even during a request:
// kubectl drain evicts terminating pods, too, and waits only for what it could evict
// (callers.md, section 3).
//
// A pod whose successor gets its name is not allowed while its request runs, as in the
// imperative stage: the successor may already run before the registry looks the name up. A
// call by name gets a 404, or an answer about the successor, the next time.
func podIsEnding(in *Input) (Decision, bool) {
	switch {
	case in.Pod.DeletionTimestamp != nil && in.Request != nil && len(in.Request.Status.ActiveInterceptors) > 0 && in.mayBypass():
		return say(stateVerdict(in.subject(), in.Pod, in.Request))
	case in.Pod.DeletionTimestamp != nil:
		return in.allowLast(translate.ReasonPodTerminating)
	case pods.HasEnded(in.Pod):
		return in.allowLast(translate.ReasonPodTerminal)
	default:
		return nothing()
	}
}

// requestDecides answers from the request for this pod. Nothing is resolved
// again: the plan was frozen when the request began.
func requestDecides(in *Input) (Decision, bool) {
	er := in.Request
	switch {
	case er == nil && in.Written.Request != "":
		return say(in.accepted()) // Written a moment ago, not in the cache yet.
	case er == nil:
		return nothing()
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted):
		return afterEvicted(in)
	case er.DeletionTimestamp != nil:
		return whileHeld(in)
	case meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionCanceled):
		return afterCancel(in)
	case v1alpha1.IsUnwanted(er):
		return say(translate.Restarting(in.subject())) // About to be canceled, for good (ruling R3).
	case slices.Contains(er.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor):
		return imperativeStage(in)
	case in.hasTurn():
		return interceptorsTurn(in)
	case in.Own && in.RequestSource != Live:
		return need(NeedLiveRequest) // This replica may lag behind the evictor.
	case in.Own:
		return say(translate.Trouble(in.subject(), translate.ReasonOwnCall))
	default:
		return whileRunning(in)
	}
}

// whileHeld is about a request that is being deleted. No new request can have its name
// until the finalizers are gone, so the interceptors cannot be asked; a pod without any is
// treated as one without a request.
func whileHeld(in *Input) (Decision, bool) {
	er := in.Request
	switch {
	case len(in.Interceptors) == 0 && len(er.Status.TargetInterceptors) <= 1:
		return in.allowSeen(translate.ReasonNoInterceptors)
	case len(er.Finalizers) == 0:
		return say(translate.Restarting(in.subject()))
	default:
		return say(translate.Held(in.subject(), er.Finalizers[0]))
	}
}

// allowStage allows a call because of the request's state. A call by name needs a live
// read: the pod may have left since, and its replacement may have the name. One with a UID
// cannot hit the wrong pod.
func (in *Input) allowStage(reason translate.Reason) (Decision, bool) {
	if in.Call.UID == "" {
		return in.allowSeen(reason)
	}
	return in.allow(reason)
}

// imperativeStage passes calls on to the budgets. A budget may refuse for a long time, and
// the request must not be canceled while a caller still calls, only to begin again with the
// first interceptor. So the caller becomes and stays a requester here, too, if there is
// room.
func imperativeStage(in *Input) (Decision, bool) {
	if in.mayBypass() || in.Native.Responder != "" {
		return whileRunning(in) // The evictor evicts it, with the UID.
	}
	decision, ok := in.allowStage(translate.ReasonImperativeStage)
	if !in.Own && !in.onlyActs() && !in.isEvictorsTurn() && decision.Need == NeedNothing && !in.joined() && in.roomForEntry() {
		decision.Action = ActApply
	}
	return decision, ok
}

// mayBypass reports whether an allowed call could evict an intercepted pod that it was not
// meant for. The registry looks the name up again after we have answered, half a second
// later if the budget was written meanwhile, and by then the evictor may have moved the pod
// and its successor may have the name, with its interceptors before it. A live read cannot
// rule that out.
func (in *Input) mayBypass() bool {
	return in.Call.byName() && keepsName(in.Pod) && len(in.Request.Status.TargetInterceptors) > 1
}

// keepsName reports whether the successor of the pod gets its name.
func keepsName(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && !slices.Contains(newNames, owner.Kind)
}

// newNames are the kinds of controllers whose pods never get the name of one before.
// Others, such as StatefulSets, are assumed to reuse names.
var newNames = []string{"ReplicaSet", "ReplicationController", "Job", "DaemonSet"}

// afterEvicted believes that a pod was evicted if it is gone, or ends, which the checks
// before see. If a pod with that UID is seen running, it is untrue, no matter who wrote it:
// then the request counts as none, and is replaced.
func afterEvicted(in *Input) (Decision, bool) {
	switch {
	case in.PodSource != Live:
		return need(NeedLivePod)
	case in.Request.DeletionTimestamp != nil:
		return whileHeld(in)
	case in.Written.Request != "" && in.Written.Request != in.Request.UID:
		return say(in.accepted())
	default:
		return nothing()
	}
}

// afterCancel treats a canceled request as none, with two exceptions.
func afterCancel(in *Input) (Decision, bool) {
	er := in.Request
	if in.Written.Request != "" && in.Written.Request != er.UID {
		// The new one is written already; the cache still shows the old one.
		return say(in.accepted())
	}
	canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
	target := er.Spec.Target.Pod
	grouped := in.Pod.Spec.SchedulingGroup != nil || in.GroupsHidden
	if canceled.Reason == v1alpha1.ReasonValidationFailed && target != nil && target.Name == in.Pod.Name && grouped {
		// The controller looked at this very pod and refused it, because it belongs to a
		// group. It would refuse a second request as well, so interceptors will never run,
		// and a drain must not wait forever. If the pod exists and is in no group, that is
		// untrue, no matter who wrote it.
		return in.allowSeen(translate.ReasonRequestRefused)
	}
	return nothing()
}

// whileRunning denies, and ensures that the caller is a requester, unless it is an
// interceptor of the pod outside of its turn.
func whileRunning(in *Input) (Decision, bool) {
	verdict := stateVerdict(in.subject(), in.Pod, in.Request)
	if n := in.Native; n.Responder != "" && slices.ContainsFunc(in.Request.Status.ActiveInterceptors, isOutside) {
		if n.Total == 0 { // Its responders are not known yet.
			n.Position, n.Total = 1, len(in.Request.Status.TargetInterceptors)
		}
		verdict = translate.Waiting(in.subject(), n.Responder, n.Position, n.Total)
	}
	if in.Stalled != "" {
		verdict = translate.Stalled(in.subject(), in.Request.Status.ActiveInterceptors[0], in.Stalled)
	}
	if in.joined() || in.onlyActs() || in.isEvictorsTurn() {
		return say(verdict)
	}
	if !in.roomForEntry() {
		return say(translate.TooManyRequesters(in.subject()))
	}
	return Decision{Action: ActApply, Verdict: verdict}, true
}

// isOutside reports whether it is the pod's native Eviction that an interceptor of that name
// waits for.
func isOutside(interceptor string) bool {
	return interceptor == v1alpha1.NativeInterceptor || interceptor == v1alpha1.ImperativeEvictionInterceptor
}

func (in *Input) isEntry(r v1alpha1.Requester) bool { return r.Name == in.Call.Caller.Requester }

// roomForEntry reports whether the request has the caller's entry or can take it.
func (in *Input) roomForEntry() bool {
	requesters := in.Request.Spec.Requesters
	return len(requesters) < v1alpha1.MaxRequesters || slices.ContainsFunc(requesters, in.isEntry)
}

// joined reports whether the request already says all that the caller wants.
func (in *Input) joined() bool {
	grace := in.Call.GracePeriodSeconds
	if in.Written.Request == in.Request.UID && in.LeaseAlive && in.covers(in.Written.GracePeriodSeconds, grace) {
		return true
	}
	i := slices.IndexFunc(in.Request.Spec.Requesters, in.isEntry)
	if i < 0 {
		return false
	}
	entry := in.Request.Spec.Requesters[i]
	if entry.LeaseName == "" {
		return in.covers(entry.GracePeriodSeconds, grace) // A native requester of that name; it never expires.
	}
	return entry.LeaseName == in.LeaseName && in.LeaseAlive && in.covers(entry.GracePeriodSeconds, grace)
}

// covers reports whether a grace period already given is as long as the one
// wanted. Nil stands for the pod's own.
func (in *Input) covers(given, wanted *int64) bool {
	return translate.CoversGrace(translate.OwnGrace(in.Pod), given, wanted)
}

// stateVerdict is the denial that a running request's state stands for.
func stateVerdict(about translate.Subject, pod *corev1.Pod, er *v1alpha1.EvictionRequest) translate.Verdict {
	if pod.DeletionTimestamp != nil {
		return translate.Ending(about, pod.Finalizers)
	}
	if len(er.Status.ActiveInterceptors) == 0 {
		return translate.Accepted(about)
	}
	active := er.Status.ActiveInterceptors[0]
	if active == v1alpha1.ImperativeEvictionInterceptor {
		return translate.LastStage(about, v1alpha1.ReportOf(er, active), len(er.Status.TargetInterceptors))
	}
	position := slices.IndexFunc(er.Status.TargetInterceptors, func(t v1alpha1.Interceptor) bool { return t.Name == active }) + 1
	return translate.Waiting(about, active, position, len(er.Status.TargetInterceptors))
}

// accepted is the denial for a request that is only known from our own write.
func (in *Input) accepted() translate.Verdict {
	about := in.subject()
	about.Request = string(in.Pod.UID)
	return translate.Accepted(about)
}

func nobodyIntercepts(in *Input) (Decision, bool) {
	if len(in.Interceptors) > 0 {
		return nothing()
	}
	return in.allow(translate.ReasonNoInterceptors)
}

// podIsNotSupported allows calls for pods that no request may evict: DaemonSet and mirror
// pods (ruling R13), and members of a group (statement 53). None of this changes during a
// pod's life, so no live read is needed.
func podIsNotSupported(in *Input) (Decision, bool) {
	if pods.IsOfDaemonSet(in.Pod) {
		return in.allow(translate.ReasonDaemonSetPod)
	}
	if pods.IsMirror(in.Pod) {
		return in.allow(translate.ReasonMirrorPod)
	}
	if in.Pod.Spec.SchedulingGroup != nil {
		return in.allow(translate.ReasonGroupPod)
	}
	return nothing()
}

func podIsPending(in *Input) (Decision, bool) {
	if in.Pod.Status.Phase != corev1.PodPending {
		return nothing()
	}
	if in.GuardView.Held && in.intercepted() {
		// Budgets do not apply to a pending pod, so only this answer protects it: the
		// target of a migration that another drain waits for.
		return say(translate.GuardClosed(in.subject()))
	}
	return in.allowSeen(translate.ReasonPodPending)
}

func callIsOwn(in *Input) (Decision, bool) {
	switch {
	case !in.Own:
		return nothing()
	case in.RequestSource != Live:
		return need(NeedLiveRequest)
	default:
		return say(translate.Trouble(in.subject(), translate.ReasonOwnCall))
	}
}

func interceptorsAreAsked(in *Input) (Decision, bool) {
	if in.isEvictorsTurn() {
		return say(in.accepted())
	}
	if in.Request != nil {
		return Decision{Action: ActRestart, Verdict: in.accepted()}, true
	}
	return Decision{Action: ActApply, Verdict: in.accepted()}, true
}
