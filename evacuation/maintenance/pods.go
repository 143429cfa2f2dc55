package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// reconcilePod gathers, decides and applies for one pod.
func (c *Controller) reconcilePod(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	pod, in, err := c.seePod(ctx, req.NamespacedName)
	if pod == nil || err != nil {
		return reconcile.Result{}, err
	}
	d := PodStep(in)
	c.countPod(pod, in.Daemon, d)
	result := reconcile.Result{}
	if !d.WakeAt.IsZero() {
		result.RequeueAfter = max(d.WakeAt.Sub(in.Now), time.Millisecond)
	}
	err = c.applyPod(ctx, pod, d)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: staleDelay}, nil // The cache will show what is newer.
	}
	return result, err
}

// seePod reads a pod from the cache, nil if it is gone, with what is known about it.
func (c *Controller) seePod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, PodInput, error) {
	pod := &corev1.Pod{}
	if err := c.Client.Get(ctx, key, pod); apierrors.IsNotFound(err) {
		return nil, PodInput{}, nil
	} else if err != nil {
		return nil, PodInput{}, fmt.Errorf("get pod: %w", err)
	}
	in, err := c.gatherPod(ctx, pod)
	return pod, in, err
}

// gatherPod collects what is known about a pod, from memory only, but for the tolerations of a
// pod of a DaemonSet.
//
//	pod -- its node -- the maintenances that drain it
//	   \-- its request (by the pod's UID) -- if none runs, who would intercept it
func (c *Controller) gatherPod(ctx context.Context, pod *corev1.Pod) (PodInput, error) {
	in := PodInput{
		Skipped:   pods.StaysOnNode(pod),
		Terminal:  pods.HasEnded(pod),
		Request:   condition(pod, v1alpha1.PodEvacuationRequest, v1alpha1.PodReasonNodeMaintenance),
		Initiated: condition(pod, v1alpha1.PodEvacuationInitiated, v1alpha1.PodReasonInterceptorStarted),
		Failure:   c.failures.whyNoEviction(pod.UID),
		Policy:    c.Policy,
		Now:       c.Clock.Now(),

		AskedInVain: c.failures.conditionRefusedAt(pod.UID),
	}
	if pod.DeletionTimestamp != nil {
		in.Deleting, in.DeletionTime = true, pod.DeletionTimestamp.Time
	}
	er := &v1alpha1.EvictionRequest{}
	err := c.Client.Get(ctx, v1alpha1.RequestKey(pod), er, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		in.Eviction, in.Joined = evictionOf(er), maintenancesIn(er)
	case !apierrors.IsNotFound(err):
		return in, fmt.Errorf("get EvictionRequest: %w", err)
	}
	if in.Skipped {
		in.Daemon, in.Kept, err = c.daemonOf(ctx, pod)
		return in, err
	}
	if in.Wants, in.Kept, err = c.wantsOf(ctx, pod); err != nil || len(in.Wants) == 0 {
		return in, err
	}
	if in.Eviction != nil && in.Eviction.State != v1alpha1.StateCanceled {
		return in, nil // The request says how the pod is evicted; a canceled one says nothing.
	}
	names, err := c.Resolver.Resolve(pod)
	if err != nil {
		return in, fmt.Errorf("resolve the interceptors of pod %s: %w", pod.Name, err)
	}
	in.Intercepted = len(names) > 0
	return in, nil
}

// wantsOf returns what the maintenances that drain the pod's node want, and why some of
// them keep the pod.
func (c *Controller) wantsOf(ctx context.Context, pod *corev1.Pod) ([]Want, *Block, error) {
	node, maintenances, err := c.drainersOf(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	var wants []Want
	var kept *Block
	for _, m := range maintenances {
		if keeps := keptBy(pod, m); keeps != nil {
			kept = keeps
			continue
		}
		later, err := c.waits(ctx, m, node, pod)
		if err != nil {
			return nil, nil, err
		}
		wants = append(wants, Want{Requester: m.RequesterName(), Message: m.Spec.Reason, Later: later})
	}
	slices.SortFunc(wants, func(a, b Want) int { return strings.Compare(a.Requester, b.Requester) })
	return wants, kept, nil
}

// drainersOf are the maintenances that drain the pod's node, and the node; nil if there is none.
func (c *Controller) drainersOf(ctx context.Context, pod *corev1.Pod) (*corev1.Node, []*v1alpha1.NodeMaintenance, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil, nil
	}
	node := &corev1.Node{}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	var found []*v1alpha1.NodeMaintenance
	for _, name := range stagesOf(node).drains() {
		m, err := c.get(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		if m != nil && m.DeletionTimestamp == nil && m.Spec.Drain && c.selectors.of(m).selects(node) {
			found = append(found, m)
		}
	}
	return node, found, nil
}

// keptBy is why the maintenance keeps the pod, nil if it does not.
func keptBy(pod *corev1.Pod, m *v1alpha1.NodeMaintenance) *Block {
	switch reason := m.Keeps(pod); reason {
	case v1alpha1.BlockEmptyDirData:
		return &Block{reason, "it has emptyDir volumes, whose data would be lost, and spec.emptyDirPods of NodeMaintenance " + m.Name + " is Keep"}
	case v1alpha1.BlockUnmanagedPod:
		return &Block{reason, "no controller would make it again, and spec.unmanagedPods of NodeMaintenance " + m.Name + " is Keep"}
	default:
		return nil
	}
}

// condition is a condition of the pod, nil if it is missing. Ours have that reason.
func condition(pod *corev1.Pod, kind corev1.PodConditionType, ours string) *Condition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return &Condition{
				True: c.Status == corev1.ConditionTrue, Ours: c.Reason == ours, Message: c.Message,
				Since: c.LastTransitionTime.Time, Probed: c.LastProbeTime.Time,
			}
		}
	}
	return nil
}

// reportOverdue is when a report is overdue of an interceptor that has to report as often as the API
// lets it, once a minute.
const reportOverdue = 90 * time.Second

// evictionOf returns what a decision needs to know about a request.
func evictionOf(er *v1alpha1.EvictionRequest) *Eviction {
	u := requester.Observe(er)
	e := &Eviction{State: u.State, Interceptor: u.Interceptor, Message: u.Message}
	canceled := meta.FindStatusCondition(er.Status.Conditions, v1alpha1.ConditionCanceled)
	e.Refused = canceled != nil && canceled.Status == metav1.ConditionTrue && canceled.Reason == v1alpha1.ReasonValidationFailed
	if u.Interceptor == "" {
		return e
	}
	if er.Status.ActivationTime != nil {
		e.LastHeard = er.Status.ActivationTime.Time
	}
	report := v1alpha1.ReportOf(er, u.Interceptor)
	if deadline := v1alpha1.HeartbeatDeadlineOf(er, u.Interceptor); deadline > 0 {
		e.SilentAfter = max(reportOverdue, deadline/2)
	}
	e.Never = report.Refusal != nil && report.Refusal.Reason == events.ReasonBudgetNeverAllows
	e.Started = report.StartTime != nil && u.State == v1alpha1.StateIntercepting
	if report.HeartbeatTime != nil && report.HeartbeatTime.After(e.LastHeard) {
		e.LastHeard = report.HeartbeatTime.Time
	}
	return e
}

// maintenancesIn are the requesters of maintenances in a request, sorted.
func maintenancesIn(er *v1alpha1.EvictionRequest) []string {
	var names []string
	for _, r := range er.Spec.Requesters {
		if isMaintenance(r.Name) {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

func isMaintenance(requester string) bool {
	return strings.HasSuffix(requester, "."+v1alpha1.MaintenanceRequesterSuffix)
}

// countPod counts the pod; daemon is nil if it is not one.
func (c *Controller) countPod(pod *corev1.Pod, daemon *Daemon, d PodDecision) {
	key := client.ObjectKeyFromObject(pod)
	var takers []string
	if daemon != nil {
		takers = daemon.Takers
	}
	var changed bool
	if d.Class == ClassNone {
		drains := c.counts.drop(pod.Spec.NodeName, key, pod.UID)
		changed = len(drains) > 0
		if pods.HasEnded(pod) {
			for _, name := range drains {
				c.counts.left(name, pod.Spec.NodeName) // Only its object remains.
			}
		}
	} else {
		changed = c.counts.put(pod.Spec.NodeName, key, pod.UID, countedPod{
			class: d.Class, block: d.Block, until: d.OwnerUntil, deleting: pod.DeletionTimestamp != nil, takers: takers,
		})
	}
	if changed {
		c.planLater(pod.Spec.NodeName)
	}
}

// planLater enqueues the maintenances that drain the node.
func (c *Controller) planLater(node string) {
	for _, name := range c.counts.drains(node) {
		c.plans.AddAfter(named(name), planDelay)
	}
}

// applyPod applies a decision: first the conditions for the pod's owner, then the
// request, or the wish to evict a pod that gets none.
func (c *Controller) applyPod(ctx context.Context, pod *corev1.Pod, d PodDecision) error {
	// A condition that is refused for good must not keep the pod from being evicted.
	conditions := c.patchConditions(ctx, pod, d)
	_, refusal := refused.Of(conditions)
	if conditions != nil && !refusal {
		return conditions
	}
	c.failures.condition(pod.UID, refusal, c.Clock.Now())
	ctx = refused.About(ctx, refused.Pod(pod))
	for _, requester := range d.Leave {
		if err := c.requester(requester).Withdraw(ctx, pod); err != nil {
			return errors.Join(conditions, err)
		}
		c.Metrics.Wrote(metrics.MaintenanceWriteWithdraw)
	}
	for _, requester := range d.Join {
		_, err := c.requester(requester).Join(ctx, pod)
		if err == nil {
			c.failures.eviction(pod.UID, "")
			c.Metrics.Wrote(metrics.MaintenanceWriteJoin)
			continue
		}
		if why := failure(err); why != "" {
			c.failures.eviction(pod.UID, why)
		}
		return errors.Join(conditions, err)
	}
	if d.Evict {
		c.evictions.Wake(client.ObjectKeyFromObject(pod), 0)
	}
	return conditions
}

// failure says why a pod's eviction cannot be requested, unless the reason is
// temporary.
func failure(err error) string {
	if apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return ""
	}
	return err.Error()
}

func (c *Controller) requester(name string) *requester.Requester {
	return &requester.Requester{Name: name, Client: c.Requests, Clock: c.Clock}
}

// podPatch is a strategic merge patch of the pod in the version that was seen, so that
// no other condition is overwritten. Conditions are merged by their type.
type podPatch struct {
	Metadata podPatchMeta   `json:"metadata"`
	Status   podPatchStatus `json:"status"`
}

type podPatchMeta struct {
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
}

type podPatchStatus struct {
	Conditions []podPatchCondition `json:"conditions"`
}

type podPatchCondition struct {
	Directive          string                 `json:"$patch,omitempty"`
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            *string                `json:"message,omitempty"`
	LastTransitionTime *metav1.Time           `json:"lastTransitionTime,omitempty"`
}

// patchConditions writes the conditions in one patch. If the pod has changed meanwhile,
// that is an error, and the pod is reconciled again.
func (c *Controller) patchConditions(ctx context.Context, pod *corev1.Pod, d PodDecision) error {
	var changes []podPatchCondition
	add := func(kind, reason, message string, change Change) {
		if change == ChangeNothing {
			return
		}
		changes = append(changes, c.conditionPatch(pod, kind, reason, message, change))
	}
	add(v1alpha1.PodEvacuationRequest, v1alpha1.PodReasonNodeMaintenance, d.Message, d.Request)
	said := "An interceptor is evacuating the pod."
	if d.Initiated == ChangeFalse {
		said = "The interceptors are done, and the eviction is refused."
	}
	add(v1alpha1.PodEvacuationInitiated, v1alpha1.PodReasonInterceptorStarted, said, d.Initiated)
	if len(changes) == 0 {
		return nil
	}
	data, err := json.Marshal(podPatch{podPatchMeta{pod.UID, pod.ResourceVersion}, podPatchStatus{changes}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	// A copy: the rest of this decision must not see the answer.
	err = c.Client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, data))
	switch {
	case err == nil:
		c.Metrics.Wrote(metrics.MaintenanceWritePod)
		return nil
	case apierrors.IsNotFound(err):
		return nil
	default:
		return fmt.Errorf("patch the conditions of pod %s: %w", pod.Name, err)
	}
}

// conditionPatch is the change of one condition. Only a changed status is a transition.
func (c *Controller) conditionPatch(pod *corev1.Pod, kind, reason, message string, change Change) podPatchCondition {
	if change == ChangeRemove {
		return podPatchCondition{Directive: "delete", Type: kind}
	}
	status := corev1.ConditionTrue
	if change == ChangeFalse {
		status = corev1.ConditionFalse
	}
	patch := podPatchCondition{Type: kind, Status: status, Reason: reason, Message: &message}
	if before := condition(pod, corev1.PodConditionType(kind), reason); before == nil || before.True != (status == corev1.ConditionTrue) {
		now := metav1.NewTime(c.Clock.Now())
		patch.LastTransitionTime = &now
	}
	return patch
}
