package maintenance

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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/internal/index"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

const (
	// pause is when to retry while the caches are not in sync.
	pause = time.Second
	// staleDelay is when to retry a pod that has changed meanwhile.
	staleDelay = 100 * time.Millisecond
	// planDelay batches changes of the pods and nodes of a maintenance.
	planDelay = time.Second
	// countDelay is how often a status is written if only numbers and names have changed.
	// With 500 nodes it has some 100 KB.
	countDelay = 5 * time.Second
	// confirmations is how many nodes are confirmed live in one pass.
	confirmations = 50
)

// Defaults of PodPolicy.
const (
	// DefaultWait does not wait for owners. KEP-4212 ("Pod API") has 3 minutes, for
	// controllers that set EvacuationInitiated. None of Kubernetes' own do, and without
	// one each drain would take 3 minutes longer for nothing.
	DefaultWait = 0 * time.Minute
	// DefaultTerminatingAfter is an estimate of what is late for a kubelet.
	DefaultTerminatingAfter = time.Minute
)

// Controller is the controller of NodeMaintenances.
type Controller struct {
	// Client reads from the cache and writes. It needs the indexes of internal/index.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Requests joins and leaves EvictionRequests. It must not read from a cache.
	Requests client.WithWatch
	// Evict evicts a pod of a DaemonSet by one call of its eviction subresource, with the UID as a
	// precondition and a deadline. The error is the API server's answer.
	Evict func(ctx context.Context, pod types.NamespacedName, uid types.UID) error
	// Clock also drives the queues, which SetupWithManager makes.
	Clock clock.WithTicker
	// Resolver returns the interceptors of a pod. While one may be missing, no eviction
	// is requested.
	Resolver registration.Resolver
	// Synced reports whether the caches and the resolver are in sync.
	Synced func() bool
	// Recorder records events on maintenances and nodes.
	Recorder eventsclient.EventRecorder
	Metrics  *metrics.Maintenance
	// Policy has the constants about pods.
	Policy PodPolicy

	counts    *podCounts
	selectors *selectors
	decided   *decided
	failures  *failures
	daemons   *daemons
	restored  *restored
	// The queues of the three controllers that watch: maintenances, nodes and pods.
	plans, nodes, pods controllers.Queue
	// evictions wakes the controller that evicts pods of DaemonSets.
	evictions controllers.Waker
}

func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func (c *Controller) validate() error {
	return controllers.Require("controller of NodeMaintenances", map[string]bool{
		"Client": c.Client != nil, "APIReader": c.APIReader != nil, "Requests": c.Requests != nil, "Evict": c.Evict != nil, "Clock": c.Clock != nil,
		"Resolver": c.Resolver != nil, "Synced": c.Synced != nil, "Recorder": c.Recorder != nil, "Metrics": c.Metrics != nil,
	})
}

// init prepares what the controllers share.
func (c *Controller) init() {
	c.counts, c.selectors, c.decided, c.failures, c.daemons, c.restored = newPodCounts(), newSelectors(), newDecided(), newFailures(), newDaemons(), newRestored()
}

// get reads a maintenance from the cache, nil if there is none.
func (c *Controller) get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	m := &v1alpha1.NodeMaintenance{}
	switch err := c.Client.Get(ctx, types.NamespacedName{Name: name}, m, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // That there is none is an answer.
	case err != nil:
		return nil, fmt.Errorf("get NodeMaintenance %s: %w", name, err)
	}
	return m, nil
}

// podsOn are the pods of a node in the cache. They are shared and must not be changed.
func (c *Controller) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.Client.List(ctx, list, client.MatchingFields{index.PodsByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// toGo reports whether a pod must leave a drained node, whatever its waves are.
func toGo(pod *corev1.Pod) bool { return !pods.StaysOnNode(pod) && !pods.HasEnded(pod) }

// stagesOf are the stages that the node's maintenances have on it.
func stagesOf(node *corev1.Node) Stages {
	return parseStages(node.Annotations[v1alpha1.MaintenancesAnnotation])
}
