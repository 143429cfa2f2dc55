package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// counted is an informer that counts its listeners.
type counted struct {
	toolscache.SharedIndexInformer

	mu             sync.Mutex
	added, removed int
}

func (c *counted) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	c.mu.Lock()
	c.added++
	c.mu.Unlock()
	return c.SharedIndexInformer.AddEventHandler(handler)
}

func (c *counted) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	c.mu.Lock()
	c.added++
	c.mu.Unlock()
	return c.SharedIndexInformer.AddEventHandlerWithOptions(handler, o)
}

func (c *counted) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	c.mu.Lock()
	c.removed++
	c.mu.Unlock()
	return c.SharedIndexInformer.RemoveEventHandler(handle)
}

func (c *counted) listeners() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return []int{c.added, c.removed}
}

// ear keeps what it hears.
type ear struct {
	mu    sync.Mutex
	heard []string
}

func (e *ear) hearf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, fmt.Sprintf(format, args...))
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

func (e *ear) OnAdd(obj any, initial bool) { e.hearf("add %s %t", name(obj), initial) }
func (e *ear) OnUpdate(_, obj any)         { e.hearf("update %s", name(obj)) }
func (e *ear) OnDelete(obj any)            { e.hearf("delete %s", name(obj)) }

func name(obj any) string {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return err.Error()
	}
	return key
}

func pod(name string) *corev1.Pod { return builder.Pod("shop", name).Obj() }

// world is an informer that runs, with one pod in its first list.
type world struct {
	t      *testing.T
	source *cachetesting.FakeControllerSource
	inner  *counted
	clock  *testingclock.FakeClock
	outer  *informer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, source: cachetesting.NewFakeControllerSource(), clock: testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))}
	w.source.Add(pod("old"))
	w.inner = &counted{SharedIndexInformer: toolscache.NewSharedIndexInformer(w.source, &corev1.Pod{}, 0, nil)}
	w.outer = &informer{Informer: w.inner, clock: w.clock, log: testr.New(t)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.inner.RunWithContext(ctx)
	}()
	t.Cleanup(func() {
		stop()
		w.source.Shutdown()
		<-ended
	})
	return w
}

func (w *world) add(handler toolscache.ResourceEventHandler) toolscache.ResourceEventHandlerRegistration {
	w.t.Helper()
	handle, err := w.outer.AddEventHandler(handler)
	if err != nil {
		w.t.Fatal(err)
	}
	return handle
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	waiting.Eventually(w.t, what, func(context.Context) error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

func (w *world) hears(e *ear, want ...string) {
	w.t.Helper()
	w.eventually("the events", func() bool { return len(e.all()) >= len(want) })
	if diff := cmp.Diff(want, e.all()); diff != "" {
		w.t.Errorf("heard (-want +got):\n%s", diff)
	}
}

func TestHandlersThatComeTogetherShareAListener(t *testing.T) {
	w := newWorld(t)
	first, second, late := &ear{}, &ear{}, &ear{}
	handles := []toolscache.ResourceEventHandlerRegistration{w.add(first), w.add(second)}
	if handles[0].HasSynced() {
		t.Error("it has synced, and nobody has listened")
	}
	w.clock.Step(gathering)
	for _, handle := range handles {
		w.eventually("all pods", handle.HasSynced)
		<-handle.HasSyncedChecker().Done()
	}
	w.source.Add(pod("new"))
	w.source.Modify(builder.Pod("shop", "new").Label("a", "b").Obj())
	w.source.Delete(pod("old"))
	for _, e := range []*ear{first, second} {
		w.hears(e, "add shop/old true", "add shop/new false", "update shop/new", "delete shop/old")
	}

	handle := w.add(late)
	w.clock.Step(gathering)
	w.eventually("all pods", handle.HasSynced)
	w.hears(late, "add shop/new true")
	if diff := cmp.Diff([]int{2, 0}, w.inner.listeners()); diff != "" {
		t.Errorf("listeners added and removed (-want +got):\n%s", diff)
	}
}

func TestAHandlerThatIsRemovedHearsNoMore(t *testing.T) {
	w := newWorld(t)
	gone, early, stays := &ear{}, &ear{}, &ear{}
	goneHandle, earlyHandle, staysHandle := w.add(gone), w.add(early), w.add(stays)
	remove := func(handle toolscache.ResourceEventHandlerRegistration) {
		t.Helper()
		for range 2 { // A second time is no error.
			if err := w.outer.RemoveEventHandler(handle); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove(earlyHandle)
	w.clock.Step(gathering)
	w.hears(gone, "add shop/old true")
	remove(goneHandle)
	w.source.Add(pod("new"))
	w.hears(stays, "add shop/old true", "add shop/new false")
	if diff := cmp.Diff([][]string{{"add shop/old true"}, nil}, [][]string{gone.all(), early.all()}); diff != "" {
		t.Errorf("the removed ones heard (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{1, 0}, w.inner.listeners()); diff != "" {
		t.Errorf("listeners added and removed (-want +got):\n%s", diff)
	}
	remove(staysHandle)
	if got := w.inner.listeners(); got[1] == 0 {
		t.Error("nobody is left, and the informer still tells")
	}
}

func TestOneThatWantsResyncsListensByItself(t *testing.T) {
	w := newWorld(t)
	alone := &ear{}
	handle, err := w.outer.AddEventHandlerWithOptions(alone, toolscache.HandlerOptions{ResyncPeriod: new(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("all pods", handle.HasSynced)
	w.hears(alone, "add shop/old true")
	if err := w.outer.RemoveEventHandler(handle); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]int{1, 1}, w.inner.listeners()); diff != "" {
		t.Errorf("listeners added and removed (-want +got):\n%s", diff)
	}
}

func TestAnInformerThatHasEndedRefuses(t *testing.T) {
	inner := &counted{SharedIndexInformer: toolscache.NewSharedIndexInformer(cachetesting.NewFakeControllerSource(), &corev1.Pod{}, 0, nil)}
	clock := testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	outer := &informer{Informer: inner, clock: clock, log: testr.New(t)}
	gathered, err := outer.AddEventHandler(&ear{})
	if err != nil {
		t.Fatal(err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	inner.RunWithContext(ended)
	if _, err := outer.AddEventHandler(&ear{}); err == nil {
		t.Error("it has ended, and takes a handler")
	}
	clock.Step(gathering)
	if gathered.HasSynced() {
		t.Error("it has ended, and a handler has had all pods")
	}
	if err := outer.RemoveEventHandler(gathered); err != nil {
		t.Error(err)
	}
}

// BenchmarkEvent is an event until the last of eleven handlers that do nothing has had it,
// as an informer does it and as we do. Each reports its cost as a multiple of the latter.
func BenchmarkEvent(b *testing.B) {
	const handlers = 11
	base := 0.0
	for _, way := range []string{"gathered", "a listener each"} {
		b.Run(way, func(b *testing.B) {
			source := cachetesting.NewFakeControllerSource()
			inner := toolscache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
			clock := testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))
			var outer cache.Informer = inner
			if way == "gathered" {
				outer = &informer{Informer: inner, clock: clock}
			}
			var left sync.WaitGroup
			for range handlers {
				_, err := outer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { left.Done() }, UpdateFunc: func(any, any) { left.Done() }})
				if err != nil {
					b.Fatal(err)
				}
			}
			clock.Step(gathering)
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				inner.RunWithContext(ctx)
			}()
			changed := pod("a")
			left.Add(handlers)
			source.Add(changed)
			left.Wait()
			b.ReportAllocs()
			for b.Loop() {
				const burst = 100
				left.Add(burst * handlers)
				for range burst {
					source.Modify(changed)
				}
				left.Wait()
			}
			each := float64(b.Elapsed()) / float64(b.N)
			if base == 0 {
				base = each
			}
			b.ReportMetric(each/base, "times-gathered")
			stop()
			source.Shutdown()
			<-ended
		})
	}
}
