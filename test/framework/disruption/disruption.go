// Package disruption watches from outside which groups of pods are disrupted at the same
// time. It knows nothing of the product: it counts ready pods in the order of the events.
package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Groups says which pods are counted.
type Groups struct {
	Namespace string
	// Label has the name of a pod's group.
	Label string
	// Expected is how many ready pods each group should have. Groups that are not in it
	// are not counted.
	Expected map[string]int
}

// Watcher counts since Start.
type Watcher struct {
	groups Groups
	stop   context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	ready map[types.UID]string
	seen  Seen
	err   error
}

// Seen is what was seen.
type Seen struct {
	// Most is how many groups were disrupted at the same time, at most, and Worst how it
	// came to that.
	Most  int
	Worst string
	// MostOf is how many pods of a group were missing at the same time, at most.
	MostOf map[string]int
	// Times is how often a group became disrupted.
	Times int
}

// Start begins to watch. All groups must be complete.
func Start(ctx context.Context, clients kubernetes.Interface, groups Groups) (*Watcher, error) {
	pods := clients.CoreV1().Pods(groups.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	w := &Watcher{groups: groups, done: make(chan struct{}), ready: map[types.UID]string{}, seen: Seen{MostOf: map[string]int{}}}
	for i := range list.Items {
		w.note(&list.Items[i], false)
	}
	if lacking := w.disrupted(); len(lacking) > 0 {
		return nil, fmt.Errorf("groups that are not complete: %s", strings.Join(lacking, ", "))
	}
	ctx, w.stop = context.WithCancel(ctx)
	events, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	})
	if err != nil {
		w.stop()
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	go w.run(events)
	return w, nil
}

func (w *Watcher) run(events *toolswatch.RetryWatcher) {
	defer close(w.done)
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		w.mu.Lock()
		switch {
		case event.Type == watch.Bookmark:
		case !ok || event.Type == watch.Error:
			w.err = errors.Join(w.err, fmt.Errorf("the watch said %s: %v", event.Type, event.Object))
		default:
			before := w.disrupted()
			w.note(pod, event.Type == watch.Deleted)
			w.look(before, string(event.Type)+" "+pod.Name)
		}
		w.mu.Unlock()
	}
}

// note counts a pod as ready or not.
func (w *Watcher) note(pod *corev1.Pod, deleted bool) {
	delete(w.ready, pod.UID)
	group := pod.Labels[w.groups.Label]
	if _, counted := w.groups.Expected[group]; !counted || deleted || pod.DeletionTimestamp != nil {
		return
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			w.ready[pod.UID] = group
		}
	}
}

// missing is how many pods each group lacks.
func (w *Watcher) missing() map[string]int {
	missing := maps.Clone(w.groups.Expected)
	for _, group := range w.ready {
		missing[group]--
	}
	return missing
}

func (w *Watcher) disrupted() (groups []string) {
	for group, n := range w.missing() {
		if n > 0 {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return groups
}

func (w *Watcher) look(before []string, event string) {
	now := w.disrupted()
	for _, group := range now {
		if !slices.Contains(before, group) {
			w.seen.Times++
		}
	}
	for group, n := range w.missing() {
		w.seen.MostOf[group] = max(w.seen.MostOf[group], n)
	}
	if len(now) > w.seen.Most {
		w.seen.Most, w.seen.Worst = len(now), fmt.Sprintf("after %s the groups %s were disrupted", event, strings.Join(now, ", "))
	}
}

// Seen is what was seen so far.
func (w *Watcher) Seen() Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	seen.MostOf = maps.Clone(seen.MostOf)
	return seen
}

// Stop ends the watch and returns what was seen. An error means that something may have
// been missed.
func (w *Watcher) Stop() (Seen, error) {
	w.stop()
	<-w.done
	return w.seen, w.err
}
