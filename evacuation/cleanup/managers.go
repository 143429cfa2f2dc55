package cleanup

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/internal/pods"
)

// managers are the processes that may still write as Drawbridge.
type managers struct {
	// unscaled is the Deployment while its controller may still make pods.
	unscaled string
	// pods of the Deployment that have not ended, those that terminate included.
	pods []string
	// leader holds the leader's Lease; empty if it is free.
	leader string
}

func (m managers) none() bool { return m.unscaled == "" && len(m.pods) == 0 && m.leader == "" }

// describe names them.
func (m managers) describe(lease types.NamespacedName) string {
	var parts []string
	if m.unscaled != "" {
		parts = append(parts, "Deployment "+m.unscaled)
	}
	if len(m.pods) > 0 {
		parts = append(parts, "pods "+strings.Join(m.pods, ", "))
	}
	if m.leader != "" {
		parts = append(parts, fmt.Sprintf("%s, which holds Lease %s", m.leader, lease))
	}
	return strings.Join(parts, ", and ")
}

// stop scales the manager to 0, and waits until no pod of it is left and there is no
// leader. A pod that terminates still writes, so the Deployment's own count of 0 is not
// enough.
func (c *Cleaner) stop(ctx context.Context) error {
	if err := c.scaleDown(ctx); err != nil {
		return err
	}
	lease := c.leaseKey()
	var left managers
	told := ""
	ended, err := c.until(ctx, stopTimeout, func(ctx context.Context) (bool, error) {
		var err error
		if left, err = c.managers(ctx); err != nil || left.none() {
			return err == nil, err
		}
		if now := left.describe(lease); now != told {
			c.sayf("waiting for the manager to end: %s", now)
			told = now
		}
		return false, nil
	})
	if err == nil && !ended {
		err = fmt.Errorf("still there after %s: %s: stop that manager, or delete its pod with --force if its node is gone, and run this again",
			stopTimeout, left.describe(lease))
	}
	return err
}

func (c *Cleaner) deploymentKey() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Deployment}
}

// scaleDown scales the Deployment to 0, if there is one.
func (c *Cleaner) scaleDown(ctx context.Context) error {
	if c.Deployment == "" {
		return nil
	}
	key := c.deploymentKey()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err := c.call(ctx, func(ctx context.Context) error {
		scale := &autoscalingv1.Scale{}
		if err := c.Client.SubResource("scale").Get(ctx, deployment, scale); err != nil {
			return err
		}
		if scale.Spec.Replicas == 0 {
			return nil
		}
		scale.Spec.Replicas = 0
		if err := c.Client.SubResource("scale").Update(ctx, deployment, client.WithSubResourceBody(scale)); err != nil {
			return err
		}
		c.changedf("Deployment %s: scaled to 0", key)
		return nil
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("scale Deployment %s to 0: %w", key, err)
	}
	return nil
}

// managers gathers which managers are left.
func (c *Cleaner) managers(ctx context.Context) (managers, error) {
	leader, err := c.leader(ctx)
	if err != nil || c.Deployment == "" {
		return managers{leader: leader}, err
	}
	key := c.deploymentKey()
	deployment := &appsv1.Deployment{}
	if err := c.call(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, key, deployment) }); err != nil {
		return managers{leader: leader}, client.IgnoreNotFound(err) // Then its pods go, too.
	}
	labels, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return managers{}, fmt.Errorf("read the selector of Deployment %s: %w", key, err)
	}
	pods := &corev1.PodList{}
	err = c.call(ctx, func(ctx context.Context) error {
		return c.Client.List(ctx, pods, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: labels})
	})
	if err != nil {
		return managers{}, fmt.Errorf("list the manager's pods: %w", err)
	}
	left := managers{pods: running(pods.Items), leader: leader}
	if deployment.Status.ObservedGeneration < deployment.Generation || deployment.Status.Replicas > 0 {
		left.unscaled = deployment.Name
	}
	return left, nil
}

// running are the names of the pods whose containers have not all ended.
func running(list []corev1.Pod) []string {
	var names []string
	for i := range list {
		if !pods.HasEnded(&list[i]) {
			names = append(names, list[i].Name)
		}
	}
	return names
}

func (c *Cleaner) leaseKey() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.LeaderLease}
}

// leaderLease reads the leader's Lease; nil when there is none.
func (c *Cleaner) leaderLease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := c.call(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, c.leaseKey(), lease) })
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return lease, nil
}

// leader is the manager that leads; empty when none does.
func (c *Cleaner) leader(ctx context.Context) (string, error) {
	lease, err := c.leaderLease(ctx)
	if err != nil || lease == nil {
		return "", err
	}
	return holder(lease, c.Clock.Now()), nil
}

// holder is the holder of the Lease at that time; empty if it is free or has expired.
func holder(lease *coordinationv1.Lease, now time.Time) string {
	spec := lease.Spec
	lasts := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	if spec.RenewTime == nil || !now.Before(spec.RenewTime.Add(lasts)) {
		return ""
	}
	return ptr.Deref(spec.HolderIdentity, "")
}

// deleteLeaderLease deletes the leader's Lease. While it is held, it stays: otherwise
// there might be two leaders.
func (c *Cleaner) deleteLeaderLease(ctx context.Context) error {
	if c.LeaderLease == "" {
		return nil
	}
	lease, err := c.leaderLease(ctx)
	if err != nil {
		return fmt.Errorf("get lease %s: %w", c.LeaderLease, err)
	}
	if lease == nil {
		return nil
	}
	if leader := holder(lease, c.Clock.Now()); leader != "" {
		return fmt.Errorf("lease %s is held by %s", lease.Name, leader)
	}
	return c.deleteLease(ctx, lease)
}
