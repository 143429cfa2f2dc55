package maintenance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/events"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// reconcilePlan gathers, decides and applies for one maintenance.
func (c *Controller) reconcilePlan(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	m := &v1alpha1.NodeMaintenance{}
	if err := c.Client.Get(ctx, req.NamespacedName, m); apierrors.IsNotFound(err) {
		c.forget(req.Name)
		_, err := c.release(ctx, req.Name)
		return reconcile.Result{}, err
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("get NodeMaintenance: %w", err)
	}
	if m.DeletionTimestamp != nil {
		return c.end(ctx, m)
	}
	if !controllerutil.ContainsFinalizer(m, v1alpha1.MaintenanceFinalizer) {
		return reconcile.Result{}, c.patchFinalizer(ctx, m, controllerutil.AddFinalizer)
	}
	if m.Spec.Cordon && m.Status.CompletionTime != nil {
		c.counts.restart(m.Name) // Another round begins.
	}
	c.counts.resume(m.Name, m.Status)
	in, err := c.gatherPlan(ctx, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	d := PlanStep(in)
	c.decided.decide(m.Name, d.Stages, d.Waves)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		_, begins := d.Waves[n.Name]
		if begins || d.Stages[n.Name] != n.Stage || rank(n.Stage) >= rank(v1alpha1.StageCordon) && !n.Unschedulable {
			c.nodes.Add(named(n.Name))
		}
	}
	if !d.WakeAt.IsZero() {
		c.plans.AddAfter(named(m.Name), d.WakeAt.Sub(in.Now))
	}
	c.Metrics.Observe(m.Name, d.Status)
	return c.writeStatus(ctx, m, d.Status)
}

// forget forgets a maintenance that is gone.
func (c *Controller) forget(name string) {
	c.decided.forget(name)
	c.counts.forget(name)
	c.Metrics.Forget(name)
}

// gatherPlan collects what is known about the nodes of a maintenance: from memory, and live
// for nodes that seem to be drained, or ready for their next wave.
func (c *Controller) gatherPlan(ctx context.Context, m *v1alpha1.NodeMaintenance) (PlanInput, error) {
	in := PlanInput{Spec: m.Spec, Generation: m.Generation, Status: m.Status, Now: c.Clock.Now()}
	selects := c.selectors.of(m)
	if selects.err != nil {
		in.SelectorError = selects.err.Error()
	}
	list := &corev1.NodeList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return in, fmt.Errorf("list nodes: %w", err)
	}
	waves := c.selectors.wavesOf(m)
	confirmed := 0
	for i := range list.Items {
		node := &list.Items[i]
		stage := stagesOf(node)[m.Name]
		switch {
		case node.DeletionTimestamp == nil && selects.selects(node):
		case stage != "":
			in.Releasing++
			c.nodes.Add(named(node.Name))
			continue
		default:
			continue
		}
		facts := NodeFacts{Name: node.Name, Stage: stage, Unschedulable: node.Spec.Unschedulable, Gone: c.counts.goneFrom(m.Name, node.Name)}
		if rank(stage) >= rank(v1alpha1.StageDrain) {
			facts.Pods = c.counts.count(m.Name, node.Name)
			loss := translate.NodeLossOf(node)
			facts.Lost = !loss.At.IsZero() && !in.Now.Before(loss.At)
			if loss.At.After(in.Now) {
				c.plans.AddAfter(named(m.Name), loss.At.Sub(in.Now))
			}
			begun := translate.BegunWavesOf(node)[m.Name]
			facts.Wave, facts.WaveSince = waves.Position(begun.Name), begun.Since
			facts.Behind = facts.Wave < waves.DaemonSets() && len(oursOf(node.Spec.Taints)) > 0 &&
				(waves.AllDaemonSets() || c.counts.hadDaemons(m.Name, node.Name))
		}
		if stage == v1alpha1.StageDrain && m.Spec.Drain && facts.open() == 0 {
			if confirmed++; confirmed > confirmations {
				c.plans.AddAfter(named(m.Name), planDelay)
			} else if err := c.confirm(ctx, waves, &facts); err != nil {
				return in, err
			} else if !facts.Empty {
				c.plans.AddAfter(named(m.Name), planDelay)
			}
		} else if stage == v1alpha1.StageDrain && m.Spec.Drain && facts.Wave < len(waves) {
			if err := c.gatherWaves(ctx, m, waves, &facts, in.Now, &confirmed); err != nil {
				return in, err
			}
		}
		in.Nodes = append(in.Nodes, facts)
	}
	sortNodes(in.Nodes)
	return in, nil
}

// confirm lists the pods of a node live: the cache may not yet show one that was just bound
// to it.
func (c *Controller) confirm(ctx context.Context, waves translate.Waves, facts *NodeFacts) error {
	pods, err := c.livePodsOn(ctx, waves, facts.Name)
	if err != nil {
		return err
	}
	facts.Empty = true
	for i := range pods {
		leaves, err := c.leaves(ctx, waves, &pods[i])
		if err != nil {
			return err
		}
		if leaves && (!facts.Lost || pods[i].DeletionTimestamp == nil) {
			facts.Empty = false
			facts.Pods.Pending++
		}
	}
	return nil
}

// gatherWaves counts the pods of a node by their waves: from the cache, and live before another
// wave begins, because the cache may not yet show a pod that was just bound to the node.
func (c *Controller) gatherWaves(ctx context.Context, m *v1alpha1.NodeMaintenance, waves translate.Waves, facts *NodeFacts, now time.Time, confirmed *int) error {
	pods, err := c.podsOn(ctx, facts.Name)
	if err != nil {
		return err
	}
	if err := c.countWaves(ctx, waves, facts, pods); err != nil {
		return err
	}
	if next, _, _ := facts.nextWave(m.Spec.Waves, now); next == 0 {
		return nil
	}
	if *confirmed++; *confirmed > confirmations {
		facts.Unconfirmed = true
		c.plans.AddAfter(named(m.Name), planDelay)
		return nil
	}
	if pods, err = c.livePodsOn(ctx, waves, facts.Name); err != nil {
		return err
	}
	if err := c.countWaves(ctx, waves, facts, pods); err != nil {
		return err
	}
	if next, _, _ := facts.nextWave(m.Spec.Waves, now); next == 0 {
		c.plans.AddAfter(named(m.Name), planDelay) // The cache will show what is newer.
	}
	return nil
}

// livePodsOn are the pods of a node in the API server, for a maintenance with these waves.
func (c *Controller) livePodsOn(ctx context.Context, waves translate.Waves, node string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.APIReader.List(ctx, list, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)}); err != nil {
		return nil, fmt.Errorf("list the pods of node %s live: %w", node, err)
	}
	if waves.DaemonSets() > 0 {
		c.learn(list.Items)
	}
	return list.Items, nil
}

// writeStatus writes a status that differs from the last one. If only numbers and names
// differ, it waits for more changes.
func (c *Controller) writeStatus(ctx context.Context, m *v1alpha1.NodeMaintenance, status v1alpha1.NodeMaintenanceStatus) (reconcile.Result, error) {
	if equality.Semantic.DeepEqual(m.Status, status) {
		return reconcile.Result{}, nil
	}
	now := c.Clock.Now()
	if wait := c.decided.lastWrote(m.Name).Add(countDelay).Sub(now); wait > 0 && !urgent(m.Status, status) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	before := m.DeepCopy()
	m.Status = status
	if err := c.Client.Status().Update(ctx, m); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{RequeueAfter: planDelay}, nil // The cache will show what is newer.
		}
		return reconcile.Result{}, fmt.Errorf("write status: %w", err)
	}
	c.decided.wrote(m.Name, now)
	c.Metrics.Wrote(metrics.MaintenanceWriteStatus)
	c.emitPlan(before.Status, m)
	return reconcile.Result{}, nil
}

// urgent reports whether more than numbers and names differ.
func urgent(before, after v1alpha1.NodeMaintenanceStatus) bool {
	if before.Stage != after.Stage || before.ObservedGeneration != after.ObservedGeneration ||
		before.Progress.Nodes != after.Progress.Nodes || len(before.Nodes) != len(after.Nodes) {
		return true
	}
	for _, c := range after.Conditions {
		if was := meta.FindStatusCondition(before.Conditions, c.Type); was == nil || was.Status != c.Status || was.Reason != c.Reason {
			return true
		}
	}
	return false
}

// emitPlan records events about changes of a maintenance, after they are written.
func (c *Controller) emitPlan(before v1alpha1.NodeMaintenanceStatus, m *v1alpha1.NodeMaintenance) {
	if before.Stage != m.Status.Stage {
		events.Emit(c.Recorder, m, nil, events.MaintenanceStage(before.Stage, m.Status.Stage, m.Status.Progress))
	}
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionNodesSelected)
	is := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionNodesSelected)
	if is != nil && is.Status == "False" && (was == nil || was.Reason != is.Reason) {
		events.Emit(c.Recorder, m, nil, events.MaintenanceWithoutNodes(is.Message))
	}
}

// end releases what a deleted maintenance holds, and then removes the finalizer.
func (c *Controller) end(ctx context.Context, m *v1alpha1.NodeMaintenance) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(m, v1alpha1.MaintenanceFinalizer) {
		return reconcile.Result{}, nil // Another finalizer remains.
	}
	held, err := c.release(ctx, m.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if held > 0 {
		return reconcile.Result{RequeueAfter: planDelay}, nil
	}
	c.selectors.forget(m.UID)
	return reconcile.Result{}, c.patchFinalizer(ctx, m, controllerutil.RemoveFinalizer)
}

// release enqueues the nodes and pods that a deleted or missing maintenance holds, and
// returns how many there are.
func (c *Controller) release(ctx context.Context, name string) (int, error) {
	held := 0
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		if stagesOf(&nodes.Items[i])[name] != "" {
			c.nodes.Add(named(nodes.Items[i].Name))
			held++
		}
	}
	requests := &v1alpha1.EvictionRequestList{}
	requester := (&v1alpha1.NodeMaintenance{ObjectMeta: metaName(name)}).RequesterName()
	if err := c.Client.List(ctx, requests, client.MatchingFields{index.RequestsByMaintenance: requester}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list EvictionRequests: %w", err)
	}
	for i := range requests.Items {
		er := &requests.Items[i]
		// A refused request keeps its requesters forever, and one that is being deleted
		// may, too: no requester needs to leave either.
		if pod := er.Spec.Target.Pod; pod != nil && !v1alpha1.IsFinished(er) && er.DeletionTimestamp == nil {
			if c.gone(ctx, er) {
				continue // Nothing can be withdrawn; the engine will notice.
			}
			c.pods.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: er.Namespace, Name: pod.Name}})
			held++
		}
	}
	return held, nil
}

// gone reports whether the request's pod no longer exists.
func (c *Controller) gone(ctx context.Context, er *v1alpha1.EvictionRequest) bool {
	pod := &corev1.Pod{}
	target := er.Spec.Target.Pod
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: er.Namespace, Name: target.Name}, pod, client.UnsafeDisableDeepCopy)
	return apierrors.IsNotFound(err) || err == nil && pod.UID != target.UID
}

// patchFinalizer adds or removes our finalizer of the object as it was seen.
func (c *Controller) patchFinalizer(ctx context.Context, m *v1alpha1.NodeMaintenance, change func(client.Object, string) bool) error {
	before := m.DeepCopy()
	change(m, v1alpha1.MaintenanceFinalizer)
	err := c.Client.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch the finalizer: %w", err)
	}
	return nil
}

// reconcileTimeout bounds one Reconcile of any of the controllers.
const reconcileTimeout = 30 * time.Second
