package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
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
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
)

// sdkInterceptor is what the SDK speaks for in these tests, as a user of the same
// name.
const sdkInterceptor = "sdk.example.com"

// sdkDouble is an interceptor that does what the test says.
type sdkDouble struct {
	mu sync.Mutex
	// answer and err are what Evacuate returns; with hang, it returns when its
	// context ends.
	answer interceptor.Progress
	err    error
	hang   bool
	// cancelErr is what Cancel returns.
	cancelErr error

	calls   []string
	targets []interceptor.Target
}

func (d *sdkDouble) Evacuate(ctx context.Context, t interceptor.Target) (interceptor.Progress, error) {
	d.mu.Lock()
	d.calls, d.targets = append(d.calls, "Evacuate"), append(d.targets, t)
	answer, err, hang := d.answer, d.err, d.hang
	d.mu.Unlock()
	if hang {
		<-ctx.Done()
		return interceptor.Progress{}, context.Cause(ctx)
	}
	return answer, err
}

func (d *sdkDouble) Cancel(_ context.Context, t interceptor.Target) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls, d.targets = append(d.calls, "Cancel"), append(d.targets, t)
	return d.cancelErr
}

func (d *sdkDouble) set(change func(*sdkDouble)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// called are the calls so far, each run of the same ones as one.
func (d *sdkDouble) called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Compact(slices.Clone(d.calls))
}

// count is the number of calls so far.
func (d *sdkDouble) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// last is the target of the last call.
func (d *sdkDouble) last() interceptor.Target {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.targets[len(d.targets)-1]
}

// untilCalled waits until the calls are these.
func (d *sdkDouble) untilCalled(t *testing.T, want ...string) {
	t.Helper()
	await(t, fmt.Sprintf("calls %v", want), func(context.Context) error {
		if got := d.called(); !slices.Equal(got, want) {
			return fmt.Errorf("calls %v", got)
		}
		return nil
	})
}

// startSDK runs an interceptor as a third party would: in a manager of its own,
// whose scheme has nothing but our API, as a user with nothing but the chart's
// ClusterRole. It goes by the manager's clock. The returned function ends it.
func (w *world) startSDK(t *testing.T, impl interceptor.Interceptor) (stop func()) {
	t.Helper()
	return w.startSDKWith(t, impl, interceptor.Options{Clock: w.mgr.Clock})
}

// startSDKWith does so with options, and with those of the manager.
func (w *world) startSDKWith(t *testing.T, impl interceptor.Interceptor, o interceptor.Options, change ...func(*ctrl.Options)) (stop func()) {
	t.Helper()
	o.Name = sdkInterceptor
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, GenerateName: "sdk-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: drawbridge.Release + "-interceptor"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: sdkInterceptor}},
	}
	if err := w.admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	rest, err := kube.ConfigFor(sdkInterceptor)
	if err != nil {
		t.Fatal(err)
	}
	only := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(only); err != nil {
		t.Fatal(err)
	}
	options := ctrl.Options{
		Scheme:                 only,
		Cache:                  cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		Controller:             config.Controller{SkipNameValidation: new(true)},
	}
	for _, c := range change {
		c(&options)
	}
	mgr, err := ctrl.NewManager(rest, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := interceptor.Add(mgr, impl, o); err != nil {
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

// reported are the interceptor's writes to the status, refused ones too, but no
// conflicts: these are how one learns that somebody else was faster.
func (w *world) reported(t *testing.T) cluster.Requests {
	t.Helper()
	return w.heard(t).By(sdkInterceptor).Where(func(r cluster.Request) bool {
		return r.Writes() && r.Subresource == "status" && r.Code != http.StatusConflict
	})
}

// sdkEvents are the interceptor's events.
func (w *world) sdkEvents(t *testing.T) []eventsv1.Event {
	t.Helper()
	list := &eventsv1.EventList{}
	if err := w.admin.List(t.Context(), list, client.InNamespace(w.ns)); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.ReportingController != sdkInterceptor })
}

// untilEvent waits for an event of the interceptor.
func (w *world) untilEvent(t *testing.T, reason string) {
	t.Helper()
	await(t, "event "+reason, func(context.Context) error {
		if !slices.ContainsFunc(w.sdkEvents(t), func(e eventsv1.Event) bool { return e.Reason == reason }) {
			return errors.New("there is none")
		}
		return nil
	})
}

func (w *world) deleteRequest(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := w.admin.Delete(t.Context(), w.get(t, keyOf(pod))); err != nil {
		t.Fatal(err)
	}
}

// askedAboutPods is what the interceptor asked of the API server about pods.
func (w *world) askedAboutPods(t *testing.T) cluster.Requests {
	t.Helper()
	return w.heard(t).By(sdkInterceptor).Where(func(r cluster.Request) bool { return r.Resource == "pods" })
}
