//go:build unix

package manager_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

var (
	up   *cluster.Cluster
	inst *manager.Installation
	api  client.Client
)

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 1, RequestLog: true}, func(c *cluster.Cluster) (err error) {
		up = c
		if api, err = client.New(c.Config(), client.Options{Scheme: cluster.Scheme()}); err != nil {
			return err
		}
		inst, err = manager.Install(context.Background(), c, manager.InstallOptions{})
		return err
	}))
}

// pod creates a running pod.
func pod(t *testing.T, namespace string, interceptors ...string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if len(interceptors) > 0 {
		p.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: strings.Join(interceptors, ",")}
	}
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatalf("create pod: %v", err)
	}
	eventually(t, "the pod to run", func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		return nil
	})
	return p
}

// evict calls the eviction subresource as an administrator who is not us.
func evict(t *testing.T, p *corev1.Pod) error {
	t.Helper()
	return api.SubResource("eviction").Create(t.Context(), p, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}})
}

func gone(t *testing.T, p *corev1.Pod) {
	t.Helper()
	eventually(t, "the pod to go", func() error {
		switch err := api.Get(t.Context(), client.ObjectKeyFromObject(p), &corev1.Pod{}); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("still there")
	})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	cluster.Eventually(t, what, func(context.Context) error { return check() })
}

func request(t *testing.T, p *corev1.Pod) *v1alpha1.EvictionRequest {
	t.Helper()
	er := &v1alpha1.EvictionRequest{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: string(p.UID)}, er); err != nil {
		t.Fatalf("get the request: %v", err)
	}
	return er
}

func start(t *testing.T, o manager.Options) *manager.Manager {
	t.Helper()
	m, err := inst.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
	return m
}

func stop(t *testing.T, m interface{ Stop(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// The whole way, in this process: who nobody intercepts goes at once, who is
// intercepted waits, outlives a restart and a killing of the manager, and goes
// when the interceptor has been silent for its 20 minutes.
func TestManagerInThisProcess(t *testing.T) {
	m := start(t, manager.Options{})
	namespace := up.Namespace(t)

	plain := pod(t, namespace)
	if err := evict(t, plain); err != nil {
		t.Errorf("a pod nobody intercepts was refused: %v", err)
	}
	gone(t, plain)

	held := pod(t, namespace, "a.example.com")
	err := evict(t, held)
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), `admission webhook "eviction-requests.drawbridge.dev" denied the request: Eviction triggered evacuation`) {
		t.Fatalf("an intercepted pod: %v, want a 429 of our webhook", err)
	}
	if wait, ok := apierrors.SuggestsClientDelay(err); ok {
		t.Errorf("the answer asks to wait %d s", wait)
	}
	active := func() error {
		if got := request(t, held).Status.ActiveInterceptors; len(got) != 1 || got[0] != "a.example.com" {
			return fmt.Errorf("active: %v", got)
		}
		return nil
	}
	eventually(t, "the interceptor's turn", active)

	stop(t, m)
	if err := evict(t, held); !apierrors.IsInternalError(err) {
		t.Errorf("without a manager: %v, want a failed webhook", err)
	}
	m = start(t, manager.Options{Clock: m.Clock})
	if err := evict(t, held); !apierrors.IsTooManyRequests(err) {
		t.Errorf("after a restart: %v, want 429", err)
	}
	m.Kill()
	// The lease of the caller would run out with the clock.
	m = start(t, manager.Options{Clock: m.Clock, Change: func(o *app.Options) { o.Policy.StartupGrace = time.Hour }})
	if err := active(); err != nil {
		t.Errorf("after the killing: %v", err)
	}
	stop(t, m)

	m = start(t, manager.Options{Clock: m.Clock, Change: func(o *app.Options) { o.Policy.HeartbeatDeadline, o.Policy.StartupGrace = time.Minute, 0 }})
	m.Clock.Advance(time.Minute)
	gone(t, held)
	eventually(t, "the request to be Evicted", func() error {
		if er := request(t, held); !meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted) {
			return fmt.Errorf("conditions %v", er.Status.Conditions)
		}
		return nil
	})
	if families, err := m.Metrics.Gather(); err != nil || len(families) == 0 {
		t.Errorf("metrics: %d families, %v", len(families), err)
	}
}

// The manager asks for nothing that its service account may not do, and reads no
// Secret or webhook configuration but its own.
func TestPermissions(t *testing.T) {
	mark := up.RequestLog().Mark()
	// However slow the machine is, it goes on leading.
	m := start(t, manager.Options{Change: func(o *app.Options) {
		o.LeaderElect, o.LeaseDuration, o.RenewDeadline = true, 3*time.Minute, 2*time.Minute
	}})
	held := pod(t, up.Namespace(t), "a.example.com")
	if err := evict(t, held); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("got %v, want 429", err)
	}
	eventually(t, "the interceptor's turn", func() error {
		if len(request(t, held).Status.ActiveInterceptors) == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	stop(t, m)

	lease := &coordinationv1.Lease{}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: inst.Namespace, Name: "drawbridge-leader"}, lease); err != nil {
		t.Fatalf("get the leader's lease: %v", err)
	}
	if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
		t.Errorf("the lease is still held by %q", *holder)
	}
	requests, err := up.RequestLog().Since(t.Context(), mark)
	if err != nil {
		t.Fatal(err)
	}
	account := "system:serviceaccount:" + inst.Namespace + ":" + inst.ServiceAccount
	seen := 0
	for _, r := range requests {
		if r.User != account {
			continue
		}
		seen++
		if r.Code == http.StatusForbidden {
			t.Errorf("forbidden: %v", r)
		}
		own := r.Resource == "secrets" && r.Namespace == inst.Namespace && r.Name == "drawbridge-webhook-cert" ||
			r.Resource == "validatingwebhookconfigurations" && r.Name == "drawbridge"
		if (r.Resource == "secrets" || r.Resource == "validatingwebhookconfigurations") && !own {
			t.Errorf("reads more than its own: %v", r)
		}
	}
	if seen == 0 {
		t.Error("the log has no request of the manager")
	}
}

// The built program, killed and stopped.
func TestManagerInItsOwnProcess(t *testing.T) {
	var first, second *manager.Process
	var err error
	if first, err = inst.StartProcess(t.Context(), manager.ProcessOptions{}); err != nil {
		t.Fatal(err)
	}
	held := pod(t, up.Namespace(t), "a.example.com")
	if err := evict(t, held); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want 429", err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if second, err = inst.StartProcess(t.Context(), manager.ProcessOptions{Args: []string{"--allow-short-heartbeat-deadline", "--heartbeat-deadline=1s", "--startup-grace=0s"}}); err != nil {
		t.Fatal(err)
	}
	gone(t, held)
	stop(t, second)
	if err := second.Kill(); err != nil {
		t.Errorf("killing a process that has ended: %v", err)
	}
}

func TestAManagerThatCannotStartSaysWhy(t *testing.T) {
	_, err := inst.Start(t.Context(), manager.Options{Change: func(o *app.Options) { o.Retention = time.Second }})
	if err == nil || !strings.Contains(err.Error(), "--retention") {
		t.Errorf("error %v, want one about --retention", err)
	}
	_, err = inst.StartProcess(t.Context(), manager.ProcessOptions{Args: []string{"--replacement-guard=x"}})
	if err == nil {
		t.Error("a process with a wrong flag started")
	}
	if diff := cmp.Diff(true, strings.Contains(fmt.Sprint(err), "its log")); diff != "" {
		t.Errorf("the error names the log (-want +got):\n%s", diff)
	}
}
