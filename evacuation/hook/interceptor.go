package hook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/execcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/hook/httpcall"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
	"github.com/drawbridge-dev/drawbridge/internal/text"
	"github.com/drawbridge-dev/drawbridge/internal/waitfor"
)

const (
	// fieldOwner is the field manager of what hooks write.
	fieldOwner = "drawbridge-hooks"
	// troubleRetry is the delay before a retry of something that does not recover by
	// itself, and soon before one that may.
	troubleRetry = 30 * time.Second
	soon         = 5 * time.Second
	// steps is how many decisions one call makes: each but the last was recorded.
	steps = 6
)

// hookInterceptor is the interceptor of all hooks. Each hook's reconciler of the SDK calls it under
// its own name (see named).
type hookInterceptor struct {
	client   client.Client // Reads from the cache.
	live     client.Reader
	clock    clock.WithTicker
	recorder eventsclient.EventRecorder
	metrics  *metrics.Hooks

	runs     *recordedRuns
	compiled *compiledHooks
	limiter  *limiter
	inflight *inflight
	// fresh are the attempts that this process has recorded and not yet begun.
	fresh marks
	// asked are the UIDs of requests whose refused Job somebody wants to be tried at once.
	asked marks
	// jobs are the names of Jobs that this process has seen.
	jobs    marks
	exec    *execcall.Executor // Nil if it is switched off.
	http    *httpcall.Client
	watches *waitfor.Watches
	// follows are the UIDs of pods whose condition is waited for.
	follows marks
	wake    func(request types.NamespacedName)
	// native is nil if there are no native turns.
	native NativeEvictions
}

// marks is a set of names.
type marks struct {
	mu sync.Mutex
	of map[string]bool
}

func (m *marks) add(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[string]bool{}
	}
	m.of[name] = true
}

func (m *marks) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[name]
}

// take removes a name and reports whether it was there.
func (m *marks) take(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := m.of[name]
	delete(m.of, name)
	return had
}

// named is the interceptor of one hook.
type named struct {
	*hookInterceptor
	hook types.NamespacedName
}

var (
	_ interceptor.Interceptor = &named{}
	_ interceptor.Canceler    = &named{}
	_ interceptor.Goner       = &named{}
)

// Evacuate does what the hook says before the pod is evicted.
func (n *named) Evacuate(ctx context.Context, t interceptor.Target) (interceptor.Progress, error) {
	ctx = about(ctx, t)
	if t.Pod.Namespace != n.hook.Namespace {
		return interceptor.Progress{Done: true, Message: "A hook covers pods of its own namespace only."}, nil
	}
	hook, err := n.find(ctx, n.hook)
	switch {
	case err != nil:
		return interceptor.Progress{}, err
	case hook == nil:
		if err := n.abandon(ctx, t); err != nil {
			return trouble(err), nil
		}
		if isHooksTest(t) {
			if err := n.endHooksTest(ctx, t); err != nil {
				return trouble(err), nil
			}
			return interceptor.Progress{Message: "The test has ended: the hook was deleted.", CheckAfter: soon}, nil
		}
		return interceptor.Progress{Done: true, Message: "The hook was deleted."}, nil
	}
	progress, err := n.evacuate(ctx, n.compiled.get(hook), t)
	if err == nil || ctx.Err() != nil {
		return progress, err
	}
	return trouble(err), nil
}

// trouble keeps sending heartbeats: the problem is ours, the hook's or the API server's,
// and another interceptor would not solve it.
func trouble(err error) interceptor.Progress {
	p := interceptor.Progress{Message: "The hook waits: " + oneLine(err) + ".", CheckAfter: troubleRetry}
	var status apierrors.APIStatus
	if _, refusal := refused.Of(err); errors.As(err, &status) && !refusal {
		p.CheckAfter = soon
	}
	return p
}

func oneLine(err error) string {
	return strings.TrimSuffix(text.OneLine(err.Error(), maxFailure), ".")
}

// find returns a hook, nil if there is none.
func (a *hookInterceptor) find(ctx context.Context, key types.NamespacedName) (*v1alpha1.EvacuationHook, error) {
	for _, reader := range []client.Reader{a.client, a.live} {
		hook := &v1alpha1.EvacuationHook{}
		switch err := reader.Get(ctx, key, hook); {
		case apierrors.IsNotFound(err):
			continue // The cache may lag behind.
		case err != nil:
			return nil, fmt.Errorf("get EvacuationHook %s: %w", key, err)
		case !hook.DeletionTimestamp.IsZero():
			return nil, nil
		}
		return hook, nil
	}
	return nil, nil
}

// evacuate steps until there is nothing left to record.
func (n *named) evacuate(ctx context.Context, p *compiled, target interceptor.Target) (interceptor.Progress, error) {
	for range steps {
		run, err := n.runs.of(ctx, p.hook, target.RequestUID)
		if err != nil {
			return interceptor.Progress{}, err
		}
		in := input{Rules: p.rules, Run: run, Now: n.clock.Now(), NodeLost: target.NodeLost && p.hook.Spec.NodeLostPolicy() != v1alpha1.NodeLostWait}
		t := &attempt{compiled: p, target: target}
		if run != nil {
			t.run = *run
		}
		switch {
		case run == nil, waits(run.Phase) && !in.Now.Before(run.StartTime.Time), run.Phase == v1alpha1.HookHeld && run.Generation != p.rules.Generation:
			in.Acquired = n.limiter.tryAcquire(target.RequestUID, podKey(target))
		case run.Phase == v1alpha1.HookRunning:
			n.limiter.hold(target.RequestUID, target.Pod.Namespace)
			if in.Work, err = n.begin(ctx, p.do, t); err != nil {
				return interceptor.Progress{}, err
			}
		}
		d := step(in)
		if (d.Do == doPass || d.Do == doHold) && isHooksTest(target) {
			if err := n.endHooksTest(ctx, target); err != nil {
				return interceptor.Progress{}, err
			}
			return interceptor.Progress{Message: sentence("The test of hook "+n.hook.Name+" has ended", d.Message), CheckAfter: soon}, nil
		}
		if d.Do != doRecord {
			return n.progress(t, in, d), nil
		}
		if d.Stop {
			if _, err := n.stop(ctx, p.do, t); err != nil {
				return interceptor.Progress{}, err
			}
		}
		if err := n.record(ctx, p, t, d); err != nil {
			if errors.Is(err, errFull) {
				n.limiter.release(target.RequestUID)
				return interceptor.Progress{Message: fmt.Sprintf("The hook waits: %s.", errFull), CheckAfter: troubleRetry}, nil
			}
			return interceptor.Progress{}, err
		}
	}
	return interceptor.Progress{CheckAfter: soon}, nil
}

// waits reports whether the next attempt, or the same one, begins at the run's time.
func waits(phase v1alpha1.HookPhase) bool {
	return phase == v1alpha1.HookRetrying || phase == v1alpha1.HookRefused
}

// about lets the refusal of a write be told on the pod and its request.
func about(ctx context.Context, t interceptor.Target) context.Context {
	return refused.About(ctx, podReference(t), requestReference(t))
}

// record writes what was decided, and then counts and tells it.
func (n *named) record(ctx context.Context, p *compiled, t *attempt, d decision) error {
	pod := t.target.Pod.Name
	d.Run.RequestUID, d.Run.Request, d.Run.Pod = string(t.target.RequestUID), string(t.target.PodUID), pod
	if t.target.Native {
		d.Run.Eviction = t.target.Request.Name
	}
	err := n.runs.update(ctx, p.hook, func(status *v1alpha1.EvacuationHookStatus) error {
		noteLast(status, p.hook.Generation, d.Run, n.clock.Now())
		return put(status, d.Run)
	})
	if err != nil {
		return err
	}
	began := &attempt{compiled: p, target: t.target, run: d.Run}
	if d.Run.Phase == v1alpha1.HookRunning {
		n.fresh.add(began.key())
		if t.run.Phase == v1alpha1.HookRefused {
			return nil // It is told already that this attempt begins.
		}
		n.emit(t.target, events.HookBegan(p.hook.Name, pod, p.do.name(), p.rules.ordinal(d.Run)))
		return nil
	}
	n.limiter.release(t.target.RequestUID)
	n.forget(t)
	if d.Run.Phase == v1alpha1.HookRefused {
		return nil // The client tells it, once per cause.
	}
	n.metrics.Ended(p.do.name(), d.Result)
	switch d.Run.Phase {
	case v1alpha1.HookSucceeded:
		n.emit(t.target, events.HookSucceeded(p.hook.Name, pod))
	case v1alpha1.HookRetrying:
		n.emit(t.target, events.HookFailed(p.hook.Name, pod, d.Run.Message, "It is tried again."))
	case v1alpha1.HookHeld:
		n.emit(t.target, events.HookFailed(p.hook.Name, pod, d.Run.Message, "The pod is kept."))
	case v1alpha1.HookContinued:
		n.emit(t.target, events.HookFailed(p.hook.Name, pod, d.Run.Message, "The eviction continues."))
	case v1alpha1.HookRunning, v1alpha1.HookRefused, v1alpha1.HookUndoing, v1alpha1.HookUndone:
	}
	return nil
}

// forget drops what memory has of an attempt that has ended.
func (a *hookInterceptor) forget(t *attempt) {
	a.inflight.end(t.key())
	a.fresh.take(t.key())
	a.jobs.take(t.jobName())
	a.asked.take(string(t.target.RequestUID))
	a.watches.Release(t.key())
	a.follows.take(string(t.target.PodUID))
}

// begin begins an attempt's action, or finds it begun, and says how far it is. Nothing
// begins after the deadline, which counts also when nothing can be seen, nor for an attempt
// of the hook before a change: it may have begun something else.
func (a *hookInterceptor) begin(ctx context.Context, r *recipe, t *attempt) (work, error) {
	t.late = !a.clock.Now().Before(t.deadline())
	t.changed = !t.undo && t.run.Generation != t.compiled.rules.Generation
	w, err := a.follow(ctx, r, t)
	if err != nil && t.late && ctx.Err() == nil {
		return work{State: stateRunning, Message: oneLine(err)}, nil
	}
	return w, err
}

func (a *hookInterceptor) follow(ctx context.Context, r *recipe, t *attempt) (work, error) {
	if problem := t.compiled.problem; problem != nil {
		return work{State: stateFailed, Message: "the hook is not accepted: " + oneLine(problem), Final: true}, nil
	}
	switch {
	case r.job != nil:
		return a.beginJob(ctx, t, r.job)
	case r.exec != nil:
		return a.beginExec(ctx, t, r.exec)
	case r.http != nil:
		return a.beginHTTP(ctx, t, r.http)
	default:
		return a.beginWait(ctx, t, r.wait)
	}
}

// stop ends an attempt's action and reports whether nothing of it is left.
func (a *hookInterceptor) stop(ctx context.Context, r *recipe, t *attempt) (gone bool, err error) {
	a.inflight.end(t.key())
	a.watches.Release(t.key())
	// Before it was changed, the hook may have been one with a Job.
	if r.job == nil && (t.undo || t.run.Generation == t.compiled.rules.Generation) {
		return true, nil
	}
	return a.stopJob(ctx, t)
}

// progress tells the request how far the hook is.
func (n *named) progress(t *attempt, in input, d decision) interceptor.Progress {
	p := interceptor.Progress{ExpectedFinishTime: in.Work.ETA, CheckAfter: in.Work.CheckAfter}
	p.PointOfNoReturn = t.compiled.noReturn && in.Run != nil
	if !d.WakeAt.IsZero() {
		if left := max(d.WakeAt.Sub(in.Now), time.Second); p.CheckAfter == 0 || left < p.CheckAfter {
			p.CheckAfter = left
		}
	}
	prefix := "Hook " + n.hook.Name
	switch d.Do {
	case doHold:
		p.Message = fmt.Sprintf("%s has failed and keeps the pod: %s. Change the hook, or skip its interceptor.", prefix, d.Message)
	case doPass:
		p.Done, p.Message = true, sentence(prefix, d.Message)
	case doWork:
		p.Message = sentence(prefix+", attempt "+t.compiled.rules.ordinal(t.run), d.Message)
	default:
		p.Message = sentence(prefix, d.Message)
	}
	return p
}

func sentence(prefix, message string) string {
	return prefix + ": " + strings.TrimSuffix(message, ".") + "."
}

// emit records an event about the request and its pod.
func (a *hookInterceptor) emit(t interceptor.Target, event events.Event) {
	request, pod := requestReference(t), podReference(t)
	events.Emit(a.recorder, &request, &pod, event)
	events.Emit(a.recorder, &pod, &request, event)
}

func podReference(t interceptor.Target) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: t.Pod.Namespace, Name: t.Pod.Name, UID: t.PodUID}
}

// podOf returns the pod from the cache, nil if it has ended.
func (a *hookInterceptor) podOf(ctx context.Context, t interceptor.Target) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := a.client.Get(ctx, t.Pod, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && (pod.UID != t.PodUID || pods.HasEnded(pod)):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get pod %s: %w", t.Pod, err)
	}
	return pod, nil
}
