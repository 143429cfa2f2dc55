package maintenance

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/evictor/answer"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/pods"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// daemons is what is known of pods of DaemonSets, by their UID. It is a hint, and safe for
// concurrent use.
type daemons struct {
	mu sync.Mutex
	// tolerates says whether they tolerate translate.MaintenanceTaint. The cache does not have
	// their tolerations.
	tolerates map[types.UID]bool
	calls     map[types.UID]evictCall
}

// evictCall is the last call for the eviction of a pod.
type evictCall struct {
	// refusal is why it was refused; empty if it was not.
	refusal string
	// again is when to call again, pause after it.
	again time.Time
	pause time.Duration
}

func newDaemons() *daemons {
	return &daemons{tolerates: map[types.UID]bool{}, calls: map[types.UID]evictCall{}}
}

// learn notes whether a pod tolerates the taint, and reports whether it does and nobody knew.
func (d *daemons) learn(pod types.UID, tolerates bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.tolerates[pod]
	d.tolerates[pod] = tolerates
	return tolerates && !before
}

// known reports whether a pod tolerates the taint, if that is known.
func (d *daemons) known(pod types.UID) (tolerates, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tolerates, known = d.tolerates[pod]
	return tolerates, known
}

// called notes that the eviction of a pod is called.
func (d *daemons) called(pod types.UID, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := d.calls[pod]
	call.pause = min(max(evictPause, 2*call.pause), maxEvictPause)
	call.again = now.Add(call.pause)
	d.calls[pod] = call
}

// answered notes why the call was refused; empty if it was not. The pause begins now: the answer may
// have taken longer. The pod may be forgotten already.
func (d *daemons) answered(pod types.UID, refusal string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if call, ok := d.calls[pod]; ok {
		call.refusal, call.again = refusal, now.Add(call.pause)
		d.calls[pod] = call
	}
}

func (d *daemons) lastCall(pod types.UID) evictCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[pod]
}

// forget forgets a pod that is gone.
func (d *daemons) forget(pod types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tolerates, pod)
	delete(d.calls, pod)
}

// leaves reports whether a pod must leave the nodes that a maintenance with these waves drains.
func (c *Controller) leaves(ctx context.Context, waves translate.Waves, pod *corev1.Pod) (bool, error) {
	if !pods.StaysOnNode(pod) || waves.DaemonSets() == 0 {
		return toGo(pod), nil
	}
	if tolerates, _ := c.daemons.known(pod.UID); tolerates || pods.HasEnded(pod) {
		return false, nil
	}
	wave, err := c.waveOf(ctx, waves, pod)
	return wave == waves.DaemonSets(), err
}

// learn notes which pods of a live list tolerate the taint. They are decided about again.
func (c *Controller) learn(live []corev1.Pod) {
	for i := range live {
		pod := &live[i]
		if pods.IsOfDaemonSet(pod) && c.daemons.learn(pod.UID, translate.ToleratesMaintenance(pod.Spec.Tolerations)) {
			c.pods.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
		}
	}
}

// daemonOf is what is known of the pod of a DaemonSet, nil if no maintenance takes it from its
// node, and why some of them keep it.
func (c *Controller) daemonOf(ctx context.Context, pod *corev1.Pod) (*Daemon, *Block, error) {
	node, maintenances, err := c.drainersOf(ctx, pod)
	if err != nil {
		return nil, nil, err
	}
	var daemon *Daemon
	var kept *Block
	for _, m := range maintenances {
		waves := c.selectors.wavesOf(m)
		last := waves.DaemonSets()
		if last == 0 {
			continue
		}
		wave, err := c.waveOf(ctx, waves, pod)
		if err != nil {
			return nil, nil, err
		}
		if wave != last {
			continue
		}
		if daemon == nil {
			daemon = &Daemon{Tainted: len(oursOf(node.Spec.Taints)) > 0}
		}
		daemon.Takers = append(daemon.Takers, m.Name)
		if keeps := keptBy(pod, m); keeps != nil {
			kept = keeps
			continue
		}
		daemon.Begun = daemon.Begun || c.beginsDaemonSets(m, translate.BegunWavesOf(node)[m.Name].Name)
	}
	if daemon == nil {
		return nil, nil, nil
	}
	call := c.daemons.lastCall(pod.UID)
	daemon.Refusal, daemon.Again = call.refusal, call.again
	var known bool
	if daemon.Tolerates, known = c.daemons.known(pod.UID); known || pod.DeletionTimestamp != nil {
		return daemon, kept, nil
	}
	live := &corev1.Pod{}
	err = c.APIReader.Get(ctx, client.ObjectKeyFromObject(pod), live)
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != pod.UID:
		return nil, nil, nil // The cache will show it.
	case err != nil:
		return nil, nil, fmt.Errorf("get pod %s live: %w", pod.Name, err)
	}
	daemon.Tolerates = translate.ToleratesMaintenance(live.Spec.Tolerations)
	if c.daemons.learn(pod.UID, daemon.Tolerates) {
		c.planLater(pod.Spec.NodeName) // It waits for no wave.
	}
	return daemon, kept, nil
}

// beginsDaemonSets reports whether the wave of that name is the one of DaemonSets.
func (c *Controller) beginsDaemonSets(m *v1alpha1.NodeMaintenance, wave string) bool {
	waves := c.selectors.wavesOf(m)
	last := waves.DaemonSets()
	return last > 0 && waves.Position(wave) == last
}

// reconcileEviction evicts the pod of a DaemonSet, if that is still the decision.
func (c *Controller) reconcileEviction(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.Synced() {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	pod, in, err := c.seePod(ctx, req.NamespacedName)
	if pod != nil && err == nil && PodStep(in).Evict {
		c.evict(ctx, pod)
	}
	return reconcile.Result{}, err
}

// evict evicts the pod of a DaemonSet. A refusal is called again after a pause.
func (c *Controller) evict(ctx context.Context, pod *corev1.Pod) {
	key := client.ObjectKeyFromObject(pod)
	c.daemons.called(pod.UID, c.Clock.Now())
	given := answer.Classify(c.Evict(ctx, key, pod.UID), 0)
	refusal := ""
	switch given.Result {
	case translate.ResultEvicted:
		c.Metrics.Wrote(metrics.MaintenanceWriteEvict)
	case translate.ResultGone:
	default:
		refusal = given.Explain(nil)
		log.FromContext(ctx).V(1).Info("The pod of a DaemonSet was not evicted, will try again", "pod", key, "because", refusal)
	}
	c.daemons.answered(pod.UID, refusal, c.Clock.Now())
	if refusal != "" {
		c.pods.Add(reconcile.Request{NamespacedName: key}) // To count it as blocked.
	}
}
