package taints

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/index"
)

const (
	// controllerName is the name of the controller and of its queue.
	controllerName = "taint-eviction"
	// workers is how many pods are handled at a time. A node may lose all its pods within
	// seconds.
	workers = 10
	// reconcileTimeout bounds one Reconcile.
	reconcileTimeout = 20 * time.Second
)

// SetupWithManager adds the controller to the manager, on the leader only.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	err := controllers.Require("controller "+controllerName, map[string]bool{
		"Client": c.Client != nil, "APIReader": c.APIReader != nil, "Requests": c.Requests != nil, "Clock": c.Clock != nil,
		"Resolver": c.Resolver != nil, "OnChange": c.OnChange != nil, "Synced": c.Synced != nil, "Recorder": c.Recorder != nil,
	})
	if err != nil {
		return err
	}
	rescan := controllers.Rescan{
		Pods: mgr.GetCache(), Clock: c.Clock, OnChange: c.OnChange, Synced: c.Synced,
		Each: func(ctx context.Context, pod *corev1.Pod, queue controllers.Queue) { c.enqueue(ctx, pod, queue, 0) },
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Watches(&corev1.Node{}, c.nodeEvents()).
		Watches(&corev1.Pod{}, c.podEvents()).
		Watches(&v1alpha1.EvictionRequest{}, requestEvents()).
		WatchesRawSource(rescan.Source())
	return controllers.Complete(b, controllerName, c, controllers.Options{Clock: c.Clock, Timeout: reconcileTimeout, Workers: workers})
}

// nodeEvents enqueue the pods of a node whose NoExecute taints have changed. Its heartbeats
// do not matter.
func (c *Controller) nodeEvents() controllers.Handler {
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			if node, ok := ev.Object.(*corev1.Node); ok && len(executing(node)) > 0 {
				c.enqueuePods(ctx, node.Name, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			before, ok := ev.ObjectOld.(*corev1.Node)
			after, is := ev.ObjectNew.(*corev1.Node)
			if ok && is && !apiequality.Semantic.DeepEqual(executing(before), executing(after)) {
				c.enqueuePods(ctx, after.Name, queue)
			}
		},
	}
}

func (c *Controller) enqueuePods(ctx context.Context, node string, queue controllers.Queue) {
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.PodsByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Could not list the pods of a node whose taints have changed", "node", node)
		return
	}
	for i := range list.Items {
		if pod := &list.Items[i]; !skipped(pod) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
}

// podEvents enqueue an intercepted pod of a node that has NoExecute taints. On any change:
// the cache does not show those of tolerations.
func (c *Controller) podEvents() controllers.Handler {
	see := func(ctx context.Context, obj client.Object, queue controllers.Queue, delay time.Duration) {
		if pod, ok := obj.(*corev1.Pod); ok {
			c.enqueue(ctx, pod, queue, delay)
		}
	}
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			see(ctx, ev.Object, queue, 0)
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			see(ctx, ev.ObjectNew, queue, pause)
		},
	}
}

// enqueue enqueues a pod if a live look at it may be needed, which is decided from memory.
func (c *Controller) enqueue(ctx context.Context, pod *corev1.Pod, queue controllers.Queue, delay time.Duration) {
	node, err := c.nodeOf(ctx, pod)
	if err != nil {
		// If unknown, do not miss the event.
		log.FromContext(ctx).Error(err, "Looking for the node of a pod", "pod", client.ObjectKeyFromObject(pod))
	}
	if err != nil || node != nil && len(executing(node)) > 0 && c.intercepted(pod) {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}, delay)
	}
}

// requestEvents enqueue the pod of a request that has our entry at the start, when the taint
// may have gone while no manager ran, and of one that has lost it.
func requestEvents() controllers.Handler {
	ours := func(obj client.Object) bool {
		er, ok := obj.(*v1alpha1.EvictionRequest)
		if !ok {
			return false
		}
		joined, _ := entryOf(er)
		return joined
	}
	add := func(ctx context.Context, obj client.Object, queue controllers.Queue) {
		for _, pod := range controllers.PodOfRequest(ctx, obj) {
			queue.AddAfter(pod, pause)
		}
	}
	return controllers.Handler{
		CreateFunc: func(ctx context.Context, ev event.CreateEvent, queue controllers.Queue) {
			if ours(ev.Object) {
				add(ctx, ev.Object, queue)
			}
		},
		UpdateFunc: func(ctx context.Context, ev event.UpdateEvent, queue controllers.Queue) {
			if ours(ev.ObjectOld) && !ours(ev.ObjectNew) {
				add(ctx, ev.ObjectNew, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, ev event.DeleteEvent, queue controllers.Queue) {
			if ours(ev.Object) {
				add(ctx, ev.Object, queue)
			}
		},
	}
}
