//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// callers is how many call at a time where nothing else is said.
const callers = 50

// inParallel calls work for 0 to n-1 with so many at a time, and returns the first error.
// It stops soon after one.
func inParallel(ctx context.Context, n, workers int, work func(ctx context.Context, i int) error) error {
	// What fails because something else has failed tells nothing: the cause is the first error.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := work(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// makePods creates n pods on a node and returns them when all run. Each change
// alters a pod before.
func (e *env) makePods(ctx context.Context, namespace, node string, n int, changes ...func(int, *builder.PodWrapper)) ([]*corev1.Pod, error) {
	e.written++ // Names are used once.
	pods := make([]*corev1.Pod, n)
	err := inParallel(ctx, n, callers, func(ctx context.Context, i int) error {
		w := builder.Pod(namespace, fmt.Sprintf("pod-%d-%d", e.written, i)).Node(node).Label("app", fmt.Sprintf("bench-%d", e.written)).
			GracePeriod(0) // Gone at once: how fast the fake kubelet is must not matter.
		for _, change := range changes {
			change(i, w)
		}
		pods[i] = w.Obj()
		return e.crs.Create(ctx, pods[i])
	})
	if err != nil {
		return nil, fmt.Errorf("create pods: %w", err)
	}
	err = eventually(ctx, "the pods to run", func(ctx context.Context) (bool, error) {
		list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "status.phase=Running", LabelSelector: fmt.Sprintf("app=bench-%d", e.written), ResourceVersion: "0",
		})
		return err == nil && len(list.Items) >= n, nil
	})
	return pods, err
}

// evict calls the eviction subresource once.
func (e *env) evict(ctx context.Context, pod *corev1.Pod) error {
	return e.kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
}

// evictAll evicts pods with so many callers and returns how long the calls took.
func (e *env) evictAll(ctx context.Context, pods []*corev1.Pod, workers int) (time.Duration, error) {
	begun := time.Now()
	err := inParallel(ctx, len(pods), workers, func(ctx context.Context, i int) error { return e.evict(ctx, pods[i]) })
	return time.Since(begun), err
}

// noPods waits until a namespace is empty.
func (e *env) noPods(ctx context.Context, namespace string) error {
	return eventually(ctx, "the pods to go", func(ctx context.Context) (bool, error) {
		list, err := e.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && len(list.Items) == 0, nil
	})
}

// request is the native request for a pod.
func request(pod *corev1.Pod) *v1alpha1.EvictionRequest {
	return builder.EvictionRequest(pod.Namespace, pod.Name, pod.UID).Requesters("bench.example.com").Obj()
}

// noRequests deletes all requests of a namespace.
func (e *env) noRequests(ctx context.Context, namespace string) error {
	if err := e.crs.DeleteAllOf(ctx, &v1alpha1.EvictionRequest{}, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("delete requests: %w", err)
	}
	return nil
}

// following counts the objects of a watch for which done holds.
type following struct {
	stop func()
	// all is closed when the number asked for was reached.
	all chan struct{}
	// n is how many were asked for, done how many there are.
	n    int
	done atomic.Int64
}

// follow tells done of every event of a kind in a namespace from now on, until n
// objects are done.
func (e *env) follow(ctx context.Context, namespace string, kind client.Object, n int, done func(watch.EventType, runtime.Object) bool) (*following, error) {
	informers, err := cache.New(unlimited(e.cluster.Config()), cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		return nil, fmt.Errorf("make informers: %w", err)
	}
	informer, err := informers.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("make informer: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	f := &following{stop: stop, all: make(chan struct{}), n: n}
	seen := map[types.UID]bool{}
	told := func(event watch.EventType, obj any) {
		object, ok := obj.(client.Object)
		if !ok || !done(event, object) || seen[object.GetUID()] {
			return
		}
		seen[object.GetUID()] = true
		f.done.Store(int64(len(seen)))
		if len(seen) == n {
			close(f.all)
		}
	}
	// One handler is called by one goroutine.
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { told(watch.Added, obj) },
		UpdateFunc: func(_, obj any) { told(watch.Modified, obj) },
		DeleteFunc: func(obj any) { told(watch.Deleted, obj) },
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("follow: %w", err)
	}
	go func() { _ = informers.Start(running) }() // It ends with its context and has no other error.
	if err := eventually(ctx, "the informer", func(context.Context) (bool, error) { return handled.HasSynced(), nil }); err != nil {
		stop()
		return nil, err
	}
	return f, nil
}

// wait returns when all are done.
func (f *following) wait(ctx context.Context, what string) error {
	return f.waitFor(ctx, what, patience)
}

func (f *following) waitFor(ctx context.Context, what string, long time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	defer f.stop()
	select {
	case <-f.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %d of %d: %w", what, f.done.Load(), f.n, ctx.Err())
	}
}

func deleted(event watch.EventType, _ runtime.Object) bool { return event == watch.Deleted }

func isEvicted(_ watch.EventType, object runtime.Object) bool {
	er, ok := object.(*v1alpha1.EvictionRequest)
	return ok && meta.IsStatusConditionTrue(er.Status.Conditions, v1alpha1.ConditionEvicted)
}
