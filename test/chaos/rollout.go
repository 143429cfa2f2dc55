//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const (
	// rolloutName is the name of the EvictionBudget, and a label of the pods that it covers.
	rolloutName  = "rollout"
	rolloutLabel = foreign + rolloutName
	// zoneLabel has the zone of a pod.
	zoneLabel = foreign + "zone"
)

// createRollout makes the EvictionBudget of the rollout group.
func (r *run) createRollout(ctx context.Context) error {
	group := r.history.Plan.Rollout
	if group == nil {
		return nil
	}
	budget := builder.EvictionBudget(r.namespace, rolloutName, rolloutLabel, rolloutName).ByPodLabel(zoneLabel, 1).MaxUnavailable("100%").Settle(group.Settle)
	if r.history.Plan.Mode == ModeAlways {
		budget.Guard(v1alpha1.GuardAlways)
	}
	return r.createEvictionBudget(ctx, budget.Obj())
}

// createEvictionBudget makes one and waits until it is accepted.
func (r *run) createEvictionBudget(ctx context.Context, object *v1alpha1.EvictionBudget) error {
	if err := r.world.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("create EvictionBudget %s: %w", object.Name, err)
	}
	return r.await(ctx, "EvictionBudget "+object.Name, func(ctx context.Context) error {
		if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionAccepted) {
			return fmt.Errorf("conditions %+v", object.Status.Conditions)
		}
		return nil
	})
}

// lose deletes a pod of a zone, as somebody does who does not evict.
func (r *run) lose(ctx context.Context, l Loss) {
	if !r.until(ctx, l.At) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(maxFaultSteps)*Step)
	defer cancel()
	err := insist(ctx, "delete a pod of zone "+l.Zone, func(ctx context.Context) error {
		var pods []*corev1.Pod
		for _, pod := range r.observer.podsNow() {
			if pod.Labels[zoneLabel] == l.Zone && isReady(pod) {
				pods = append(pods, pod)
			}
		}
		if len(pods) == 0 {
			return nil // All of them are away already.
		}
		pod := slices.MinFunc(pods, func(a, b *corev1.Pod) int { return compareNames(a, b) })
		r.world.tellf("pod %s %s is deleted", pod.Name, pod.UID)
		return client.IgnoreNotFound(r.world.admin.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
	})
	if err != nil {
		r.world.tellf("%v", err)
	}
}
