// Command interceptor takes part in the eviction of pods, with the SDK of
// Drawbridge.
//
// When it is the turn of the interceptor it speaks for (--name), or of the responder of
// Kubernetes' own API that it also is (--native-key), it works for a
// while (--work) and hands over to the next one. A real one would fail over a
// database, flush a queue or wait for a backup in the meantime.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/interceptor"
)

// worker works on pods. All that counts after a crash stands in the API.
type worker struct {
	clock    clock.PassiveClock
	requests client.Reader
	// work is how long a pod takes.
	work time.Duration
	// begun has the requests this process knows, true if the work has begun. It is
	// only for what we print.
	begun sync.Map
}

// Evacuate is called when it is our turn, and again until we are done: when the
// time we asked for has come, before every heartbeat, and after a restart. So it
// looks how far things are and does what is next.
func (w *worker) Evacuate(_ context.Context, t interceptor.Target) (interceptor.Progress, error) {
	if t.StartedAt.IsZero() {
		// Nothing is touched before our start is on record: then a crash at any point
		// leaves a request that says that we have begun. Come back at once.
		say(t, "it is our turn")
		w.begun.Store(t.RequestUID, false)
		return interceptor.Progress{Message: "working", ExpectedFinishTime: w.clock.Now().Add(w.work), CheckAfter: time.Millisecond}, nil
	}
	// Here a real interceptor looks at its objects. If it changes the pod, it says
	// which one it means: t.PodUID is the precondition of every such call.
	end := t.StartedAt.Add(w.work)
	left := end.Sub(w.clock.Now())
	switch begun, known := w.begun.Swap(t.RequestUID, true); {
	case !known:
		say(t, "started at %s already, continuing", t.StartedAt.UTC().Format(time.TimeOnly))
	case begun == false:
		say(t, "started, expecting to work for %s", w.work)
	case left > 0:
		say(t, "still working")
	}
	if left > 0 {
		return interceptor.Progress{Message: "working", ExpectedFinishTime: end, CheckAfter: left}, nil
	}
	w.begun.Delete(t.RequestUID)
	say(t, "completed")
	return interceptor.Progress{Done: true, Message: "done"}, nil
}

// The SDK finds out by itself whether somebody has a Gone and a Cancel. Here the compiler
// says so if one of them is misspelt.
var (
	_ interceptor.Interceptor = &worker{}
	_ interceptor.Goner       = &worker{}
	_ interceptor.Canceler    = &worker{}
)

// Gone is called when the pod ended before we were done, until it returns nil. Here a
// real interceptor takes away what does not end with the pod: a mark on a load
// balancer, a lock.
func (w *worker) Gone(_ context.Context, t interceptor.Target) error {
	w.begun.Delete(t.RequestUID)
	say(t, "stopping, because the pod is gone")
	return nil
}

// Cancel is called when our turn is over before we were done, until it returns
// nil. A real interceptor puts everything back; what was never changed is fine as
// it is.
func (w *worker) Cancel(ctx context.Context, t interceptor.Target) error {
	if t.Native {
		w.begun.Delete(t.RequestUID)
		say(t, "stopping, because Eviction %s does not wait for us any more", t.Request.Name)
		return nil
	}
	request := &v1alpha1.EvictionRequest{}
	err := w.requests.Get(ctx, t.Request, request)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the request: %w", err)
	}
	w.begun.Delete(t.RequestUID)
	switch {
	case apierrors.IsNotFound(err), request.UID != t.RequestUID, request.DeletionTimestamp != nil:
		say(t, "stopping, because the request was deleted")
	case len(request.Spec.Requesters) == 0:
		say(t, "stopping, because the request is Canceled (NoRequesters)")
	default:
		say(t, "stopping, because it is not our turn any more")
	}
	return nil
}

// say prints one line about a pod.
func say(t interceptor.Target, format string, args ...any) {
	fmt.Printf("%s: %s\n", t.Pod, fmt.Sprintf(format, args...))
}

func main() {
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "interceptor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// --kubeconfig is a flag of controller-runtime. Without it, and without
	// $KUBECONFIG, it is the cluster this runs in.
	name := flag.String("name", "", "name of the interceptor, a fully qualified domain name")
	key := flag.String("native-key", "", "its key in spec.evictionResponders of pods, for the API of Kubernetes itself, such as db.example.com/failover")
	namespace := flag.String("namespace", "", "namespace to look at; all when empty")
	work := flag.Duration("work", 10*time.Second, "how long the work for a pod takes")
	heartbeat := flag.Duration("heartbeat", interceptor.DefaultHeartbeatInterval, "time between two heartbeats, at least 1m")
	flag.Parse()

	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), lifecyclev1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	options := ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}}
	if *namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{*namespace: {}}
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	worker := &worker{clock: clock.RealClock{}, requests: manager.GetClient(), work: *work}
	if err := interceptor.Add(manager, worker, interceptor.Options{Name: *name, NativeKey: *key, HeartbeatInterval: *heartbeat}); err != nil {
		return err
	}
	fmt.Printf("%s is waiting for its turn\n", cmp.Or(*name, *key))
	return manager.Start(ctx)
}
