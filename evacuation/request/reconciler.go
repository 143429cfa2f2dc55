package request

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// statusManager owns the status, except what interceptors report.
	statusManager = "drawbridge"
	// conflictRetry is a fallback: after a conflict the watch event normally comes
	// first.
	conflictRetry = time.Second
)

// Resolver returns the interceptors of a pod, in order, without the default
// interceptor. An error means that a name may be missing.
type Resolver interface {
	Resolve(pod *corev1.Pod) ([]string, error)
}

// Metrics are the metrics that follow a request.
type Metrics interface {
	// Observe sets the series of the request to what it says.
	Observe(er *v1alpha1.EvictionRequest)
	// Forget removes the series of a request that is gone.
	Forget(namespace, name string)
	// TurnEnded counts a turn, by how it ended.
	TurnEnded(result string)
	// Finished counts a request that ended, by its outcome, and how long it took.
	Finished(outcome string, took time.Duration)
	// DeadlineEnded counts an evicted pod whose request had a deadline, by what became of
	// that.
	DeadlineEnded(result string)
}

var _ Metrics = &metrics.Requests{}

// Reconciler moves every EvictionRequest on: it gathers what is known of the
// request and its pod, lets process.Step decide and writes the decision, with at
// most one write of the status per call. All fields but WorkloadRef, Retention and
// Deadlines are required.
type Reconciler struct {
	// Client reads from the informer cache, which must hold EvictionRequests (with
	// their managedFields) and pods, and writes.
	Client client.Client
	// APIReader reads live. It confirms every decision that depends on an absence.
	APIReader client.Reader
	// Clock is the only source of time; the queue obeys it too.
	Clock clock.WithTicker
	// Policy has the constants of the process.
	Policy process.Policy
	// Retention is how long a finished request is kept (ruling R4). Zero keeps it
	// forever.
	Retention time.Duration
	// Resolver is asked for the interceptors of a new request's pod.
	Resolver Resolver
	// Planned is what the plan says of an interceptor that the Resolver names, by its
	// registration.
	Planned func(name string) v1alpha1.Interceptor
	// ResolveLive asks the API server who intercepts a pod, and what the plan says of each,
	// when the Resolver's answer cannot be right (see makePlan).
	ResolveLive func(ctx context.Context, pod *corev1.Pod) ([]string, func(name string) v1alpha1.Interceptor, error)
	// Recorder records events on the request and on its pod.
	Recorder k8sevents.EventRecorder
	// Metrics follow the requests.
	Metrics Metrics
	// Deadlines, and which nodes are lost, are learnt from what stands elsewhere in the API.
	// Optional.
	Deadlines Deadlines
	// WorkloadRef reports whether a pod belongs to a Workload in a way that its
	// type does not show. It is nil unless the API server is of version 1.35, see
	// LiveWorkloadRef: then spec.schedulingGroup says it all.
	WorkloadRef func(ctx context.Context, pod types.NamespacedName, uid types.UID) (bool, error)

	// startedAt is when this controller began to work, see SetupWithManager.
	startedAt time.Time
	seen      observed
}

var _ reconcile.Reconciler = &Reconciler{}

// Reconcile moves one request on. A conflict is no error: the newer version
// brings the request back. Every other failure is returned, and none becomes a
// verdict on the target (statement 55).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	er := &v1alpha1.EvictionRequest{}
	if err := r.Client.Get(ctx, req.NamespacedName, er); err != nil {
		if apierrors.IsNotFound(err) {
			r.seen.forget(req.NamespacedName)
			r.Metrics.Forget(req.Namespace, req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get EvictionRequest: %w", err)
	}
	if v1alpha1.IsFinished(er) && er.DeletionTimestamp == nil {
		switch why, err := r.untrue(ctx, er); {
		case err != nil:
			return ctrl.Result{}, err
		case why != "":
			if err := r.takeBack(ctx, er, why); err != nil {
				return r.afterFailedWrite(ctx, err)
			}
			return ctrl.Result{}, nil
		}
	}

	now := r.Clock.Now()
	snapshot, target, err := r.gather(ctx, er, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := process.Step(snapshot, now, r.Policy)
	er, err = r.apply(ctx, er, snapshot, decision, target, now)
	if _, refusal := refused.Of(err); er == nil || err != nil && !refusal {
		return r.afterFailedWrite(ctx, err)
	}
	// What is due does not wait for labels that are refused.
	result, next := r.next(ctx, er, decision)
	return result, errors.Join(err, next)
}

// gather collects the input of the decision.
func (r *Reconciler) gather(ctx context.Context, er *v1alpha1.EvictionRequest, now time.Time) (process.Snapshot, targetView, error) {
	if v1alpha1.IsFinished(er) {
		// Nothing about the target matters any more.
		r.seen.forget(client.ObjectKeyFromObject(er))
		return decode(er, process.Target{}, nil, observation{}, r.startedAt), targetView{}, nil
	}
	target, err := r.findTarget(ctx, er)
	if err != nil {
		return process.Snapshot{}, targetView{}, err
	}
	var planned []process.Participant
	if len(er.Status.TargetInterceptors) == 0 && target.pod != nil && er.DeletionTimestamp == nil {
		if r.WorkloadRef != nil && !target.Grouped {
			target.Grouped, err = r.WorkloadRef(ctx, client.ObjectKeyFromObject(target.pod), target.pod.UID)
			if err != nil {
				return process.Snapshot{}, targetView{}, err
			}
		}
		grouped := target.Grouped
		if planned, target, err = r.makePlan(ctx, er, target); err != nil {
			return process.Snapshot{}, targetView{}, err
		}
		target.Grouped = target.Grouped || grouped
	}
	ended := target.Presence != process.Present || target.Terminal
	target.seen = r.seen.observe(er, ended, now)
	var learnt []translate.Learnt
	if r.Deadlines != nil && target.pod != nil {
		if learnt, err = r.Deadlines.Of(ctx, er, target.pod); err != nil {
			return process.Snapshot{}, targetView{}, err
		}
		if target.loss, err = r.Deadlines.NodeLoss(ctx, target.pod.Spec.NodeName); err != nil {
			return process.Snapshot{}, targetView{}, err
		}
		target.nodeSeen = true
	}
	target.deadline = deadlineOf(er, target.pod, learnt, now, r.Policy)
	snapshot := decode(er, target.Target, planned, target.seen, r.startedAt)
	snapshot.Deadline, snapshot.LostAt = target.deadline.at, lostAt(er, target.loss, now)
	return snapshot, target, nil
}

// resolve returns the pod's interceptors. A plan is made once, so it waits until the
// resolver is complete.
func (r *Reconciler) resolve(pod *corev1.Pod) ([]string, error) {
	names, err := r.Resolver.Resolve(pod)
	if err != nil {
		return nil, fmt.Errorf("resolve who intercepts pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return names, nil
}

// apply writes what differs: first the labels, so that interceptors that select by them
// see an activation, then the status. It returns the request as stored; the one it gets is
// changed, and of no use any more. Metrics and events follow the writes. Failing to write
// labels delays no eviction: that error is returned after the status is written.
func (r *Reconciler) apply(ctx context.Context, er *v1alpha1.EvictionRequest, s process.Snapshot, d process.Decision, target targetView, now time.Time) (*v1alpha1.EvictionRequest, error) {
	var labelsErr error
	if s.Outcome == process.OutcomeRunning && !s.Withdrawn && target.pod != nil && d.Cause != process.TargetGrouped {
		labelsErr = r.syncLabels(ctx, er, pods.CopiedLabels(target.pod.Labels))
		if apierrors.IsConflict(labelsErr) || apierrors.IsNotFound(labelsErr) {
			return nil, labelsErr // Decided for an outdated version.
		}
	}
	after := er.DeepCopy()
	f := facts{now: now, foundUID: target.foundUID, deadline: target.deadline, nodeSeen: target.nodeSeen && !target.Terminal && !s.Withdrawn, loss: target.loss}
	if target.pod != nil {
		f.nodeName = target.pod.Spec.NodeName
	}
	encode(after, d, f)
	doubtful, why := unchecked(after, d, target.seen, r.Policy.ClockSkew)
	if doubtful != "" {
		noteUnchecked(after, doubtful, why, now)
	}
	if !apiequality.Semantic.DeepEqual(er.Status, after.Status) {
		er.ManagedFields, after.ManagedFields = nil, nil // The API server's: to compare them was a quarter of a step.
		patch := client.MergeFromWithOptions(er, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Status().Patch(ctx, after, patch, client.FieldOwner(statusManager)); err != nil {
			return nil, errors.Join(labelsErr, fmt.Errorf("patch status of EvictionRequest: %w", err))
		}
		for _, event := range slices.Concat(announcements(after, s.Outcome, d, r.Policy), heldAnnouncements(er, after), forbiddenAnnouncements(er, after), lostAnnouncements(er, after)) {
			log.FromContext(ctx).Info(event.Note, "event", event.Reason, "pod", podName(after))
			if d.Cause == process.TargetDeleted && event.Reason == events.ReasonEvicted {
				// Nobody can describe a pod that is gone, and every pod of a drain ends so.
				events.Emit(r.Recorder, after, events.PodReference(after), event)
				continue
			}
			events.EmitOnBoth(r.Recorder, after, event)
		}
		if doubtful != "" {
			events.EmitOnBoth(r.Recorder, after, events.CompletionUnchecked(doubtful, why))
		}
		account(r.Metrics, after, s, d, doubtful, now)
	}
	r.Metrics.Observe(after)
	return after, labelsErr
}

// syncLabels applies the pod's labels if they differ and moves the request to the
// version that holds them. It is a write of its own: the status subresource
// ignores metadata.
func (r *Reconciler) syncLabels(ctx context.Context, er *v1alpha1.EvictionRequest, labels map[string]string) error {
	owned, err := ownersOf(er.ManagedFields)
	if err != nil || labelsInSync(er, owned, labels) {
		return err
	}
	if err := r.dropLabels(ctx, er, owned.stale(labels)); err != nil {
		return err
	}
	patch := labelPatch(er, labels)
	if err := r.Client.Apply(ctx, patch, client.FieldOwner(labelManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply labels to EvictionRequest: %w", err)
	}
	if patch.ResourceVersion != nil {
		er.ResourceVersion = *patch.ResourceVersion
	}
	return nil
}

// dropLabels removes labels, which is rarely needed.
func (r *Reconciler) dropLabels(ctx context.Context, er *v1alpha1.EvictionRequest, stale []string) error {
	if len(stale) == 0 {
		return nil
	}
	after := er.DeepCopy()
	for _, key := range stale {
		delete(after.Labels, key)
	}
	patch := client.MergeFromWithOptions(er, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(labelManager)); err != nil {
		return fmt.Errorf("remove labels that the pod has lost from EvictionRequest: %w", err)
	}
	er.ResourceVersion = after.ResourceVersion
	return nil
}

// afterFailedWrite distinguishes stale reads, which are normal, from failures.
func (r *Reconciler) afterFailedWrite(ctx context.Context, err error) (ctrl.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		log.FromContext(ctx).V(1).Info("The request has changed meanwhile, deciding again", "cause", err.Error())
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	case apierrors.IsNotFound(err):
		// Deleted meanwhile; the event cleans up.
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// next says when to reconcile again, and deletes a finished request after its retention
// (ruling R4).
func (r *Reconciler) next(ctx context.Context, er *v1alpha1.EvictionRequest, d process.Decision) (ctrl.Result, error) {
	if !d.WakeAt.IsZero() {
		return r.wakeAt(d.WakeAt), nil
	}
	end := v1alpha1.FinishedAt(er)
	if end == nil || r.Retention == 0 || er.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if due := end.Add(r.Retention); r.Clock.Now().Before(due) {
		return r.wakeAt(due), nil
	}
	// The preconditions protect a successor of the same name and a request that changed
	// since it was read.
	err := r.Client.Delete(ctx, er, client.Preconditions{UID: &er.UID, ResourceVersion: &er.ResourceVersion})
	if err != nil {
		return r.afterFailedWrite(ctx, fmt.Errorf("delete finished EvictionRequest: %w", err))
	}
	log.FromContext(ctx).V(1).Info("Deleted the finished request", "finished", end.Time, "retention", r.Retention)
	return ctrl.Result{}, nil
}

// wakeAt never returns zero, which would mean never.
func (r *Reconciler) wakeAt(t time.Time) ctrl.Result {
	return ctrl.Result{RequeueAfter: max(t.Sub(r.Clock.Now()), time.Millisecond)}
}

func podName(er *v1alpha1.EvictionRequest) string {
	if er.Spec.Target.Pod == nil {
		return ""
	}
	return er.Spec.Target.Pod.Name
}
