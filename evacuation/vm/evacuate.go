package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

const (
	// tries limits how often a write is decided again because the workload has changed.
	tries = 4
	// troubleRetry is the delay before a retry of something that will not recover by
	// itself.
	troubleRetry = 30 * time.Second
	// soon is the delay before a retry of something that may recover.
	soon = 5 * time.Second
)

// Callers returns the kinds of tools that request an eviction, for the variable
// request.callers.
type Callers func(ctx context.Context, request types.NamespacedName) []string

// policyInterceptor is the interceptor under one name, for all policies that have it.
type policyInterceptor struct {
	*Store
	name     string
	recorder eventsclient.EventRecorder
	metrics  *metrics.VM
	callers  Callers
}

var (
	_ interceptor.Interceptor = &policyInterceptor{}
	_ interceptor.Canceler    = &policyInterceptor{}
)

// Evacuate marks the workload of a pod and follows its evacuation.
func (a *policyInterceptor) Evacuate(ctx context.Context, t interceptor.Target) (interceptor.Progress, error) {
	ctx = about(ctx, t)
	pod, err := a.findPod(ctx, t)
	switch {
	case err != nil:
		return interceptor.Progress{}, err
	case pod == nil:
		return interceptor.Progress{Done: true, Message: "The pod has ended."}, nil
	}
	p, err := a.policyUnder(ctx, a.name, pod)
	switch {
	case errors.Is(err, ErrNotLoaded), errors.Is(err, errNotCovered):
		return interceptor.Progress{}, err
	case err != nil:
		return trouble(err), nil
	}
	e := &evacuation{policyInterceptor: a, policy: p, pod: pod, target: t}
	progress, err := e.run(ctx)
	if err == nil || ctx.Err() != nil {
		return progress, err
	}
	return trouble(err), nil
}

// trouble keeps sending heartbeats: the problem is ours, the policy's or the
// platform's, whose API may be down for a while. Without heartbeats the next
// interceptor would get the pod, and the workload would never be marked.
func trouble(err error) interceptor.Progress {
	p := interceptor.Progress{Message: "The evacuation waits: " + oneLine(err.Error()) + ".", CheckAfter: troubleRetry}
	if !lasting(err) {
		p.CheckAfter = soon
	}
	return p
}

// lasting reports whether retrying soon does not help against an error.
func lasting(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // An expression, or a kind that cannot be read.
	}
	return isRefusal(err) || changed(err)
}

// isRefusal reports whether the cluster refuses a write for good.
func isRefusal(err error) bool {
	_, is := refused.Of(err)
	return is
}

// about lets the refusal of a write be told on the pod and its request.
func about(ctx context.Context, t interceptor.Target) context.Context {
	return refused.AboutPodOfRequest(ctx, t.Pod, t.PodUID, t.Request, t.RequestUID)
}

// findPod returns this pod, nil if it has ended.
func (a *policyInterceptor) findPod(ctx context.Context, t interceptor.Target) (*podView, error) {
	for _, reader := range []client.Reader{a.Client, a.Live} {
		pod := &corev1.Pod{}
		err := reader.Get(ctx, t.Pod, pod)
		switch {
		case apierrors.IsNotFound(err):
			continue // The cache may lag behind.
		case err != nil:
			return nil, fmt.Errorf("get pod %s: %w", t.Pod, err)
		case pod.UID != t.PodUID:
			continue
		case pods.HasEnded(pod):
			return nil, nil
		}
		return viewOf(pod), nil
	}
	return nil, nil
}

// evacuation is one reconciliation of one pod.
type evacuation struct {
	*policyInterceptor
	policy *policy
	pod    *podView
	target interceptor.Target
}

func (e *evacuation) turn() turn { return turn{activatedAt: e.target.ActivatedAt} }

// run decides and acts. Irreversible actions depend on a live read of the workload, the
// first mark on the test operations of its patch.
func (e *evacuation) run(ctx context.Context) (interceptor.Progress, error) {
	live := false
	var last error
	// refusedAt is the version of the workload whose mark the API server has refused.
	var refusedAt string
	for range tries {
		sub, f, v, err := e.observe(ctx, e.policy, e.pod, e.turn(), live)
		if err != nil {
			return interceptor.Progress{}, err
		}
		e.link(sub)
		wasLive := live
		live = true
		switch v.Step {
		case stepWait:
			return e.following("Waiting: "+v.Why+".", f), nil
		case stepFollow:
			if e.unheard.remove(e.target.RequestUID) {
				e.policyChanged(e.policy.name) // Another mark has done it.
			}
			if f.Unfinished == 0 {
				e.policyChanged(e.policy.name) // It may have been marked by others.
			}
			return e.following(e.progress(sub, f), f), nil
		case stepMark:
			if wasLive && refusedAt != "" && refusedAt == sub.workload.GetResourceVersion() {
				return e.stumbled(sub, f, &rejectedError{last}), nil // It has not changed meanwhile.
			}
			switch last = e.mark(ctx, sub); {
			case last == nil:
				return e.following(e.progress(sub, f), f), nil
			case isRefusal(last):
				return e.stumbled(sub, f, &rejectedError{last}), nil
			case !changed(last):
				return e.afterMark(sub, f, last)
			case wasLive:
				refusedAt = sub.workload.GetResourceVersion()
			}
			continue // It seems to have changed meanwhile: read it again.
		}
		if !wasLive {
			continue
		}
		last = e.release(ctx, sub, f, v)
		switch {
		case last == nil, e.lost(sub, last):
			return e.end(sub, f, v), nil
		case !changed(last):
			return interceptor.Progress{}, last
		}
	}
	if last == nil {
		last = fmt.Errorf("%s keeps changing", e.describe(e.pod.Namespace, e.pod.Name))
	}
	return interceptor.Progress{}, last
}

// following is the progress of a running evacuation.
func (e *evacuation) following(message string, f facts) interceptor.Progress {
	p := interceptor.Progress{Message: message, ExpectedFinishTime: f.ETA, PointOfNoReturn: f.Evacuating && f.NoReturn}
	if e.policy.deadline > 0 {
		if left := e.policy.deadline - e.Clock.Since(e.target.ActivatedAt); left > 0 {
			p.CheckAfter = left + time.Second
		}
	}
	return p
}

func (e *evacuation) progress(sub *subject, f facts) string {
	text := fmt.Sprintf("Eviction triggered evacuation of %s.", e.describe(sub.pod.Namespace, sub.name))
	if f.Message != "" {
		text += " " + f.Message
	}
	if f.Failures > 0 {
		text += fmt.Sprintf(" Migrations that failed: %d of at most %d.", f.Failures, e.policy.migration.retryLimit)
	}
	return text
}

func (e *evacuation) describe(namespace, name string) string {
	return fmt.Sprintf("%s %s/%s", e.policy.kindName(), namespace, name)
}

func (p *policy) kindName() string {
	if p.workload.Empty() {
		return podKind.Kind
	}
	return p.workload.Kind
}

// mark marks the workload.
func (e *evacuation) mark(ctx context.Context, sub *subject) error {
	if e.policy.mark == nil {
		return nil
	}
	wrote, err := e.write(ctx, sub, e.policy.mark, writeMark)
	if err != nil {
		return fmt.Errorf("mark %s: %w", e.describe(sub.pod.Namespace, sub.name), err)
	}
	if wrote {
		e.policyChanged(e.policy.name) // Perhaps a migration is to be created.
		e.metrics.Wrote(e.policy.name, writeMark)
		e.emit(events.WorkloadMarked(e.policy.kindName(), sub.name, e.policy.name))
	}
	return nil
}

// release removes the mark at the end, so that the platform does not continue. If the
// platform itself reports a failure, the mark stays: without it, the platform might no
// longer report the failure.
func (e *evacuation) release(ctx context.Context, sub *subject, f facts, v verdict) error {
	if v.Step == stepGiveUp && f.Failed {
		return nil
	}
	if f.Evacuating {
		if err := e.unmarkOnce(ctx, sub); err != nil {
			return err
		}
	}
	if v.Step == stepGiveUp && f.Unfinished > 0 {
		return e.stopMigrations(ctx, sub) // The platform's pending next try.
	}
	return nil
}

// end handles the end of an evacuation.
func (e *evacuation) end(sub *subject, f facts, v verdict) interceptor.Progress {
	what := e.describe(sub.pod.Namespace, sub.name)
	switch v.Step {
	case stepMoved:
		e.ended("moved")
		return interceptor.Progress{Done: true, Message: fmt.Sprintf("%s has left the pod.", what)}
	case stepRefuse:
		e.ended("refused")
		return interceptor.Progress{Done: true, Message: fmt.Sprintf("Nothing can be done for %s: %s. The guard keeps the pod until the eviction is withdrawn.", what, v.Why)}
	case stepGiveUp:
		if !e.policy.hold(f.Strategy) {
			e.gaveUp(sub, v, "gave_up_evict", false)
			return interceptor.Progress{Done: true, Message: fmt.Sprintf("The evacuation of %s is given up: %s. The pod will be evicted.", what, v.Why)}
		}
		e.gaveUp(sub, v, "gave_up_hold", true)
		p := interceptor.Progress{Message: fmt.Sprintf("The evacuation of %s is given up: %s. The guard keeps the pod.", what, v.Why)}
		if f.Evacuating {
			p.CheckAfter = writeLimit.Longest // It may be marked again and again.
		}
		return p
	default:
		e.ended("passed")
		return interceptor.Progress{Done: true, Message: fmt.Sprintf("There is nothing to do for %s: %s.", what, v.Why)}
	}
}

// gaveUp reports an evacuation that has finally failed, once.
func (e *evacuation) gaveUp(sub *subject, v verdict, outcome string, held bool) {
	e.stuck.add(e.policy.name, sub.pod.Namespace+"/"+sub.name, e.target.RequestUID)
	if e.ended(outcome) {
		e.emit(events.EvacuationGivenUp(e.policy.kindName(), sub.name, v.Why, held))
	}
	e.policyChanged(e.policy.name)
}

// ended counts the end of an evacuation and reports whether it is the first time.
func (e *evacuation) ended(outcome string) bool {
	if !e.ends.add(e.target.Request, e.name, e.target.RequestUID) {
		return false
	}
	e.metrics.Ended(e.policy.name, outcome)
	return true
}

// write sends a patch, if there is something to send.
func (e *evacuation) write(ctx context.Context, sub *subject, by *patch, what string) (wrote bool, err error) {
	vars, err := e.writeVars(ctx, sub)
	if err != nil {
		return false, err
	}
	data, err := by.render(ctx, sub.workload.GetUID(), vars)
	if err != nil {
		e.note(e.policy, e.pod, err)
		return false, err
	}
	if data == nil {
		return false, nil
	}
	if err := e.writes.begin(e.writeKey(sub, what)); err != nil {
		return false, err
	}
	answer, err := e.send(ctx, sub, by, data)
	if err != nil {
		return false, err
	}
	if err := verifyStored(data, answer); err != nil {
		return false, err
	}
	if e.unheard.remove(e.target.RequestUID) {
		e.policyChanged(e.policy.name)
	}
	return true, nil
}

// writeVars are the variables for writes.
func (e *evacuation) writeVars(ctx context.Context, sub *subject) (map[string]any, error) {
	vars, err := sub.vars()
	if err != nil {
		return nil, err
	}
	vars[varRequest] = e.requestVars(ctx)
	return vars, nil
}

func (e *evacuation) writeKey(sub *subject, what string) writeKey {
	return writeKey{policy: e.policy.name, write: what, workload: types.NamespacedName{Namespace: sub.pod.Namespace, Name: sub.name}}
}

// send sends a JSON patch and returns the API server's answer.
func (e *evacuation) send(ctx context.Context, sub *subject, by *patch, data []byte) (map[string]any, error) {
	key := types.NamespacedName{Namespace: sub.pod.Namespace, Name: sub.name}
	kind := e.policy.workload
	if kind.Empty() || kind == podKind {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = key.Namespace, key.Name
		raw := client.RawPatch(types.JSONPatchType, data)
		var err error
		if by.subresource != "" {
			err = e.Client.SubResource(by.subresource).Patch(ctx, pod, raw, client.FieldOwner(e.name))
		} else {
			err = e.Client.Patch(ctx, pod, raw, client.FieldOwner(e.name))
		}
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	}
	return e.kinds.patch(ctx, e.policy.needs[kind], key, data, e.name, by.subresource)
}

func (e *evacuation) requestVars(ctx context.Context) map[string]any {
	return requestVar(e.target.Request, e.target.Requesters, e.callers(ctx, e.target.Request), e.target.Deadline)
}

// emit records an event about the request.
func (e *evacuation) emit(event events.Event) {
	request := &corev1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest",
		Namespace: e.target.Request.Namespace, Name: e.target.Request.Name, UID: e.target.RequestUID,
	}
	pod := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: e.pod.Namespace, Name: e.pod.Name, UID: e.pod.UID,
	}
	events.Emit(e.recorder, request, pod, event)
	events.Emit(e.recorder, pod, request, event)
}
