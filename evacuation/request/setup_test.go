package request

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drawbridge-dev/drawbridge/internal/controllers"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// setContent fills an unstructured object that a reader was asked for.
func setContent(t *testing.T, obj client.Object, content map[string]any) {
	t.Helper()
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		t.Fatalf("read into %T, want unstructured", obj)
	}
	u.Object = content
}

func TestPodEvents(t *testing.T) {
	tests := map[string]struct {
		before, after *builder.PodWrapper
		want          bool
	}{
		"nothing new":                     {webPod(), webPod(), false},
		"a label changed":                 {webPod().Label("app", "a"), webPod().Label("app", "b"), true},
		"a label went":                    {webPod().Label("app", "a"), webPod(), true},
		"an annotation changed":           {webPod(), webPod().Annotation("note", "x"), false},
		"it became ready":                 {webPod().Unready(), webPod().Ready(), false},
		"it started to run":               {webPod().Phase(corev1.PodPending), webPod(), false},
		"it succeeded":                    {webPod(), webPod().Phase(corev1.PodSucceeded), true},
		"it failed":                       {webPod(), webPod().Phase(corev1.PodFailed), true},
		"its deletion was asked for":      {webPod(), webPod().Deleting(t0), true},
		"its deletion was brought nearer": {webPod().Deleting(t0.Add(time.Minute)), webPod().Deleting(t0), true},
		"it was bound to a node":          {webPod().Node(""), webPod().Node("n1"), true},
		"it was replaced":                 {webPod(), webPod().UID("uid-2"), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := podEvents().Update(event.UpdateEvent{ObjectOld: tc.before.Obj(), ObjectNew: tc.after.Obj()})
			if got != tc.want {
				t.Errorf("passes: got %t, want %t", got, tc.want)
			}
		})
	}
	t.Run("pods that come and go pass", func(t *testing.T) {
		if !podEvents().Create(event.CreateEvent{Object: webPod().Obj()}) || !podEvents().Delete(event.DeleteEvent{Object: webPod().Obj()}) {
			t.Error("an addition or a deletion does not pass")
		}
	})
}

func TestRequestOfPod(t *testing.T) {
	of := []reconcile.Request{{NamespacedName: key}}
	tests := map[string]struct {
		objects []client.Object
		fail    error
		want    []reconcile.Request
	}{
		"a pod with a request":               {[]client.Object{newRequest().Obj()}, nil, of},
		"a pod without one costs nothing":    {nil, nil, nil},
		"not knowing is no reason to forget": {nil, errors.New("cache is not ready"), of},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.objects...)
			b.fail = func(string) error { return tc.fail }
			if diff := cmp.Diff(tc.want, b.requestOfPod(t.Context(), webPod().Obj())); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetupNamesWhatIsMissing(t *testing.T) {
	err := (&Reconciler{}).SetupWithManager(nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, field := range []string{"Client", "APIReader", "Clock", "Resolver", "Deadline", "ResolveLive", "Recorder", "Metrics", "Policy.HeartbeatDeadline"} {
		if !strings.Contains(err.Error(), field+" is not set") {
			t.Errorf("error %q does not name %s", err, field)
		}
	}
	if err := newBench(t).validate(); err != nil {
		t.Errorf("complete: got %v, want no error", err)
	}
}

// The real controller on its real queue: nothing but the clock wakes it. Statements
// 68 and 70 with two silent interceptors, and the start of the controller as the
// start of the start-up grace.
func TestControllerWakesExactlyWhenTheClockSaysSo(t *testing.T) {
	b := newBench(t, newRequest().Obj(), webPod().Interceptors("a.example.com", "b.example.com").Obj())
	options := b.options().Controller()
	options.Reconciler = b.Reconciler
	options.SkipNameValidation = new(true)
	options.LogConstructor = func(*reconcile.Request) logr.Logger { return logr.Discard() }
	engine, err := controller.NewTypedUnmanaged(controllerName, options)
	if err != nil {
		t.Fatalf("new controller: %v", err)
	}
	once := source.Func(func(_ context.Context, queue controllers.Queue) error {
		queue.Add(reconcile.Request{NamespacedName: key})
		return nil
	})
	if err := engine.Watch(once); err != nil {
		t.Fatalf("watch: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- engine.Start(ctx) }()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("controller: %v", err)
		}
	}()

	// Two tickers belong to the queue itself; the third waiter is the wake-up.
	const tickers, wakeUp, whatever = 2, 1, 0
	steps := []struct {
		name   string
		step   time.Duration
		timers int
		want   string
	}{
		{"started", 0, tickers + wakeUp, "active [a.example.com] processed []"},
		{"19:59", 20*time.Minute - time.Second, tickers + wakeUp, "active [a.example.com] processed []"},
		{"20:00", time.Second, tickers + wakeUp, "active [b.example.com] processed [a.example.com]"},
		{"39:59", 20*time.Minute - time.Second, tickers + wakeUp, "active [b.example.com] processed [a.example.com]"},
		// If its ticker fires while the clock is stepped, the queue leaves a timer behind that
		// wakes nobody.
		{"40:00", time.Second, whatever, "active [imperative-eviction.k8s.io] processed [a.example.com b.example.com]"},
		{"an hour later nothing is left", time.Hour, tickers, "active [imperative-eviction.k8s.io] processed [a.example.com b.example.com]"},
	}
	for _, step := range steps {
		b.clock.Step(step.step)
		waiting.Eventually(t, step.name, func(context.Context) error {
			got, timers := b.state(t), b.clock.Waiters()
			if got != step.want || step.timers != whatever && timers != step.timers {
				return fmt.Errorf("got %s with %d timers, want %s with %d", got, timers, step.want, step.timers)
			}
			return nil
		})
	}
	if b.startedAt != t0 {
		t.Errorf("started at %s, want %s", b.startedAt, t0)
	}
}

// What the first engine wrote is all the second one has (statement 75).
func TestRestartResumesFromTheStatus(t *testing.T) {
	b := newBench(t, newRequest().Obj(), webPod().Obj())
	b.mustReconcile(t)
	b.clock.SetTime(t0.Add(3 * time.Hour))

	second := newBench(t)
	second.Client, second.APIReader, second.Clock = b.Client, b.APIReader, b.clock
	second.live, second.startedAt = b.live, b.clock.Now()
	if wake := second.mustReconcile(t); wake != 5*time.Minute {
		t.Errorf("after the restart: wakes after %s, want the start-up grace of 5m", wake)
	}
	if got, want := second.state(t), "active [a.example.com] processed []"; got != want {
		t.Errorf("after the restart: got %s, want %s", got, want)
	}
	b.clock.Step(5 * time.Minute)
	second.mustReconcile(t)
	if got, want := second.state(t), "active [imperative-eviction.k8s.io] processed [a.example.com]"; got != want {
		t.Errorf("after the grace: got %s, want %s", got, want)
	}
}
