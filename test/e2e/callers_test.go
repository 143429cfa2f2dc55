//go:build unix

package e2e

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/translate"
)

// The callers of this file do what the real programs were seen to do in test/peers.

// called is a client of somebody with the user agent of a program.
func called(t *testing.T, userAgent, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := must(kube.ConfigFor(user, groups...))(t)
	config.UserAgent = userAgent
	config.QPS = -1
	return must(kubernetes.NewForConfig(config))(t)
}

// kured, on the newest drain library of kubectl, calls again as soon as it has been refused: 1,504
// times in five minutes for one pod. That costs no write, and ends like any other drain.
func TestACallerWithoutAPause(t *testing.T) {
	const calls, kured = 300, "system:serviceaccount:kube-system:kured"
	m := shareManager(t)
	pod, interceptor := held(t)
	api := called(t, "kured/v0.0.0 (linux/amd64) kubernetes/$Format", kured, drainers).PolicyV1().Evictions(pod.Namespace)
	call := func() error { return api.Evict(t.Context(), eviction(pod)) }

	if err := call(); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the first call: %v", err)
	}
	waitRequest(t, pod, "in the hands of "+interceptor, activeIs(interceptor))
	waitGuard(t, pod, true)
	mark, began := kube.RequestLog().Mark(), time.Now()
	for range calls {
		if err := call(); !apierrors.IsTooManyRequests(err) {
			t.Fatalf("want 429 without an end, got %v", err)
		}
	}
	lease := translate.LeaseName(translate.RequesterName(kured), pod.Spec.NodeName)
	ours := since(t, mark).By(drawbridge()).Where(func(r cluster.Request) bool {
		return r.Writes() && (r.Namespace == pod.Namespace && r.Resource != "events" || r.Name == lease)
	})
	// Its lease is renewed every 30 s at most. On a busy machine the calls take longer than that.
	if most := 2 + int(time.Since(began)/(30*time.Second)); len(ours) > most {
		t.Errorf("%d calls cost these writes:\n%s", calls, ours)
	}

	complete(t, pod, interceptor, m.Clock.Now)
	eventually(t, "the caller to be told that its pod has left", func(context.Context) error {
		err := call()
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("evicted now")
		case !apierrors.IsTooManyRequests(err):
			t.Fatalf("want 429, 201 or 404, got %v", err)
		}
		return err
	})
	gone(t, pod)
	done := since(t, mark).Where(func(r cluster.Request) bool {
		return r.Namespace == pod.Namespace && r.Subresource == "eviction" && r.Code == http.StatusCreated
	})
	if len(done) == 0 {
		t.Error("the pod left without an eviction")
	}
}

// Cluster API enters a workload cluster by a kubeconfig of its administrator, as the program `manager`.
// It calls every 20 s, and gets the three minutes of its class.
func TestClusterAPIInAWorkloadCluster(t *testing.T) {
	const administrator = "kubernetes-admin"
	m := shareManager(t)
	pod, interceptor := held(t)
	api := called(t, "manager/v1.13.0 (linux/amd64) cluster.x-k8s.io/ae7ff047", administrator, "system:masters").PolicyV1().Evictions(pod.Namespace)
	if err := api.Evict(t.Context(), eviction(pod)); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the first call: %v", err)
	}
	lease := must(leaseOf(t.Context(), administrator, pod.Spec.NodeName))(t)
	if diff := cmp.Diff(180*time.Second, time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second); diff != "" {
		t.Errorf("it may be silent for (-want +got):\n%s", diff)
	}
	complete(t, pod, interceptor, m.Clock.Now)
	eventually(t, "the pod to be evicted", func(ctx context.Context) error {
		return client.IgnoreNotFound(api.Evict(ctx, eviction(pod)))
	})
	gone(t, pod)
}
