package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// timeline notes what happens to each pod, as anybody could see it who watches
// pods and EvictionRequests.
type timeline struct {
	mu      sync.Mutex
	changed chan struct{} // Closed and replaced with each entry.
	started time.Time
	entries []entry
	seen    map[string]bool
}

type entry struct {
	at   time.Duration
	pod  string
	text string
}

// newTimeline watches the namespace until ctx ends.
func newTimeline(ctx context.Context, config *rest.Config, namespace string) (*timeline, error) {
	t := &timeline{changed: make(chan struct{}), started: time.Now(), seen: map[string]bool{}}
	objects, err := crcache.New(config, crcache.Options{Scheme: scheme, DefaultNamespaces: map[string]crcache.Config{namespace: {}}})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", namespace, err)
	}
	pods, err := objects.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	requests, err := objects.GetInformer(ctx, &v1alpha1.EvictionRequest{})
	if err != nil {
		return nil, fmt.Errorf("watch eviction requests: %w", err)
	}
	for _, watch := range []struct {
		informer crcache.Informer
		handler  cache.ResourceEventHandlerFuncs
	}{
		{pods, cache.ResourceEventHandlerFuncs{AddFunc: t.pod, UpdateFunc: func(_, o any) { t.pod(o) }, DeleteFunc: t.podGone}},
		{requests, cache.ResourceEventHandlerFuncs{AddFunc: t.request, UpdateFunc: func(_, o any) { t.request(o) }}},
	} {
		if _, err := watch.informer.AddEventHandler(watch.handler); err != nil {
			return nil, fmt.Errorf("watch %s: %w", namespace, err)
		}
	}
	go func() {
		if err := objects.Start(ctx); err != nil && ctx.Err() == nil {
			t.note("", "the timeline has stopped watching: "+err.Error())
		}
	}()
	if !objects.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch %s: %w", namespace, ctx.Err())
	}
	return t, nil
}

// restart forgets the entries so far and counts time from now.
func (t *timeline) restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started, t.entries = time.Now(), nil
}

// note adds an entry for the pod whose name starts with prefix and which the
// timeline saw first.
func (t *timeline) note(prefix, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := prefix
	if i := slices.IndexFunc(t.entries, func(e entry) bool { return strings.HasPrefix(e.pod, prefix) }); i >= 0 {
		name = t.entries[i].pod
	}
	t.add(name, text)
}

// add needs the lock.
func (t *timeline) add(pod, text string) {
	t.entries = append(t.entries, entry{at: time.Since(t.started), pod: pod, text: text})
	close(t.changed)
	t.changed = make(chan struct{})
}

// once adds an entry the first time its key is seen.
func (t *timeline) once(key, pod, text string) {
	if !t.seen[key] {
		t.seen[key] = true
		t.add(pod, text)
	}
}

func (t *timeline) pod(object any) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		t.once(string(p.UID)+"ready", p.Name, "ready on "+p.Spec.NodeName)
	}
	if p.DeletionTimestamp != nil {
		t.once(string(p.UID)+"deleting", p.Name, "evicted from "+p.Spec.NodeName)
	}
}

func (t *timeline) podGone(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	p, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.once(string(p.UID)+"gone", p.Name, "gone from "+p.Spec.NodeName)
}

func (t *timeline) request(object any) {
	r, ok := object.(*v1alpha1.EvictionRequest)
	if !ok || r.Spec.Target.Pod == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name := r.Spec.Target.Pod.Name
	var requesters []string
	for _, q := range r.Spec.Requesters {
		requesters = append(requesters, q.Name)
	}
	if len(requesters) > 0 {
		t.once(r.Name+string(r.UID)+"created", name, "eviction requested by "+strings.Join(requesters, ", "))
	}
	for _, active := range r.Status.ActiveInterceptors {
		t.once(string(r.UID)+"active"+active, name, "turn of "+active)
	}
	for _, i := range r.Status.Interceptors {
		if i.Message != "" {
			text := i.Message
			if i.Refusal != nil {
				text += " " + i.Refusal.Message
			}
			t.once(string(r.UID)+i.Name+i.Message, name, fmt.Sprintf("%s: %s", i.Name, text))
		}
	}
	for _, condition := range []string{v1alpha1.ConditionEvicted, v1alpha1.ConditionCanceled} {
		if c := meta.FindStatusCondition(r.Status.Conditions, condition); c != nil && meta.IsStatusConditionTrue(r.Status.Conditions, condition) {
			t.once(string(r.UID)+condition, name, fmt.Sprintf("request ends: %s (%s)", condition, c.Reason))
		}
	}
}

// wait returns when an entry of the pod whose name starts with prefix contains the text.
func (t *timeline) wait(ctx context.Context, prefix, text string) error {
	for {
		t.mu.Lock()
		changed := t.changed
		found := slices.ContainsFunc(t.entries, func(e entry) bool {
			return strings.HasPrefix(e.pod, prefix) && strings.Contains(e.text, text)
		})
		t.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q of pod %s*: %w", text, prefix, ctx.Err())
		}
	}
}

// indexOf is the place of the first entry like that, or -1.
func (t *timeline) indexOf(prefix, text string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.IndexFunc(t.entries, func(e entry) bool {
		return strings.HasPrefix(e.pod, prefix) && strings.Contains(e.text, text)
	})
}

// print writes the entries pod by pod.
func (t *timeline) print(p *printer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	byPod := map[string][]entry{}
	var names []string
	for _, e := range t.entries {
		if byPod[e.pod] == nil {
			names = append(names, e.pod)
		}
		byPod[e.pod] = append(byPod[e.pod], e)
	}
	for _, name := range names {
		p.linef("  %s", name)
		for _, e := range byPod[name] {
			p.linef("    %6.1fs  %s", e.at.Seconds(), e.text)
		}
	}
}
