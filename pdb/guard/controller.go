package guard

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/preflight"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
)

const (
	// pause is when to look again at what ends by itself: caches that are not in
	// sync, or behind.
	pause = time.Second
	// lookAgain is when to look again at what may change without an event: who does not
	// know yet holds a pod, or cannot say whether it has something to do. It is a look
	// into memory.
	lookAgain = 10 * time.Second
	// DefaultIdleDelay is how long a namespace keeps a budget that nobody needs. It is
	// shorter than the 15 min after which the usual alerts on budgets fire.
	DefaultIdleDelay = 10 * time.Minute
)

// Controller puts the guard's label on pods and takes it off, and keeps one budget
// in each namespace that has such pods.
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
	// Resolver says who intercepts a pod. No guard is opened while somebody may be
	// missing.
	Resolver registration.Resolver
	// Registrations say what an interceptor wants of the guard. Who has none wants
	// v1alpha1.GuardWhileEvacuating.
	Registrations registration.Lookup
	// Preflights returns the interceptor of that name if it has a say before a request
	// exists, nil otherwise: the guard must not keep what the webhook lets through. They
	// may be given the pods of the cache.
	Preflights func(name string) preflight.Interceptor
	// Holds says whose guard stays closed.
	Holds Holds
	// OnChange takes a function that is to be called, from any goroutine, when
	// Resolver or Registrations may answer differently for pods that have not changed.
	OnChange func(func())
	// Synced reports whether the caches and the resolver know all they answer from.
	Synced func() bool
	// ExcludedNamespaces are those that the webhook is not asked for; there is never
	// a guard.
	ExcludedNamespaces []string
	// Owner is the ClusterRole that owns the budgets: when it is deleted, with our
	// installation or because the guard is switched off, they go, too. Without it no
	// budget is made. Empty means that nobody owns them.
	Owner string
	// Recorder records events on pods, requests and budgets.
	Recorder eventsclient.EventRecorder
	Metrics  *metrics.Guard
	// IdleDelay is how long a namespace keeps a budget that nobody needs. Default
	// DefaultIdleDelay.
	IdleDelay time.Duration

	memory *memory
	owners *owners
	queue  guardQueue
}

var _ reconcile.Reconciler = &Controller{}

// fieldOwner is the field manager of what the guard writes.
const fieldOwner = "guard." + v1alpha1.GroupName

// guardQueue is the queue of this controller.
type guardQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// namespaceKey is the key of a namespace's budget.
func namespaceKey(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace}}
}

// Reconcile handles one pod, or the budget of one namespace.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		// Who has not heard of all registrations would take nobody for intercepted.
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	if req.Name == "" {
		return c.reconcileBudget(ctx, req.Namespace)
	}
	return c.reconcilePod(ctx, req.NamespacedName)
}

// reconcilePod gathers, decides and applies for one pod.
func (c *Controller) reconcilePod(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
	// When the patch does not fit, the pod is newer than what the cache shows.
	for _, reader := range []client.Reader{c.Client, c.APIReader} {
		pod := &corev1.Pod{}
		if err := reader.Get(ctx, key, pod); apierrors.IsNotFound(err) {
			c.memory.settle(key)
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
		c.tell(ctx, pod, in, decision)
		if decision.Change != ChangeClose {
			c.memory.settle(key)
		} else if ready, err := c.takeBudget(ctx, key); err != nil || !ready {
			return result, err
		}
		if decision.Change == ChangeNothing {
			return result, nil
		}
		if later := c.later(key, pod, in.Request, decision.Change); later > 0 {
			c.memory.settle(key)
			return reconcile.Result{RequeueAfter: later}, nil
		}
		done, err := c.label(ctx, pod, in.Request, decision)
		if err != nil || done {
			c.memory.settle(key)
			return result, err
		}
	}
	return reconcile.Result{}, fmt.Errorf("label pod %s for the guard: it kept changing", key)
}

// later is how long a change of the pod's label for a request has to wait; 0 means that it
// may be made now.
func (c *Controller) later(key types.NamespacedName, pod *corev1.Pod, request types.UID, change Change) time.Duration {
	now := c.Clock.Now()
	// In case somebody has undone it before the cache showed it, look again.
	if c.memory.justWrote(key, wrote{pod.UID, change == ChangeClose, now}) {
		return pause
	}
	return c.memory.waitToWrite(key, pod.UID, request, now)
}

// decideKnowing decides as decide does, and asks for the pod's controller before that if
// it could matter.
func (c *Controller) decideKnowing(ctx context.Context, pod *corev1.Pod) (Input, Decision, error) {
	// Looked at first: another worker may learn of it while we decide without it.
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

// decide gathers and decides, and keeps up to date what is counted. It makes no API call.
func (c *Controller) decide(ctx context.Context, pod *corev1.Pod) (Input, Decision, error) {
	in, err := c.gather(ctx, pod)
	if err != nil {
		return in, Decision{}, err
	}
	d := Step(in)
	key := client.ObjectKeyFromObject(pod)
	c.Metrics.Observe(key, metricState(in, d))
	if left := d.Left && in.Closed; c.memory.leave(key, left) && !left && d.State.Closes() {
		c.queue.Add(namespaceKey(pod.Namespace)) // Its budget counts again.
	}
	return in, d, nil
}

// forgetGone takes back what was just counted of a pod whose end, an event, may have
// been noticed before: it would be counted for ever. The cache knows of the end before
// the event comes.
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

// label applies a change for a request. It returns false if the pod was not as it was seen.
func (c *Controller) label(ctx context.Context, pod *corev1.Pod, request types.UID, d Decision) (bool, error) {
	patch, err := labelPatch(pod, d.Change)
	if err != nil {
		return false, err
	}
	key := client.ObjectKeyFromObject(pod)
	now := c.Clock.Now()
	c.memory.write(key, wrote{pod.UID, d.Change == ChangeClose, now})
	c.memory.writes(key, pod.UID, request, now)
	err = c.Client.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(fieldOwner))
	if err != nil {
		c.memory.forgetWrote(key)
	}
	switch {
	case err == nil:
		c.Metrics.Labeled(d.Change == ChangeClose)
		log.FromContext(ctx).V(1).Info("Labeled the pod", "change", d.Change.String(), "state", d.State.String())
		return true, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return false, nil
	default:
		return false, fmt.Errorf("label pod for the guard: %w", err)
	}
}

// tell records what people have to know about the pod's guard, each once.
func (c *Controller) tell(ctx context.Context, pod *corev1.Pod, in Input, d Decision) {
	if d.State == StateHeld {
		c.tellHeld(ctx, pod, in.Hold)
	}
	if ref := c.owners.of(pod); d.Left && ref != nil && c.owners.tell(ref) {
		controller := &corev1.ObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: pod.Namespace, Name: ref.Name, UID: ref.UID}
		events.Emit(c.Recorder, controller, pod, events.GuardLabelLeft(v1alpha1.GuardLabel))
		log.FromContext(ctx).Info("A controller selects pods by the guard's label, which is left as it is", "controller", ref.Kind+"/"+ref.Name)
	}
}

// tellHeld records once per request that the guard stays closed, and why.
func (c *Controller) tellHeld(ctx context.Context, pod *corev1.Pod, why string) {
	er := &v1alpha1.EvictionRequest{}
	if err := c.Client.Get(ctx, v1alpha1.RequestKey(pod), er); err != nil {
		return // It has just gone, and nobody is left to be told.
	}
	if c.memory.tell(client.ObjectKeyFromObject(pod), er.UID) {
		events.EmitOnBoth(c.Recorder, er, events.GuardHeld(why))
	}
}
