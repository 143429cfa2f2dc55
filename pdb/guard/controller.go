package guard

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

const (
	// pause is when to retry while caches are not in sync, or behind.
	pause = time.Second
	// behind is how long the cache may take to show a label that we wrote, on a busy machine.
	behind = 5 * time.Second
	// lookAgain is when to check again what may change without an event: a pod is held or a
	// preflight is undecided because something is not known yet. It is a check in memory.
	lookAgain = 10 * time.Second
	// DefaultIdleDelay is how long a namespace keeps an unused budget. It is shorter than
	// the 15 min after which the usual alerts on budgets fire.
	DefaultIdleDelay = 10 * time.Minute
)

// Controller adds and removes the guard's label on pods, and keeps one budget in each
// namespace that has such pods.
//
// Its keys are pods, and namespaces: those without a name. A pod that nobody
// intercepts costs no API call, and an event of any pod a look into memory.
//
// All fields but ExcludedNamespaces, Owner and IdleDelay are required.
type Controller struct {
	// Client reads from the cache and writes.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Clock also drives the queue, which SetupWithManager makes.
	Clock clock.WithTicker
	// Resolver returns the interceptors of a pod. No guard is opened while one may be
	// missing.
	Resolver registration.Resolver
	// Registrations have the guard policy of an interceptor, for a pod. Without a
	// registration it is v1alpha1.GuardWhileEvacuating.
	Registrations registration.PodLookup
	// Preflights returns the interceptor of that name if it has a say before a request
	// exists, nil otherwise: the guard must not keep what the webhook lets through. They
	// may be given the pods of the cache.
	Preflights func(name string) preflight.Interceptor
	// Holds says whose guard stays closed.
	Holds Holds
	// Native says how far Kubernetes' own Evictions are.
	Native Native
	// OnChange registers a function to call, from any goroutine, when Resolver or
	// Registrations may answer differently for unchanged pods.
	OnChange func(func())
	// Synced reports whether the caches and the resolver are in sync.
	Synced func() bool
	// ExcludedNamespaces are the namespaces that the webhook is not called for; they never
	// have a guard.
	ExcludedNamespaces []string
	// Owner is the ClusterRole that owns the budgets: when it is deleted, with our
	// installation or because the guard is disabled, so are they. If it is missing, no
	// budget is created. Empty means no owner.
	Owner string
	// Recorder records events on pods, requests and budgets.
	Recorder eventsclient.EventRecorder
	Metrics  *metrics.Guard
	// IdleDelay is how long a namespace keeps an unused budget. Default DefaultIdleDelay.
	IdleDelay time.Duration

	use     *budgetUse
	written *lastWritten
	owners  *owners
	queue   controllers.Queue
}

var _ reconcile.Reconciler = &Controller{}

// fieldOwner is the field manager of what the guard writes.
const fieldOwner = "guard." + v1alpha1.GroupName

// namespaceKey is the key of a namespace's budget.
func namespaceKey(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace}}
}

// Reconcile handles one pod, or the budget of one namespace.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		// Without knowing all registrations, intercepted pods would seem not intercepted.
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	if req.Name == "" {
		return c.reconcileBudget(ctx, req.Namespace)
	}
	return c.reconcilePod(ctx, req.NamespacedName)
}

// reconcilePod gathers, decides and applies for one pod.
func (c *Controller) reconcilePod(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	// If the patch does not apply, the pod is newer than the cache.
	for _, reader := range []client.Reader{c.Client, c.APIReader} {
		pod := &corev1.Pod{}
		if err := reader.Get(ctx, key, pod); apierrors.IsNotFound(err) {
			c.use.settle(key)
			return reconcile.Result{}, nil
		} else if err != nil {
			return reconcile.Result{}, fmt.Errorf("get pod: %w", err)
		}
		in, decision, err := c.decideKnowing(ctx, pod)
		c.forgetGone(ctx, pod)
		if err != nil {
			return reconcile.Result{}, err
		}
		result := reconcile.Result{}
		if decision.LookAgain {
			result.RequeueAfter = lookAgain
		}
		c.emit(ctx, pod, in, decision)
		if decision.Change != ChangeClose {
			c.use.settle(key)
		} else if ready, err := c.takeBudget(ctx, key); err != nil || !ready {
			return result, err
		}
		if decision.Change == ChangeNothing {
			return result, nil
		}
		if later := c.later(key, pod, in.Request, decision.Change); later > 0 {
			c.use.settle(key)
			return reconcile.Result{RequeueAfter: later}, nil
		}
		done, err := c.label(ctx, pod, in.Request, decision)
		if err != nil || done {
			c.use.settle(key)
			return result, err
		}
	}
	return reconcile.Result{}, fmt.Errorf("label pod %s for the guard: it kept changing", key)
}

// later is how long a change of the pod's label for a request must wait; 0 means that it
// may be made now.
func (c *Controller) later(key types.NamespacedName, pod *corev1.Pod, request types.UID, change Change) time.Duration {
	now := c.Clock.Now()
	// Check again, in case it was undone before the cache showed it.
	if c.written.justWrote(key, wrote{pod.UID, change == ChangeClose, now}) {
		return pause
	}
	return c.written.waitToWrite(key, pod.UID, request, now)
}

// decideKnowing is decide, but reads the pod's controller first if it could matter.
func (c *Controller) decideKnowing(ctx context.Context, pod *corev1.Pod) (Input, Decision, error) {
	// Checked first: another worker may read it while we decide without it.
	unknown := c.owners.unknown(pod)
	in, decision, err := c.decide(ctx, pod)
	if err != nil || decision.Change == ChangeNothing || !unknown {
		return in, decision, err
	}
	if err := c.owners.learn(ctx, c.APIReader, pod); err != nil {
		return in, decision, err
	}
	return c.decide(ctx, pod)
}

// decide gathers and decides, and updates the counts. It makes no API call.
func (c *Controller) decide(ctx context.Context, pod *corev1.Pod) (Input, Decision, error) {
	in, err := c.gather(ctx, pod)
	if err != nil {
		return in, Decision{}, err
	}
	d := Step(in)
	key := client.ObjectKeyFromObject(pod)
	c.Metrics.Observe(key, metricState(in, d))
	if left := d.Left && in.Closed; c.written.leave(key, left) && !left && d.State.Closes() {
		c.queue.Add(namespaceKey(pod.Namespace)) // Its budget counts again.
	}
	return in, d, nil
}

// forgetGone removes the count of a pod whose deletion event may have come before: it would
// be counted forever. The cache knows about the deletion before the event.
func (c *Controller) forgetGone(ctx context.Context, pod *corev1.Pod) {
	key := client.ObjectKeyFromObject(pod)
	if apierrors.IsNotFound(c.Client.Get(ctx, key, &corev1.Pod{}, client.UnsafeDisableDeepCopy)) {
		c.Metrics.Forget(key)
	}
}

// metricState is what is counted of a pod.
func metricState(in Input, d Decision) string {
	switch {
	case d.Left && in.Closed:
		return metrics.GuardLabelLeft
	case d.State.Closes() && !in.Closed:
		return metrics.GuardUnguarded
	case d.State == StateClosed:
		return metrics.GuardClosed
	case d.State == StateHeld:
		return metrics.GuardHeld
	case d.State == StateOtherBudget:
		return metrics.GuardOtherBudget
	default:
		return ""
	}
}

// label applies a change for a request. It returns false if the pod has changed.
func (c *Controller) label(ctx context.Context, pod *corev1.Pod, request types.UID, d Decision) (bool, error) {
	patch, err := labelPatch(pod, d.Change)
	if err != nil {
		return false, err
	}
	key := client.ObjectKeyFromObject(pod)
	now := c.Clock.Now()
	c.written.write(key, wrote{pod.UID, d.Change == ChangeClose, now})
	c.written.writes(key, pod.UID, request, now)
	err = c.Client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldOwner))
	if err != nil {
		c.written.forgetWrote(key)
	}
	switch {
	case err == nil:
		c.Metrics.Labeled(d.Change == ChangeClose)
		log.FromContext(ctx).V(1).Info("Labeled the pod", "change", d.Change.String(), "state", d.State.String())
		return true, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case refused.Changed(err):
		return false, nil
	default:
		return false, fmt.Errorf("label pod for the guard: %w", err)
	}
}

// emit records events about the pod's guard, each once.
func (c *Controller) emit(ctx context.Context, pod *corev1.Pod, in Input, d Decision) {
	if d.State == StateHeld {
		c.emitHeld(ctx, pod, in.Hold)
	}
	if ref := c.owners.of(pod); d.Left && ref != nil && c.owners.firstTime(ref) {
		controller := &corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: pod.Namespace, Name: ref.Name, UID: ref.UID}
		events.Emit(c.Recorder, controller, pod, events.GuardLabelLeft(v1alpha1.GuardLabel))
		log.FromContext(ctx).Info("A controller selects pods by the guard's label, which is left as it is", "controller", ref.Kind+"/"+ref.Name)
	}
}

// emitHeld records, once per request, that the guard stays closed, and why.
func (c *Controller) emitHeld(ctx context.Context, pod *corev1.Pod, why string) {
	er := &v1alpha1.EvictionRequest{}
	if err := c.Client.Get(ctx, v1alpha1.RequestKey(pod), er); err != nil {
		return // It is gone, and so is the need for an event.
	}
	if c.written.firstTime(client.ObjectKeyFromObject(pod), er.UID) {
		events.EmitOnBoth(c.Recorder, er, events.GuardHeld(why))
	}
}
