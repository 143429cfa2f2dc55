package app

import (
	"context"
	"errors"
	"os"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/informers"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/rollback"
)

// ExitRolledBack is the exit code of a manager that ends because the API server's store went
// back in time. The kubelet starts it again, and it reads everything anew.
const ExitRolledBack = 3

// ExitCode is that of the program, for the error of its command.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, rollback.ErrRolledBack):
		return ExitRolledBack
	default:
		return 1
	}
}

// setupRollback adds the watcher that ends the manager when the API server's store went back
// in time. It compares kinds that every replica watches in the whole cluster.
func setupRollback(mgr ctrl.Manager, o Options, clients kubernetes.Interface) error {
	kind := func(resource string, obj client.Object, list schema.GroupVersionKind) rollback.Kind {
		return rollback.Kind{Resource: resource, List: list, Seen: func(ctx context.Context) (string, error) {
			return informers.LastSyncResourceVersion(ctx, mgr.GetCache(), obj)
		}}
	}
	w := &rollback.Watcher{
		Live: mgr.GetAPIReader(),
		Kinds: []rollback.Kind{
			kind(metrics.ResourceEvictionRequests, &v1alpha1.EvictionRequest{}, v1alpha1.SchemeGroupVersion.WithKind("EvictionRequestList")),
			kind(metrics.ResourcePods, &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("PodList")),
		},
		Clock:     clock.RealClock{}, // It watches the API server, which has no other.
		Events:    clients.EventsV1(),
		Regarding: func(ctx context.Context) *corev1.ObjectReference { return ourselves(ctx, mgr.GetCache(), o) },
		Metrics:   metrics.NewRollback(o.Registerer),
		Log:       mgr.GetLogger().WithName("rollback"),
	}
	return w.SetupWithManager(mgr)
}

// ourselves is our own pod, where people look who ask why it was restarted. A program that
// was started by hand, or on the node's network, has no pod by its host's name; then it is
// the leader's Lease, which stands for all replicas.
func ourselves(ctx context.Context, cached client.Reader, o Options) *corev1.ObjectReference {
	pod := &corev1.Pod{}
	if host, err := os.Hostname(); err == nil && cached.Get(ctx, o.key(host), pod) == nil {
		return &corev1.ObjectReference{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod",
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}
	}
	return &corev1.ObjectReference{
		APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: o.Namespace, Name: leaderElectionID,
	}
}
