//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// cause makes one fault happen and ends it again. Whatever ends early, the end of the
// fault is not left out.
func (r *run) cause(ctx context.Context, f Fault) {
	if !r.until(ctx, f.At) {
		return
	}
	from := time.Now()
	r.world.tellf("fault: %s %s", f.Kind, f.detail())
	heal, err := r.begin(ctx, f)
	if err != nil {
		r.world.tellf("fault %s had no effect: %v", f.Kind, err)
	}
	rest(ctx, time.Duration(f.Lasts)*Step)
	if heal != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience)
		defer cancel()
		if err := heal(ctx); err != nil {
			r.world.tellf("end of fault %s: %v", f.Kind, err)
		}
	}
	r.world.tellf("end of fault: %s %s", f.Kind, f.detail())
	if f.Kind == CutWebhook || f.Kind == SlowWebhook {
		r.markAway(from, time.Now().Add(awayAfter))
	}
}

// detail tells faults of a kind apart.
func (f Fault) detail() string {
	switch f.Kind {
	case KillManager, PauseManager, StopManager:
		return fmt.Sprint(f.Replica)
	case SkewManager:
		return fmt.Sprintf("%d by %s", f.Replica, f.Amount)
	case SlowWebhook:
		return f.Amount.String()
	case RefuseWrites:
		return f.Refusal.String()
	}
	return ""
}

// begin makes it happen and returns what ends it.
func (r *run) begin(ctx context.Context, f Fault) (heal func(context.Context) error, err error) {
	manager := r.replicas[f.Replica]
	switch f.Kind {
	case KillManager:
		return released(manager), manager.hold(syscall.SIGKILL)
	case StopManager:
		return released(manager), manager.hold(syscall.SIGTERM)
	case KillManagers:
		var failures []error
		for _, manager := range r.replicas {
			failures = append(failures, manager.hold(syscall.SIGKILL))
		}
		return func(context.Context) error {
			for _, manager := range r.replicas {
				manager.release()
			}
			return nil
		}, errors.Join(failures...)
	case PauseManager:
		return func(context.Context) error { return manager.resume() }, manager.pause()
	case SkewManager:
		return func(context.Context) error { return manager.skew(0) }, manager.skew(f.Amount)
	case KillAPIServer:
		return r.kill(ctx, cluster.APIServer)
	case KillEtcd:
		return r.kill(ctx, cluster.Etcd)
	case KillControllerManager:
		return r.kill(ctx, cluster.ControllerManager)
	case PauseAPIServer:
		return r.pause(cluster.APIServer)
	case PauseEtcd:
		return r.pause(cluster.Etcd)
	case PauseControllerManager:
		return r.pause(cluster.ControllerManager)
	case SlowWebhook:
		r.proxy.slow(f.Amount)
		return func(context.Context) error { r.proxy.slow(0); return nil }, nil
	case CutWebhook:
		r.proxy.setCut(true)
		return func(context.Context) error { r.proxy.setCut(false); return nil }, nil
	case DropLease:
		return nil, within(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(r.world.admin.Delete(ctx, r.lease())) })
	case StealLease:
		return nil, within(ctx, r.steal)
	case RefuseWrites:
		return r.refuse(ctx, f.Refusal)
	}
	return nil, fmt.Errorf("unknown fault %s", f.Kind)
}

func released(manager *replica) func(context.Context) error {
	return func(context.Context) error {
		manager.release()
		return nil
	}
}

func (r *run) kill(ctx context.Context, name cluster.ComponentName) (func(context.Context) error, error) {
	component := r.world.Cluster.Component(name)
	return component.Start, component.Kill(ctx)
}

func (r *run) pause(name cluster.ComponentName) (func(context.Context) error, error) {
	component := r.world.Cluster.Component(name)
	return func(context.Context) error { return component.Resume() }, component.Pause()
}

func (r *run) lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.world.inst.Namespace, Name: "drawbridge-leader"}}
}

// steal makes somebody else the leader, who does not renew.
func (r *run) steal(ctx context.Context) error {
	lease := r.lease()
	if err := r.world.admin.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return err
	}
	now := metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = new("thief"), &now, &now
	return r.world.admin.Update(ctx, lease)
}

// awayAfter is how long after a fault of the webhook calls may still miss it.
const awayAfter = 5 * time.Second

func (r *run) markAway(from, to time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Away = append(r.history.Away, Interval{from.Add(-time.Second), to})
}

// sampleManagers marks the times in which a replica is not ready, and keeps the rest alive.
func (r *run) sampleManagers(ctx context.Context) {
	for rest(ctx, Step/2) {
		r.revive(ctx)
		for _, manager := range r.replicas {
			from := time.Now()
			if manager.ready(ctx) != nil && ctx.Err() == nil {
				r.markAway(from.Add(-Step), time.Now().Add(awayAfter))
			}
		}
	}
}

// revive starts those parts again that have no faults here and have ended by
// themselves, as a kubelet does: kube-scheduler gives up when an outage has left it with
// a pod on another node than it remembers.
func (r *run) revive(ctx context.Context) {
	for _, name := range []cluster.ComponentName{cluster.Scheduler, cluster.Kwok} {
		if err := r.world.Cluster.Component(name).Start(ctx); err == nil { // Normally it is running.
			r.world.tellf("%s had ended and was started again", name)
		}
	}
}

// mend makes sure that every part of the control plane runs and answers. The one that plays the
// kubelets begins anew if etcd was away: what an API server refuses with 500 meanwhile, kwok does
// not repeat, as a kubelet would, and the pod would never be Ready.
func (r *run) mend(ctx context.Context) error {
	if slices.ContainsFunc(r.history.Plan.Faults, func(f Fault) bool { return f.Kind == KillEtcd || f.Kind == PauseEtcd }) {
		if err := r.world.Cluster.Component(cluster.Kwok).Restart(ctx); err != nil {
			return err
		}
	}
	for _, name := range []cluster.ComponentName{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kwok} {
		component := r.world.Cluster.Component(name)
		soon, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := component.WaitReady(soon)
		cancel()
		if err != nil {
			r.world.tellf("%s is not well: %v", name, err)
			if err := component.Restart(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
