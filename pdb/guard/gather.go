package guard

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// gather collects what is known about a pod, from memory only.
//
//	pod -- request (by the pod's UID) -- its plan \
//	   \-- who would intercept it now ------------ registrations -- budgets of others
func (c *Controller) gather(ctx context.Context, pod *corev1.Pod) (Input, error) {
	in := Input{
		Served:      !slices.Contains(c.ExcludedNamespaces, pod.Namespace),
		Deleting:    pod.DeletionTimestamp != nil,
		Terminal:    pods.HasEnded(pod),
		Unsupported: unsupported(pod),
		Closed:      labeled(pod),
		Bound:       c.owners.bound(pod),
	}
	if !in.Served || in.Deleting || in.Terminal || in.Unsupported {
		return in, nil
	}
	er := &v1alpha1.EvictionRequest{}
	err := c.Client.Get(ctx, v1alpha1.RequestKey(pod), er, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		er = nil
	case err != nil:
		return in, fmt.Errorf("get EvictionRequest: %w", err)
	}
	if er != nil {
		in.Request = er.UID
	}
	stage := stageOf(er, pod.UID)
	in.Stage = stage
	names, err := c.Resolver.Resolve(pod)
	in.Unknown = err != nil
	names = append(planned(er, stage), names...)
	if len(names) == 0 {
		return in, nil
	}
	if in.Stage, err = c.withNative(ctx, pod, er, stage); err != nil {
		return in, err
	}
	turn := whoseTurn(er, stage, names)
	for _, name := range names {
		in.Interceptors = append(in.Interceptors, c.interceptor(pod, name, name == turn))
	}
	in.Hold, in.Held = c.Holds.Held(pod)
	if in.Stage == StageNone && in.state().Closes() {
		in.Spared, in.Unsure = c.spared(ctx, pod, names)
	}
	if in.state().Closes() {
		in.OtherBudgets, err = c.otherBudgets(ctx, pod)
	}
	return in, err
}

// interceptor is what the guard needs to know about an interceptor of a pod. A name without
// a registration is from an annotation, or its registration was deleted.
func (c *Controller) interceptor(pod *corev1.Pod, name string, active bool) Interceptor {
	registration, ok := c.Registrations.RegistrationOf(name, pod)
	if !ok {
		return Interceptor{}
	}
	return Interceptor{
		Guard:    registration.Guard,
		Evicting: active && registration.Evicts,
	}
}

// whoseTurn is the interceptor that is active or about to be: closing the guard just
// before an interceptor that evicts would waste two writes.
func whoseTurn(er *v1alpha1.EvictionRequest, stage Stage, names []string) string {
	switch {
	case stage != StageEvacuating:
		return ""
	case len(er.Status.ActiveInterceptors) > 0:
		return er.Status.ActiveInterceptors[0]
	case len(er.Status.ProcessedInterceptors) == 0:
		return names[0]
	default:
		return ""
	}
}

// spared reports whether all interceptors allow a first call, and whether one of them
// is undecided, which is no reason to open.
func (c *Controller) spared(ctx context.Context, pod *corev1.Pod, names []string) (spared, unsure bool) {
	for _, name := range names {
		ask := c.Preflights(name)
		if ask == nil {
			return false, false
		}
		verdict, err := ask.Preflight(ctx, pod)
		if err != nil || verdict.Outcome != preflight.Allow {
			return false, err != nil
		}
	}
	return true, false
}

// otherBudgets returns the names of the budgets of others that select the pod, sorted.
// Budgets that do so only when the guard is closed, or only when it is open, are
// excluded: the guard would flap. They are reported, see budgetChanged.
func (c *Controller) otherBudgets(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	list := &policyv1.PodDisruptionBudgetList{}
	if err := c.Client.List(ctx, list, client.InNamespace(pod.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list budgets: %w", err)
	}
	var names []string
	for i := range list.Items {
		pdb := &list.Items[i]
		if !isGuard(pdb) && selects(pdb, pod) {
			names = append(names, pdb.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// selects reports whether the eviction API counts the pod to the budget, whether its
// guard is closed or open. It skips a budget whose selector it cannot read
// (eviction.go, getPodDisruptionBudgets).
func selects(pdb *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	if pdb.Spec.Selector == nil {
		return false
	}
	// Most budgets end here, and parsing a selector costs a hundred times as much.
	for key, value := range pdb.Spec.Selector.MatchLabels {
		if key != v1alpha1.GuardLabel && pod.Labels[key] != value {
			return false
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	return !mentions(selector) || selector.Matches(moved(pod))
}

// selectsByGuard reports whether a budget's selection depends on the guard's label.
func selectsByGuard(pdb *policyv1.PodDisruptionBudget) bool {
	if pdb.Spec.Selector == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	return err == nil && mentions(selector)
}

// withNative is the stage of a pod whose request has the given one: its native Eviction, too, has
// to wait for nobody before an eviction may pass.
func (c *Controller) withNative(ctx context.Context, pod *corev1.Pod, er *v1alpha1.EvictionRequest, stage Stage) (Stage, error) {
	switch stage {
	case StageNone:
		er = nil // None that runs.
	case StageImperative:
	default:
		return stage, nil
	}
	runs, last, err := c.Native.Stage(ctx, v1alpha1.RequestKey(pod), er)
	switch {
	case err != nil:
		return stage, fmt.Errorf("look up the native Eviction: %w", err)
	case runs && !last:
		return StageEvacuating, nil
	case runs:
		return StageImperative, nil
	default:
		return stage, nil
	}
}

// stageOf is the stage of the eviction of the pod with that UID. The request may be
// nil.
func stageOf(er *v1alpha1.EvictionRequest, pod types.UID) Stage {
	if er == nil || er.DeletionTimestamp != nil || er.Spec.Target.Pod == nil || er.Spec.Target.Pod.UID != pod {
		return StageNone
	}
	if meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted) {
		return StageOver
	}
	if canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled); canceled != nil && canceled.Status == metav1.ConditionTrue {
		if canceled.Reason == v1alpha1.ReasonValidationFailed {
			return StageOver
		}
		return StageNone
	}
	if slices.Contains(er.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor) {
		return StageImperative
	}
	return StageEvacuating
}

// planned are the interceptors of the plan of a request that runs.
func planned(er *v1alpha1.EvictionRequest, stage Stage) []string {
	if stage != StageEvacuating && stage != StageImperative {
		return nil
	}
	var names []string
	for _, i := range er.Status.TargetInterceptors {
		if i.Name != v1alpha1.ImperativeEvictionInterceptor {
			names = append(names, i.Name)
		}
	}
	return names
}

// unsupported reports whether no request can evict the pod: it belongs to a DaemonSet
// or mirrors a static pod (ruling R13), or is a member of a group (statement 53). The
// webhook allows their evictions.
func unsupported(pod *corev1.Pod) bool {
	return pods.StaysOnNode(pod) || pod.Spec.SchedulingGroup != nil
}
