package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/requester"
)

// longestPause is that after withdrawals that have failed.
const longestPause = 5 * time.Minute

// Leftovers ends requests of ours that only native Evictions needed, where nobody looks at the
// native API any more: without a requester who leaves, they would stand still for ever. It is for
// the leader, which does it once. All fields are required.
type Leftovers struct {
	// Client reads our requests from the informer cache, Live writes them.
	Client client.Reader
	Live   client.WithWatch
	Clock  clock.WithTicker
}

var _ manager.LeaderElectionRunnable = &Leftovers{}

// NeedLeaderElection is true.
func (l *Leftovers) NeedLeaderElection() bool { return true }

// Start withdraws until nothing is left.
func (l *Leftovers) Start(ctx context.Context) error {
	for pause := conflictRetry; ; pause = min(2*pause, longestPause) {
		err := l.withdraw(ctx)
		if err == nil {
			return nil
		}
		log.FromContext(ctx).Error(err, "Requests that native Evictions needed cannot be ended yet, trying again")
		timer := l.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

func (l *Leftovers) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	var requests v1alpha1.EvictionRequestList
	if err := l.Client.List(ctx, &requests, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list requests: %w", err)
	}
	us := &requester.Requester{Name: v1alpha1.NativeInterceptor, Client: l.Live, Clock: l.Clock}
	var failures []error
	for i := range requests.Items {
		er := &requests.Items[i]
		if !slices.ContainsFunc(er.Spec.Requesters, func(r v1alpha1.Requester) bool { return r.Name == v1alpha1.NativeInterceptor }) ||
			er.Spec.Target.Pod == nil || er.DeletionTimestamp != nil || v1alpha1.IsFinished(er) {
			continue
		}
		pod := er.Spec.Target.Pod
		failures = append(failures, us.Withdraw(ctx, &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Namespace: er.Namespace, Name: pod.Name, UID: pod.UID},
		}))
	}
	return errors.Join(failures...)
}
