package guard

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/internal/refused"
)

// repairAgain is when to retry a repair that did not last.
const repairAgain = 30 * time.Second

// budgetKey is the key of a namespace's budget: no pod has this name.
func budgetKey(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: "poddisruptionbudgets/" + v1alpha1.GuardBudgetName}
}

// takeBudget reports whether the namespace's budget is in force and will stay, so that
// a label protects immediately. If not, the pod waits for it.
func (c *Controller) takeBudget(ctx context.Context, pod types.NamespacedName) (bool, error) {
	// First of all: otherwise the budget's event could come between the check and the
	// wait.
	c.use.wait(pod)
	pdb, err := c.budget(ctx, pod.Namespace)
	if err != nil {
		return false, err
	}
	if pdb != nil && inForce(pdb) && c.use.use(pod.Namespace, pdb.UID, c.Clock.Now()) {
		return true, nil
	}
	c.queue.Add(namespaceKey(pod.Namespace))
	return false, nil
}

// reconcileBudget gathers, decides and applies for the budget of one namespace, and
// wakes the pods that wait for it.
func (c *Controller) reconcileBudget(ctx context.Context, namespace string) (reconcile.Result, error) {
	pdb, err := c.budget(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := c.Clock.Now()
	if pdb != nil {
		c.use.seen(namespace)
	}
	needed, err := c.needed(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if needed {
		c.use.need(namespace, now)
	}
	in := BudgetInput{
		Budget: pdb, Needed: needed, LastNeeded: c.use.lastNeeded(namespace, now),
		Owner: c.Owner, Wait: c.written.waitToWrite(budgetKey(namespace), "", "", now),
	}
	d := BudgetStep(in, now, c.idleDelay())
	result := reconcile.Result{}
	switch d.Action {
	case BudgetCreate:
		if c.use.justMade(namespace, now) {
			return reconcile.Result{RequeueAfter: pause}, nil // In case it was removed before we saw it.
		}
		result, err = c.create(ctx, namespace)
	case BudgetRepair:
		result, err = c.repair(ctx, pdb)
	case BudgetDelete:
		err = c.remove(ctx, pdb, in.LastNeeded)
	case BudgetBlocked:
		if c.written.firstTime(budgetKey(namespace), pdb.UID) {
			events.Emit(c.Recorder, pdb, nil, events.GuardNameTaken(pdb.Name))
		}
		log.FromContext(ctx).Info("Somebody else's budget has the name of the guard's, the namespace goes without a guard", "budget", pdb.Name)
	case BudgetKeep:
		if pdb == nil && !needed {
			c.use.forgetNamespace(namespace)
			c.written.forgetEmitted(budgetKey(namespace))
		}
	}
	if err != nil {
		if _, refusal := refused.Of(err); refusal && (pdb == nil || !inForce(pdb)) {
			c.Metrics.ObserveBudget(namespace, metrics.GuardBudgetRefused)
		}
		return reconcile.Result{}, fmt.Errorf("%s the guard's budget of namespace %s: %w", d.Action, namespace, err)
	}
	c.Metrics.ObserveBudget(namespace, c.budgetState(pdb))
	if pdb != nil && in.Wait > 0 && isGuard(pdb) && !asWanted(pdb, c.Owner) {
		c.emitChanged(ctx, pdb) // Each repair of it was undone.
	}
	if pdb != nil && inForce(pdb) {
		for _, pod := range c.use.waitingIn(namespace) {
			c.queue.Add(reconcile.Request{NamespacedName: pod})
		}
	}
	if !d.WakeAt.IsZero() {
		result.RequeueAfter = max(d.WakeAt.Sub(now), time.Millisecond)
	}
	return result, nil
}

func (c *Controller) idleDelay() time.Duration {
	if c.IdleDelay > 0 {
		return c.IdleDelay
	}
	return DefaultIdleDelay
}

// budget returns the budget with the guard's name in a namespace, nil for none. One
// that we have removed counts as none.
func (c *Controller) budget(ctx context.Context, namespace string) (*policyv1.PodDisruptionBudget, error) {
	pdb := &policyv1.PodDisruptionBudget{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: v1alpha1.GuardBudgetName}, pdb)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get the guard's budget: %w", err)
	case c.use.wasRemoved(namespace, pdb.UID):
		return nil, nil
	default:
		return pdb, nil
	}
}

// needed reports whether a pod of the namespace waits for the budget or is
// protected by it.
func (c *Controller) needed(ctx context.Context, namespace string) (bool, error) {
	if len(c.use.waitingIn(namespace)) > 0 {
		return true, nil
	}
	closed := &corev1.PodList{}
	if err := c.Client.List(ctx, closed, client.InNamespace(namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{v1alpha1.GuardLabel: v1alpha1.GuardClosed}); err != nil {
		return false, fmt.Errorf("list guarded pods: %w", err)
	}
	for i := range closed.Items {
		pod := &closed.Items[i]
		if pod.DeletionTimestamp == nil && !pods.HasEnded(pod) && !c.written.isLeft(client.ObjectKeyFromObject(pod)) {
			return true, nil
		}
	}
	return false, nil
}

// budgetState is what is counted of a namespace's budget; nil for none.
func (c *Controller) budgetState(pdb *policyv1.PodDisruptionBudget) string {
	switch {
	case pdb == nil:
		return ""
	case !isGuard(pdb):
		return metrics.GuardBudgetNameTaken
	case !inForce(pdb):
		return metrics.GuardBudgetNotInForce
	case !asWanted(pdb, c.Owner):
		return metrics.GuardBudgetChanged
	default:
		return metrics.GuardBudgetInForce
	}
}

// create makes the budget of a namespace.
func (c *Controller) create(ctx context.Context, namespace string) (reconcile.Result, error) {
	owner, err := c.owner(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	pdb := NewBudget(namespace, owner)
	c.written.writes(budgetKey(namespace), "", "", c.Clock.Now())
	err = c.Client.Create(refused.About(ctx, c.waitingPods(ctx, namespace)...), pdb, client.FieldOwner(fieldOwner))
	switch {
	case err == nil:
		c.use.make(namespace, c.Clock.Now())
		log.FromContext(ctx).Info("Made the guard's budget")
		c.emitChanged(ctx, pdb)
		return reconcile.Result{}, nil
	case apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: pause}, nil // Our cache is behind.
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{}, nil // The namespace is being deleted with its pods.
	default:
		return reconcile.Result{}, err
	}
}

// maxWaiting bounds the pods that have an event when their namespace's budget is refused.
const maxWaiting = 50

// waitingPods are the pods of a namespace that wait for its budget.
func (c *Controller) waitingPods(ctx context.Context, namespace string) []corev1.ObjectReference {
	var waiting []corev1.ObjectReference
	for _, key := range c.use.waitingIn(namespace) {
		pod := &corev1.Pod{}
		if c.Client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy) == nil && len(waiting) < maxWaiting {
			waiting = append(waiting, refused.Pod(pod))
		}
	}
	return waiting
}

// repair restores the budget. The stored object shows whether something else writes it,
// too: then it is retried later, and an event is emitted.
func (c *Controller) repair(ctx context.Context, pdb *policyv1.PodDisruptionBudget) (reconcile.Result, error) {
	var owner *metav1.OwnerReference
	if !ownedBy(pdb, c.Owner) {
		var err error
		if owner, err = c.owner(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	now := c.Clock.Now()
	c.written.writes(budgetKey(pdb.Namespace), "", "", now)
	stored := repaired(pdb, owner)
	err := c.Client.Update(ctx, stored, client.FieldOwner(fieldOwner))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // Its event brings us back.
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if asWanted(stored, c.Owner) {
		log.FromContext(ctx).Info("Repaired the guard's budget")
		return reconcile.Result{}, nil
	}
	c.emitChanged(ctx, stored)
	return reconcile.Result{RequeueAfter: max(c.written.waitToWrite(budgetKey(pdb.Namespace), "", "", now), repairAgain)}, nil
}

// emitChanged records, once per budget, that it differs from what we wrote.
func (c *Controller) emitChanged(ctx context.Context, pdb *policyv1.PodDisruptionBudget) {
	fields := differences(pdb, c.Owner)
	if len(fields) == 0 || !c.written.firstTime(budgetKey(pdb.Namespace), pdb.UID) {
		return
	}
	events.Emit(c.Recorder, pdb, nil, events.GuardBudgetChanged(fields, refuses(pdb), exceptsUnready(pdb)))
	log.FromContext(ctx).Info("Something changes the guard's budget whenever it is written", "fields", fields, "protects", refuses(pdb))
}

// owner refers to the owner of the budgets, nil if there is to be none. If it is
// missing we are being removed, and a budget created now would stay forever.
func (c *Controller) owner(ctx context.Context) (*metav1.OwnerReference, error) {
	if c.Owner == "" {
		return nil, nil
	}
	role := &metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	if err := c.APIReader.Get(ctx, types.NamespacedName{Name: c.Owner}, role); err != nil {
		return nil, fmt.Errorf("get ClusterRole %s, which owns the guard's budgets: %w", c.Owner, err)
	}
	return &metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID}, nil
}

// remove deletes a budget that was not needed since then.
func (c *Controller) remove(ctx context.Context, pdb *policyv1.PodDisruptionBudget, unusedSince time.Time) error {
	if !c.use.remove(pdb.Namespace, pdb.UID, unusedSince) {
		c.queue.Add(namespaceKey(pdb.Namespace))
		return nil
	}
	err := c.Client.Delete(ctx, pdb, client.Preconditions{UID: &pdb.UID})
	if client.IgnoreNotFound(err) != nil {
		c.use.forgetBudget(pdb.Namespace, pdb.UID)
		return err
	}
	log.FromContext(ctx).Info("Removed the guard's budget, nobody has needed it for a while")
	return nil
}
