package webhook

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// Gate answers for the guard of pods, from memory. *guard.Gate is one.
type Gate interface {
	// Labels reports whether there are guards that open and close. If not, none is ever
	// closed, but pods may still be held.
	Labels() bool
	// Closed reports whether the guard of the pod is closed, as far as the pod shows.
	Closed(pod *corev1.Pod) bool
	// Held reports whether it must stay closed after all interceptors are done.
	Held(pod *corev1.Pod) bool
}

// GuardView is what is known about the guard of an Input's pod.
type GuardView struct {
	// On: there are guards that open and close.
	On bool
	// Closed: the pod has the label that the guard's budget selects.
	Closed bool
	// Held: it must stay closed after all interceptors are done.
	Held bool
}

// viewGuard asks the gate about a pod, which is nil if there is none.
func viewGuard(gate Gate, pod *corev1.Pod) GuardView {
	if pod == nil {
		return GuardView{On: gate.Labels()}
	}
	return GuardView{On: gate.Labels(), Closed: gate.Closed(pod), Held: gate.Held(pod)}
}

// behindGuard denies a call that would reach the pod's budgets while its guard is
// closed. The guard's own budget would refuse it anyway, with another text; together
// with a second budget the API server would answer 500, which ends a drain; and a held
// pod may have only another budget.
//
// The guard is read live if its label may have just changed: for our own calls, whose
// refusal costs a pause, and before a call about an intercepted pod is allowed.
func behindGuard(in *Input, d Decision) Decision {
	g := in.GuardView
	if d.Need != NeedNothing || d.Verdict.Outcome != translate.Allow || !meetsBudgets(d.Verdict.Reason) {
		return d
	}
	blocked := g.Closed || g.Held && in.intercepted()
	if g.On && in.PodSource != Live && in.guardIsMoving(d.Verdict.Reason) && (!blocked || in.Own) {
		return Decision{Need: NeedLivePod}
	}
	if blocked {
		// The action stays: a caller that still calls is, or becomes, a requester.
		d.Verdict = translate.GuardClosed(in.subject())
	}
	return d
}

// meetsBudgets reports whether the API server checks budgets after we have allowed a
// call for this reason (kubernetes: pkg/registry/core/pod/storage/eviction.go,
// canIgnorePDB).
func meetsBudgets(reason translate.Reason) bool {
	switch reason {
	case translate.ReasonPodNotFound, translate.ReasonPreconditionFailed, translate.ReasonPodTerminating,
		translate.ReasonPodTerminal, translate.ReasonPodPending, translate.ReasonDryRun:
		return false
	default:
		return true
	}
}

// guardIsMoving reports whether the guard has just had a reason to open: it was
// the turn of others before.
func (in *Input) guardIsMoving(reason translate.Reason) bool {
	if in.Request == nil || reason == translate.ReasonNoInterceptors {
		return false
	}
	return slices.ContainsFunc(in.Request.Status.TargetInterceptors, func(i v1alpha1.Interceptor) bool {
		return i.Name != v1alpha1.ImperativeEvictionInterceptor
	})
}
