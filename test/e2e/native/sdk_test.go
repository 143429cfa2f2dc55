//go:build unix

package native

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// failover is the key and flush the name of the interceptor that the tests write with the SDK.
const failover, flush = "sdk.example.com/failover", "sdk.example.com"

// sdkDouble works on a pod until it is let go.
type sdkDouble struct {
	mu    sync.Mutex
	ready bool
	calls []string
	// targets are those of Evacuate.
	targets []interceptor.Target
}

func (d *sdkDouble) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("Evacuate", t)
	d.targets = append(d.targets, t)
	if d.ready && !t.StartedAt.IsZero() {
		d.note("done", t)
		return interceptor.Progress{Done: true, Message: "done"}, nil
	}
	return interceptor.Progress{Message: "copying", CheckAfter: 100 * time.Millisecond}, nil
}

func (d *sdkDouble) Cancel(_ context.Context, t interceptor.Target) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("Cancel", t)
	return nil
}

func (d *sdkDouble) note(call string, t interceptor.Target) {
	if t.Native {
		call += " natively"
	}
	d.calls = append(d.calls, call)
}

func (d *sdkDouble) letGo() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = true
}

// called are the calls so far, each run of the same ones as one.
func (d *sdkDouble) called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Compact(slices.Clone(d.calls))
}

// untilCalled waits until the last call is this.
func (d *sdkDouble) untilCalled(t *testing.T, want string) {
	t.Helper()
	waiting.Eventually(t, "call "+want, func(context.Context) error {
		if got := d.called(); len(got) == 0 || got[len(got)-1] != want {
			return fmt.Errorf("calls %v", got)
		}
		return nil
	})
}

// letIntercept gives the user of that name the chart's ClusterRole, and nothing more.
func letIntercept(t *testing.T, namespace string) {
	t.Helper()
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "sdk-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: inst.Release + "-interceptor"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: in(namespace, flush)}},
	})
}

// startSDK runs an interceptor of both names as a third party would: in a manager of its own.
// The returned function ends it.
func startSDK(t *testing.T, namespace string, impl interceptor.Interceptor) (stop func()) {
	t.Helper()
	letIntercept(t, namespace)
	rest, err := kube.ConfigFor(in(namespace, flush))
	if err != nil {
		t.Fatal(err)
	}
	only := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(only), lifecyclev1alpha1.AddToScheme(only)); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                 only,
		Cache:                  cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := interceptor.Add(mgr, impl, interceptor.Options{Name: in(namespace, flush), NativeKey: in(namespace, failover)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the interceptor's manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// sdkWrites counts what the interceptor has written to the status of Evictions and requests. A
// conflict is how one learns that somebody else was faster; anything else that is refused is wrong.
func sdkWrites(t *testing.T, namespace string) (count map[string]int) {
	t.Helper()
	logged, err := kube.RequestLog().Since(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	count = map[string]int{}
	for _, r := range logged.By(in(namespace, flush)) {
		if !r.Writes() || r.Subresource != "status" || r.Code == http.StatusConflict {
			continue
		}
		if r.Code >= http.StatusBadRequest {
			t.Errorf("refused: %s", r)
		}
		count[r.Resource]++
	}
	return count
}

// closeBy compares times by machine and server, which differ by what a request takes.
func closeBy(a, b time.Time) bool { return a.Sub(b).Abs() < 10*time.Second }

// One program answers both APIs.
func TestTheSDKServesBothAPIs(t *testing.T) {
	shareManager(t)
	type made struct {
		*sdkDouble
		namespace string
		pod       *corev1.Pod
	}
	begin := func(t *testing.T, name func(ns string, pod *builder.PodWrapper) *builder.PodWrapper) made {
		t.Helper()
		t.Parallel()
		namespace, node := placed(t)
		d := &sdkDouble{}
		startSDK(t, namespace, d)
		pod := createPod(t, name(namespace, builder.Pod(namespace, "db-0").Node(node).Label("app", namespace)).Obj())
		return made{d, namespace, pod}
	}
	natively := func(ns string, pod *builder.PodWrapper) *builder.PodWrapper { return pod.Responders(in(ns, failover)) }
	check := func(t *testing.T, m made, calls []string, writes map[string]int) {
		t.Helper()
		if diff := cmp.Diff(calls, m.called()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(writes, sdkWrites(t, m.namespace)); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
	}

	t.Run("a turn of ours", func(t *testing.T) {
		m := begin(t, func(ns string, pod *builder.PodWrapper) *builder.PodWrapper { return pod.Interceptors(in(ns, flush)) })
		joins(t, m.pod)
		m.untilCalled(t, "Evacuate")
		m.letGo()
		gone(t, m.pod)
		check(t, m, []string{"Evacuate", "done"}, map[string]int{"evictionrequests": 2})
	})
	t.Run("a native turn", func(t *testing.T) {
		m := begin(t, natively)
		wants(t, m.pod)
		m.untilCalled(t, "Evacuate natively")
		e := waitEviction(t, m.pod, "reported on", func(e *lifecyclev1alpha1.Eviction) bool {
			return len(e.Status.Responders) > 0 && e.Status.Responders[0].HeartbeatTime != nil
		})
		lives(t, m.pod)
		m.letGo()
		gone(t, m.pod)
		check(t, m, []string{"Evacuate natively", "done natively"}, map[string]int{"evictions": 2})
		m.mu.Lock()
		defer m.mu.Unlock()
		last := m.targets[len(m.targets)-1]
		want := interceptor.Target{
			Native: true, Request: client.ObjectKeyFromObject(e), RequestUID: e.UID, Pod: client.ObjectKeyFromObject(m.pod), PodUID: m.pod.UID,
			Requesters: []string{"drain.example.com/me"}, ActivatedAt: e.Status.Responders[0].StartTime.Time,
			StartedAt: e.Status.Responders[0].StartTime.Time,
		}
		if diff := cmp.Diff(want, last, cmp.Comparer(closeBy)); diff != "" {
			t.Errorf("the target (-want +got):\n%s", diff)
		}
		e = waitEviction(t, m.pod, "evicted", isEvicted)
		if diff := cmp.Diff("pod-1-db-0: "+in(m.namespace, failover)+"=Completed "+evictor+"=Completed"+evicted, says(e)); diff != "" {
			t.Errorf("Eviction (-want +got):\n%s", diff)
		}
	})
	for how, ask := range map[string]func(*testing.T, *corev1.Pod){
		"asked for natively":  func(t *testing.T, pod *corev1.Pod) { wants(t, pod) },
		"asked for by a call": calls,
	} {
		t.Run("one turn of two names, "+how, func(t *testing.T) {
			t.Parallel()
			namespace, node := placed(t)
			create(t, builder.EvictionInterceptor(in(namespace, flush)).InNamespace(namespace).NativeKey(in(namespace, failover)).Obj())
			d := &sdkDouble{ready: true}
			startSDK(t, namespace, d)
			// Once it is known, the registration is what counts for both.
			waiting.Eventually(t, "the registration to count", func(ctx context.Context) error {
				r := &v1alpha1.EvictionInterceptor{}
				if err := admin.Get(ctx, client.ObjectKey{Name: in(namespace, flush)}, r); err != nil {
					return err
				}
				if r.Status.ObservedGeneration == 0 {
					return errors.New("nobody has looked at it")
				}
				return nil
			})
			pod := createPod(t, natively(namespace, builder.Pod(namespace, "db-0").Node(node).Interceptors(in(namespace, flush))).Obj())
			ask(t, pod)
			gone(t, pod)
			check(t, made{d, namespace, pod}, []string{"Evacuate natively", "done natively"}, map[string]int{"evictions": 2})
		})
	}
	t.Run("a native turn in which it is killed and started again", func(t *testing.T) {
		t.Parallel()
		namespace, node := placed(t)
		first, second := &sdkDouble{}, &sdkDouble{ready: true}
		kill := startSDK(t, namespace, first)
		pod := createPod(t, natively(namespace, builder.Pod(namespace, "db-0").Node(node)).Obj())
		wants(t, pod)
		waitEviction(t, pod, "reported on", func(e *lifecyclev1alpha1.Eviction) bool {
			return len(e.Status.Responders) > 0 && e.Status.Responders[0].HeartbeatTime != nil
		})
		kill()
		lives(t, pod)
		startSDK(t, namespace, second)
		gone(t, pod)
		check(t, made{second, namespace, pod}, []string{"Evacuate natively", "done natively"}, map[string]int{"evictions": 2})
	})
	t.Run("a native turn that nobody wants any more", func(t *testing.T) {
		m := begin(t, natively)
		asking := requesterOf()
		for range 2 { // The second one changes nothing.
			r, err := asking.JoinNative(t.Context(), m.pod)
			if err != nil {
				t.Fatal(err)
			}
			if r.Spec.Requester != "drain.example.com/requester" {
				t.Errorf("it asks as %s", r.Spec.Requester)
			}
		}
		m.untilCalled(t, "Evacuate natively")
		if err := asking.WithdrawNative(t.Context(), m.pod); err != nil {
			t.Fatal(err)
		}
		waitEviction(t, m.pod, "canceled", isCanceled)
		m.untilCalled(t, "Cancel natively")
		lives(t, m.pod)
		if got := sdkWrites(t, m.namespace)["evictions"]; got > 1 {
			t.Errorf("%d writes, want at most one", got)
		}
		if err := asking.WithdrawNative(t.Context(), m.pod); err != nil {
			t.Errorf("withdrawn again: %v", err)
		}
		// Wanted again, it is a turn of its own.
		m.letGo()
		if _, err := asking.JoinNative(t.Context(), m.pod); err != nil {
			t.Fatal(err)
		}
		gone(t, m.pod)
		if diff := cmp.Diff([]string{"Evacuate natively", "Cancel natively", "Evacuate natively", "done natively"}, m.called()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
	t.Run("a call for a pod that only answers natively", func(t *testing.T) {
		m := begin(t, natively)
		calls(t, m.pod)
		m.untilCalled(t, "Evacuate natively")
		m.letGo()
		cluster.WaitRequest(t, admin, m.pod, "in its imperative stage", func(er *v1alpha1.EvictionRequest) bool {
			return slices.Contains(er.Status.ActiveInterceptors, v1alpha1.ImperativeEvictionInterceptor) || v1alpha1.IsFinished(er)
		})
		gone(t, m.pod)
		check(t, m, []string{"Evacuate natively", "done natively"}, map[string]int{"evictions": 2})
	})
}

// The example is one program for both APIs, also when it is killed in the middle.
func TestTheExampleServesBothAPIs(t *testing.T) {
	shareManager(t)
	namespace, node := placed(t)
	binary, err := manager.BuildInterceptor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	letIntercept(t, namespace)
	kubeconfig, err := kube.KubeconfigFile(in(namespace, flush))
	if err != nil {
		t.Fatal(err)
	}
	// However long it takes until it is killed, the first has not ended its work.
	start := func(work string) *cluster.Program {
		p, err := kube.StartProgram(context.WithoutCancel(t.Context()), cluster.ProgramOptions{}, binary, "--kubeconfig="+kubeconfig,
			"--namespace="+namespace, "--name="+in(namespace, flush), "--native-key="+in(namespace, failover), "--work="+work)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Kill(); _, _ = p.Wait() })
		return p
	}
	p := start("1h")
	ours := createPod(t, builder.Pod(namespace, "ours").Node(node).Interceptors(in(namespace, flush)).Obj())
	theirs := createPod(t, builder.Pod(namespace, "theirs").Node(node).Responders(in(namespace, failover)).Obj())
	joins(t, ours)
	wants(t, theirs)
	says := func(p *cluster.Program, pod *corev1.Pod, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), cluster.Patience)
		defer cancel()
		if _, err := p.WaitLine(ctx, pod.Namespace+"/"+pod.Name+": "+text); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []*corev1.Pod{ours, theirs} {
		says(p, pod, "started, expecting")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = p.Wait()
	p = start("3s")
	for _, pod := range []*corev1.Pod{ours, theirs} {
		says(p, pod, "started at ")
		says(p, pod, "completed")
		gone(t, pod)
	}
	if diff := cmp.Diff(map[string]int{"evictionrequests": 2, "evictions": 2}, sdkWrites(t, namespace)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}
