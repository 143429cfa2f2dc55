package informers

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
)

// gathering is how long handlers are gathered before they listen. The controllers of a
// leader start within a few milliseconds.
const gathering = 50 * time.Millisecond

// informer gathers handlers: an informer wakes two goroutines for each listener and event,
// which costs more than most of our handlers do.
type informer struct {
	cache.Informer

	clock clock.WithDelayedExecution
	log   logr.Logger

	mu sync.Mutex
	// open is the group that does not listen yet, nil if there is none.
	open *group
}

// group is some handlers that listen together.
type group struct {
	members []*member // Fixed once they listen.
	// listening is closed when registration and err are set.
	listening    chan struct{}
	registration toolscache.ResourceEventHandlerRegistration
	err          error
}

// member is one handler, and its own registration.
type member struct {
	handler toolscache.ResourceEventHandler
	group   *group
	removed atomic.Bool
}

var (
	_ toolscache.ResourceEventHandler             = &group{}
	_ toolscache.ResourceEventHandlerRegistration = &member{}
)

// AddEventHandler gathers a handler.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

// AddEventHandlerWithOptions gathers a handler. One that wants resyncs listens by itself.
func (i *informer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if options.ResyncPeriod != nil || i.IsStopped() {
		return i.Informer.AddEventHandlerWithOptions(alone(handler), options) //nolint:wrapcheck // It is the informer, to those who call.
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open == nil {
		opened := &group{listening: make(chan struct{})}
		i.open = opened
		i.clock.AfterFunc(gathering, func() { i.listen(opened) })
	}
	m := &member{handler: handler, group: i.open}
	i.open.members = append(i.open.members, m)
	return m, nil
}

// AddEventHandlerWithResyncPeriod does not gather: it is for handlers that want resyncs.
func (i *informer) AddEventHandlerWithResyncPeriod(
	handler toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(alone(handler), period) //nolint:wrapcheck // It is the informer, to those who call.
}

// listen ends the gathering.
func (i *informer) listen(g *group) {
	i.mu.Lock()
	i.open = nil
	i.mu.Unlock()
	g.registration, g.err = i.Informer.AddEventHandler(g)
	close(g.listening)
	if g.err != nil {
		// It has been stopped, so the manager ends.
		i.log.Error(g.err, "Could not listen to the events of pods", "handlers", len(g.members))
	}
}

// RemoveEventHandler ends the events of a handler.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	m, ok := handle.(*member)
	if !ok {
		return i.Informer.RemoveEventHandler(handle) //nolint:wrapcheck // It is the informer, to those who call.
	}
	m.removed.Store(true)
	i.mu.Lock()
	gathering := i.open == m.group
	all := !slices.ContainsFunc(m.group.members, func(m *member) bool { return !m.removed.Load() })
	i.mu.Unlock()
	if gathering || !all {
		return nil
	}
	<-m.group.listening
	if m.group.err != nil {
		return nil //nolint:nilerr // It never listened.
	}
	return i.Informer.RemoveEventHandler(m.group.registration) //nolint:wrapcheck // It is the informer, to those who call.
}

// HasSynced reports whether the handler has had all pods.
func (m *member) HasSynced() bool {
	select {
	case <-m.group.listening:
		return m.group.err == nil && m.group.registration.HasSynced()
	default:
		return false
	}
}

// HasSyncedChecker completes when the handler has had all pods.
func (m *member) HasSyncedChecker() toolscache.DoneChecker {
	c := &checker{done: make(chan struct{})}
	go func() {
		<-m.group.listening
		if m.group.err == nil {
			<-m.group.registration.HasSyncedChecker().Done()
			close(c.done)
		}
	}()
	return c
}

type checker struct{ done chan struct{} }

func (c *checker) Name() string { return "handlers of pods" }

func (c *checker) Done() <-chan struct{} { return c.done }

// OnAdd tells all handlers of a pod.
func (g *group) OnAdd(obj any, isInInitialList bool) {
	var pod once
	for _, m := range g.members {
		if !m.removed.Load() {
			m.handler.OnAdd(pod.of(obj, m.handler), isInInitialList)
		}
	}
}

// OnUpdate tells all handlers of a change.
func (g *group) OnUpdate(before, after any) {
	var was, is once
	for _, m := range g.members {
		if !m.removed.Load() {
			m.handler.OnUpdate(was.of(before, m.handler), is.of(after, m.handler))
		}
	}
}

// OnDelete tells all handlers that a pod is gone.
func (g *group) OnDelete(obj any) {
	var pod once
	for _, m := range g.members {
		if !m.removed.Load() {
			m.handler.OnDelete(pod.of(obj, m.handler))
		}
	}
}

// Keeping is a handler of pods that keeps them after the event, so that they must stay
// small: it gets them as the informer holds them, for packed.Of. Any other informer calls
// it with pods.
type Keeping struct {
	toolscache.ResourceEventHandler
}

// once is the pod of an object, made for the first handler that wants one.
type once struct{ pod any }

func (o *once) of(obj any, handler toolscache.ResourceEventHandler) any {
	if _, keeps := handler.(Keeping); keeps {
		return obj
	}
	if o.pod == nil {
		o.pod = whole(obj)
	}
	return o.pod
}

// whole is the pod of an object, also of one that was deleted unseen.
func whole(obj any) any {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		gone.Obj = whole(gone.Obj)
		return gone
	}
	if pod := packed.Of(obj); pod != nil {
		return pod
	}
	return obj
}

// alone is a group of one.
func alone(handler toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	return &group{members: []*member{{handler: handler}}}
}
