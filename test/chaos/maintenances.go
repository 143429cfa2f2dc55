//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// waveTimeout is how long the first workload waits for the others if the order is HurriedLast.
const waveTimeout = 2 * time.Second

// maintenance is the one of a drain.
func (r *run) maintenance(node string, number int) *v1alpha1.NodeMaintenance {
	w := builder.NodeMaintenance(fmt.Sprintf("%s-%d", r.namespace, number)).Nodes(node).Drain().Reason("chaos")
	switch r.history.Plan.Drains[number].Order {
	case HurriedLast:
		w.AnyWave(v1alpha1.MaintenanceWave{Name: "others", PodSelector: &metav1.LabelSelector{}}).WaveTimeout(waveTimeout).
			Wave("first-workload", builder.AppLabel, firstWorkload)
	case PatientLast: // The others are in no wave, and so before all waves.
		w.Wave("first-workload", builder.AppLabel, firstWorkload)
	case PatientFirst:
		w.Wave("first-workload", builder.AppLabel, firstWorkload).
			AnyWave(v1alpha1.MaintenanceWave{Name: "others", PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: builder.AppLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{firstWorkload}},
			}}})
	}
	return w.Obj()
}

// maintain has a node maintained until ctx ends, and then gives it up.
func (r *run) maintain(ctx context.Context, node string, number int) {
	r.mu.Lock()
	r.history.Ordered = append(r.history.Ordered, Ordered{
		From: time.Now(), Node: node, Requester: r.maintenance(node, number).RequesterName(), Order: r.history.Plan.Drains[number].Order,
	})
	r.mu.Unlock()
	err := insist(ctx, "create a maintenance", func(ctx context.Context) error {
		err := r.world.admin.Create(ctx, r.maintenance(node, number))
		if apierrors.IsAlreadyExists(err) { // The answer before was lost.
			return nil
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.world.tellf("%v", err)
	}
	<-ctx.Done()
	// With everything called off, release does it.
	soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := r.world.admin.Delete(soon, r.maintenance(node, number)); client.IgnoreNotFound(err) != nil {
		r.world.tellf("delete the maintenance of %s: %v", node, err)
	}
}

// release ends all maintenances, waits until they are gone, and notes how they have left
// the nodes.
func (r *run) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return r.await(ctx, "the maintenances to be gone", func(ctx context.Context) error {
		var failures []error
		for number, d := range r.history.Plan.Drains {
			if d.Kind != Maintained {
				continue
			}
			m := r.maintenance(r.nodes[d.Node], number)
			err := client.IgnoreNotFound(r.world.admin.Delete(ctx, m))
			if err == nil {
				err = r.world.admin.Get(ctx, client.ObjectKeyFromObject(m), m)
			}
			if err == nil {
				err = fmt.Errorf("%s is there, status %+v", m.Name, m.Status)
			}
			failures = append(failures, client.IgnoreNotFound(err))
		}
		if err := errors.Join(failures...); err != nil {
			return err
		}
		r.history.LeftNodes = nil
		for _, name := range r.nodes {
			node := &corev1.Node{}
			if err := r.world.admin.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
				return err
			}
			r.history.LeftNodes = append(r.history.LeftNodes, *node)
		}
		return nil
	})
}
