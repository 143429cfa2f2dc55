package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// endpoints counts the ready endpoints of a Service, as a load balancer sees them.
type endpoints struct {
	// stop ends the watch, and returns when it has ended.
	stop func()

	mu sync.Mutex
	// ready are the addresses of each EndpointSlice.
	ready map[string][]string
	// counts are the numbers seen one after the other, each another one than before.
	counts   []int
	smallest int
	// ever are all addresses that were ready.
	ever sets.Set[string]
}

// watchEndpoints watches the Service's EndpointSlices until it is stopped.
func watchEndpoints(ctx context.Context, client kubernetes.Interface, namespace, service string) (*endpoints, error) {
	e := &endpoints{ready: map[string][]string{}}
	e.restart()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = discoveryv1.LabelServiceName + "=" + service }))
	registration, err := factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { e.see(o, false) },
		UpdateFunc: func(_, o any) { e.see(o, false) },
		DeleteFunc: func(o any) { e.see(o, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the endpoints of %s: %w", service, err)
	}
	watching, cancel := context.WithCancel(ctx)
	e.stop = func() { cancel(); factory.Shutdown() }
	factory.StartWithContext(watching)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		e.stop()
		return nil, fmt.Errorf("watch the endpoints of %s: %w", service, ctx.Err())
	}
	return e, nil
}

func (e *endpoints) see(object any, gone bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready[slice.Name] = nil
	for _, endpoint := range slice.Endpoints {
		// Not known counts as ready, as the API says.
		if ready := endpoint.Conditions.Ready; !gone && (ready == nil || *ready) {
			e.ready[slice.Name] = append(e.ready[slice.Name], endpoint.Addresses...)
		}
	}
	e.count()
}

// count needs the lock.
func (e *endpoints) count() {
	now := sets.New[string]()
	for _, addresses := range e.ready {
		now.Insert(addresses...)
	}
	e.ever = e.ever.Union(now)
	e.smallest = min(e.smallest, now.Len())
	if len(e.counts) == 0 || e.counts[len(e.counts)-1] != now.Len() {
		e.counts = append(e.counts, now.Len())
	}
}

// restart forgets all but what is ready at present.
func (e *endpoints) restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	const many = 1 << 30
	e.counts, e.smallest, e.ever = nil, many, nil
	e.count()
}

// moved returns when more than one address was ready since the restart.
func (e *endpoints) moved(ctx context.Context) error {
	return waiting.For(ctx, "another endpoint", func(context.Context) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if n := e.ever.Len(); n < 2 {
			return fmt.Errorf("%d so far", n)
		}
		return nil
	})
}

// seen returns the numbers since the restart, and the smallest of them.
func (e *endpoints) seen() (all string, smallest int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Trim(fmt.Sprint(e.counts), "[]"), e.smallest
}
