package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
	"github.com/drawbridge-dev/drawbridge/test/framework/cluster"
	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// Most clusters do not serve lifecycle.k8s.io. There, a program that would answer it asks now and
// then whether that has changed, and is silent.
func TestTheSDKWithoutTheNativeAPI(t *testing.T) {
	w := newWorld(t, startManager(t, manager.Options{Change: noStartupGrace}))
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, prefix+args)
	}, funcr.Options{})
	impl := &sdkDouble{answer: interceptor.Progress{Message: "copying"}}
	w.startSDKWith(t, impl, interceptor.Options{Clock: w.mgr.Clock, NativeKey: sdkInterceptor + "/failover"}, func(o *ctrl.Options) {
		o.Logger = log
		if err := lifecyclev1alpha1.AddToScheme(o.Scheme); err != nil {
			t.Fatal(err)
		}
	})
	asked := func() cluster.Requests {
		requests, err := kube.RequestLog().Since(t.Context(), w.mark)
		if err != nil {
			t.Fatal(err)
		}
		return requests.By(sdkInterceptor).Where(func(r cluster.Request) bool { return strings.Contains(r.URI, lifecyclev1alpha1.GroupName) })
	}
	for times := 1; times <= 3; times++ {
		await(t, fmt.Sprintf("question %d for the API", times), func(context.Context) error {
			if got := asked(); len(got) < times {
				return fmt.Errorf("asked:\n%s", got)
			}
			return nil
		})
		w.mgr.Clock.Advance(30 * time.Second)
	}
	tr := w.request(t, w.pod(t, "web", sdkInterceptor))
	w.untilActive(t, tr.ObjectKey, sdkInterceptor)
	impl.untilCalled(t, "Evacuate")
	if target := impl.last(); target.Native {
		t.Errorf("its turn is native: %+v", target)
	}
	for _, r := range asked() {
		if r.URI != "/apis/lifecycle.k8s.io/v1alpha1" || r.Code != http.StatusNotFound {
			t.Errorf("it asks more than whether the API is there: %s (%s)", r, r.URI)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, line := range lines {
		if strings.Contains(line, `"error"`) || strings.Contains(line, "native") || strings.Contains(line, lifecyclev1alpha1.GroupName) {
			t.Errorf("it says %s", line)
		}
	}
	if len(lines) == 0 {
		t.Error("the log is not that of the manager")
	}
}
