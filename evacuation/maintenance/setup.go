package maintenance

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// workers is how many nodes, and how many pods, are handled at a time, and how many pods of
	// DaemonSets are evicted.
	workers = 10
)

// SetupWithManager adds the controllers to the manager, on the leader only.
//
// Three of them watch their own kind. All handlers share their queues, which are created
// when the first controller may start, before any event is handled. The fourth evicts the pods that
// they say.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := c.validate(); err != nil {
		return err
	}
	c.init()
	parts := []part{
		{"maintenance", 1, &c.plans, c.reconcilePlan, &v1alpha1.NodeMaintenance{}, c.planEvents()},
		{"maintenance-node", workers, &c.nodes, c.reconcileNode, &corev1.Node{}, c.nodeEvents()},
		{"maintenance-pod", workers, &c.pods, c.reconcilePod, &corev1.Pod{}, c.podEvents()},
	}
	makeQueues := sync.OnceFunc(func() {
		for _, p := range parts {
			*p.queue = controllers.NewQueue(c.Clock)(p.name, controllers.FastBackoff())
		}
	})
	for _, p := range parts {
		b := ctrl.NewControllerManagedBy(mgr).
			Watches(p.watch, p.events)
		switch p.queue {
		case &c.plans:
			b = b.Watches(&corev1.Namespace{}, c.namespaceEvents())
		case &c.pods:
			b = b.Watches(&v1alpha1.EvictionRequest{}, c.requestEvents())
		}
		if err := controllers.Complete(b, p.name, p.reconcile, controllers.Options{
			Clock: c.Clock, Timeout: reconcileTimeout, Workers: p.workers,
			NewQueue: func(string, controllers.Limiter) controllers.Queue {
				makeQueues()
				return *p.queue
			},
		}); err != nil {
			return err
		}
	}
	// With workers of their own: a webhook of somebody that does not answer holds each of these calls
	// until its deadline, and must not hold up all other pods.
	evictions := ctrl.NewControllerManagedBy(mgr).WatchesRawSource(source.Func(c.evictions.Start))
	return controllers.Complete(evictions, "maintenance-eviction", reconcile.Func(c.reconcileEviction), controllers.Options{
		Clock: c.Clock, Timeout: reconcileTimeout, Workers: workers,
	})
}

// part is one of the three controllers that watch.
type part struct {
	name      string
	workers   int
	queue     *controllers.Queue
	reconcile reconcile.Func
	watch     client.Object
	events    handler.EventHandler
}

// eventsOf calls see with the old and the new object; one of them is nil for creations
// and deletions.
func eventsOf[T client.Object](see func(ctx context.Context, before, after T)) handler.EventHandler {
	var none T
	as := func(obj client.Object) T {
		t, _ := obj.(T)
		return t
	}
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, _ controllers.Queue) { see(ctx, none, as(ev.Object)) },
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, _ controllers.Queue) {
			see(ctx, as(ev.ObjectOld), as(ev.ObjectNew))
		},
		DeleteFunc: func(ctx context.Context, ev event.DeleteEvent, _ controllers.Queue) { see(ctx, as(ev.Object), none) },
	}
}

// planEvents handle maintenances. The plan takes care of their nodes; a new reason
// concerns the pods.
func (c *Controller) planEvents() handler.EventHandler {
	return eventsOf(func(ctx context.Context, before, after *v1alpha1.NodeMaintenance) {
		switch {
		case after == nil:
			c.selectors.forget(before.UID)
			c.plans.Add(named(before.Name))
			return
		case before != nil && before.Generation == after.Generation && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
			len(before.Finalizers) == len(after.Finalizers):
			return
		}
		c.plans.Add(named(after.Name))
		if before != nil && before.Generation != after.Generation {
			c.enqueuePodsOf(ctx, after.Name)
		}
	})
}

// enqueuePodsOf enqueues the pods of all nodes that a maintenance drains, and those of the nodes whose
// taint it may not want any more.
func (c *Controller) enqueuePodsOf(ctx context.Context, maintenance string) {
	nodes := &corev1.NodeList{}
	if err := c.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the nodes of a maintenance", "maintenance", maintenance)
		return
	}
	for i := range nodes.Items {
		if slices.Contains(stagesOf(&nodes.Items[i]).drains(), maintenance) {
			c.enqueuePods(ctx, nodes.Items[i].Name)
			if len(oursOf(nodes.Items[i].Spec.Taints)) > 0 {
				c.nodes.Add(named(nodes.Items[i].Name))
			}
		}
	}
}

// nodeEvents handle nodes. Their heartbeats do not matter.
func (c *Controller) nodeEvents() handler.EventHandler {
	return eventsOf(func(ctx context.Context, before, after *corev1.Node) {
		if after == nil {
			c.counts.drain(before.Name, nil)
			c.planFor(ctx, before)
			return
		}
		if before != nil && !changed(before, after) {
			return
		}
		var was []string
		if before != nil {
			was = stagesOf(before).drains()
		}
		drains := stagesOf(after).drains()
		begins := c.counts.drain(after.Name, drains)
		if begins || !slices.Equal(was, drains) || before != nil && (!sameWaves(before, after) || !sameTaint(before, after)) {
			c.enqueuePods(ctx, after.Name)
		}
		c.nodes.Add(named(after.Name))
		c.planFor(ctx, before)
		c.planFor(ctx, after)
	})
}

// changed reports whether fields that matter to a maintenance differ.
func changed(before, after *corev1.Node) bool {
	return before.UID != after.UID || before.Spec.Unschedulable != after.Spec.Unschedulable ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		before.Annotations[v1alpha1.MaintenancesAnnotation] != after.Annotations[v1alpha1.MaintenancesAnnotation] ||
		before.Annotations[v1alpha1.CordonAnnotation] != after.Annotations[v1alpha1.CordonAnnotation] ||
		before.Annotations[v1alpha1.MaintenancePhaseAnnotation] != after.Annotations[v1alpha1.MaintenancePhaseAnnotation] ||
		!sameWaves(before, after) || !sameTaint(before, after) ||
		translate.NodeLossOf(before) != translate.NodeLossOf(after) ||
		!apiequality.Semantic.DeepEqual(before.Labels, after.Labels)
}

// sameWaves reports whether no wave has begun or ended between the two.
func sameWaves(before, after *corev1.Node) bool {
	return before.Annotations[v1alpha1.MaintenanceWavesAnnotation] == after.Annotations[v1alpha1.MaintenanceWavesAnnotation]
}

// sameTaint reports whether our taint has not changed between the two.
func sameTaint(before, after *corev1.Node) bool {
	return apiequality.Semantic.DeepEqual(oursOf(before.Spec.Taints), oursOf(after.Spec.Taints))
}

// namespaceEvents handle namespaces whose labels have changed: their pods may belong to other
// waves.
func (c *Controller) namespaceEvents() handler.EventHandler {
	return eventsOf(func(ctx context.Context, before, after *corev1.Namespace) {
		if before == nil || after == nil || maps.Equal(before.Labels, after.Labels) {
			return
		}
		list := &v1alpha1.NodeMaintenanceList{}
		if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "Could not list the maintenances whose waves select by namespaces", "namespace", after.Name)
			return
		}
		for i := range list.Items {
			if m := &list.Items[i]; c.selectors.wavesOf(m).SeeNamespaces() {
				c.plans.AddAfter(named(m.Name), planDelay)
				c.enqueuePodsOf(ctx, m.Name)
			}
		}
	})
}

// planFor enqueues the maintenances that select the node or have a stage on it.
func (c *Controller) planFor(ctx context.Context, node *corev1.Node) {
	if node == nil {
		return
	}
	list := &v1alpha1.NodeMaintenanceList{}
	if err := c.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the maintenances of a node", "node", node.Name)
		return
	}
	stages := stagesOf(node)
	for i := range list.Items {
		if m := &list.Items[i]; stages[m.Name] != "" || c.selectors.of(m).selects(node) {
			c.plans.AddAfter(named(m.Name), planDelay)
		}
	}
}

// enqueuePods enqueues all pods of a node, and immediately counts those to evacuate, so
// that the node does not seem to be drained meanwhile.
func (c *Controller) enqueuePods(ctx context.Context, node string) {
	pods, err := c.podsOn(ctx, node)
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not list the pods of a node", "node", node)
		return
	}
	for i := range pods {
		pod := &pods[i]
		key := client.ObjectKeyFromObject(pod)
		if toGo(pod) && !c.counts.knows(node, key, pod.UID) {
			c.counts.put(node, key, pod.UID, countedPod{class: ClassPending})
		}
		c.pods.Add(reconcile.Request{NamespacedName: key})
	}
}

// podEvents handle the pods of drained nodes, and those with our conditions.
func (c *Controller) podEvents() handler.EventHandler {
	return eventsOf(func(_ context.Context, before, after *corev1.Pod) {
		if after == nil {
			c.left(before)
			c.failures.eviction(before.UID, "")
			c.daemons.forget(before.UID)
			return
		}
		if before != nil && before.UID != after.UID {
			c.left(before)
			c.daemons.forget(before.UID)
		}
		drained := after.Spec.NodeName != "" && len(c.counts.drains(after.Spec.NodeName)) > 0
		if !drained && !marked(after) {
			return
		}
		key := client.ObjectKeyFromObject(after)
		if drained && pods.HasEnded(after) {
			c.left(after)
		} else if drained && !pods.StaysOnNode(after) && !c.counts.knows(after.Spec.NodeName, key, after.UID) {
			c.counts.put(after.Spec.NodeName, key, after.UID, countedPod{class: ClassPending})
			c.planLater(after.Spec.NodeName)
		}
		// Other labels may mean another wave.
		relabeled := before != nil && !maps.Equal(pods.CopiedLabels(before.Labels), pods.CopiedLabels(after.Labels))
		if relabeled && drained {
			c.planLater(after.Spec.NodeName)
		}
		if before == nil || before.UID != after.UID || relabeled || podChanged(before, after) {
			c.pods.Add(reconcile.Request{NamespacedName: key})
		}
	})
}

// left counts a pod that has ended, for each maintenance that wanted it evicted.
func (c *Controller) left(pod *corev1.Pod) {
	drains := c.counts.depart(pod.Spec.NodeName, client.ObjectKeyFromObject(pod), pod.UID)
	for _, name := range drains {
		c.counts.left(name, pod.Spec.NodeName)
		c.plans.AddAfter(named(name), planDelay)
	}
}

// marked reports whether the pod has one of our conditions.
func marked(pod *corev1.Pod) bool {
	request := condition(pod, v1alpha1.PodEvacuationRequest, v1alpha1.PodReasonNodeMaintenance)
	return request != nil && request.Ours
}

// podChanged reports whether the decision may change.
func podChanged(before, after *corev1.Pod) bool {
	same := func(kind corev1.PodConditionType, ours string) bool {
		was, is := condition(before, kind, ours), condition(after, kind, ours)
		return was == nil && is == nil || was != nil && is != nil && *was == *is
	}
	owned := func(pod *corev1.Pod) bool { return metav1.GetControllerOfNoCopy(pod) != nil }
	return before.Spec.NodeName != after.Spec.NodeName || before.Status.Phase != after.Status.Phase || owned(before) != owned(after) ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!same(v1alpha1.PodEvacuationRequest, v1alpha1.PodReasonNodeMaintenance) ||
		!same(v1alpha1.PodEvacuationInitiated, v1alpha1.PodReasonInterceptorStarted)
}

// requestEvents handle requests that a maintenance has joined, and those of pods to
// evacuate.
func (c *Controller) requestEvents() handler.EventHandler {
	return eventsOf(func(_ context.Context, before, after *v1alpha1.EvictionRequest) {
		er := after
		if er == nil {
			er = before
		}
		target := er.Spec.Target.Pod
		if target == nil || len(maintenancesIn(er)) == 0 && len(c.counts.drains(er.Status.NodeName)) == 0 {
			return
		}
		c.pods.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: er.Namespace, Name: target.Name}})
	})
}

func metaName(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
