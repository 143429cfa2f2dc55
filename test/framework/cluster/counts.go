package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Counts are how many of something there were over time, by a watch.
type Counts struct {
	mu   sync.Mutex
	each map[types.UID]int
	seen []int
	err  error
}

// WatchCounts adds up what each object of the namespace counts for.
func (c *Cluster) WatchCounts(tb testing.TB, namespace string, list client.ObjectList, count func(client.Object) int) *Counts {
	tb.Helper()
	api := Must(client.NewWithWatch(c.Config(), client.Options{Scheme: Scheme()}))(tb)
	watched := Must(api.Watch(tb.Context(), list, client.InNamespace(namespace)))(tb)
	n := &Counts{each: map[types.UID]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watched.ResultChan() {
			n.take(e, count)
		}
	}()
	tb.Cleanup(func() {
		watched.Stop()
		<-done
	})
	return n
}

func (n *Counts) take(e watch.Event, count func(client.Object) int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	object, ok := e.Object.(client.Object)
	if !ok || e.Type == watch.Error {
		n.err = fmt.Errorf("the watch says %s: %v", e.Type, e.Object)
		return
	}
	n.each[object.GetUID()] = count(object)
	if e.Type == watch.Deleted {
		delete(n.each, object.GetUID())
	}
	total := 0
	for _, each := range n.each {
		total += each
	}
	n.seen = append(n.seen, total)
}

// Await waits until there are so many.
func (n *Counts) Await(tb testing.TB, want int) {
	tb.Helper()
	Eventually(tb, fmt.Sprintf("a count of %d", want), func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.seen) == 0 || n.seen[len(n.seen)-1] != want {
			return fmt.Errorf("so far %v", n.seen)
		}
		return nil
	})
}

// Least is the smallest count since it was want for the first time.
func (n *Counts) Least(tb testing.TB, want int) int {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	first := slices.Index(n.seen, want)
	if n.err != nil || first < 0 {
		tb.Fatalf("counts %v, error %v", n.seen, n.err)
	}
	return slices.Min(n.seen[first:])
}

// Most is the largest count.
func (n *Counts) Most(tb testing.TB) int {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil || len(n.seen) == 0 {
		tb.Fatalf("counts %v, error %v", n.seen, n.err)
	}
	return slices.Max(n.seen)
}

// ReadyEndpoints counts those of an EndpointSlice.
func ReadyEndpoints(object client.Object) int {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return 0
	}
	ready := 0
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
			ready++
		}
	}
	return ready
}
