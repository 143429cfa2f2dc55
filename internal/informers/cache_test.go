package informers

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/allocation"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// held is an informer that has some objects.
type held struct {
	toolscache.SharedIndexInformer

	indexer toolscache.Indexer
	synced  bool
}

func (h *held) GetIndexer() toolscache.Indexer { return h.indexer }

func (h *held) AddIndexers(indexers toolscache.Indexers) error {
	return h.indexer.AddIndexers(indexers)
}

func (h *held) HasSynced() bool { return h.synced }

func (h *held) LastSyncResourceVersion() string { return "17" }

// fixed is a cache of which the informers are given. It counts what is asked of it.
type fixed struct {
	cache.Cache

	pods, nodes, requests cache.Informer
	asked                 int
}

func (f *fixed) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	switch obj.(type) {
	case *corev1.Pod:
		return f.pods, nil
	case *corev1.Node:
		return f.nodes, nil
	case *v1alpha1.EvictionRequest:
		return f.requests, nil
	}
	return nil, errors.New("no such kind")
}

func (f *fixed) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	f.asked++
	if key.Name == "there" {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.SchemeGroupVersion.Group, Resource: "evictionrequests"}, key.Name)
}

func get(t *testing.T, c cache.Cache, obj client.Object) cache.Informer {
	t.Helper()
	i, err := c.GetInformer(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestOnlyPodsAreGathered(t *testing.T) {
	inner := &fixed{pods: &counted{}, nodes: &counted{}, requests: &held{}}
	c := &cheaper{Cache: inner}
	if got, ok := get(t, c, &corev1.Pod{}).(*informer); !ok || got.Informer != inner.pods {
		t.Errorf("the informer of pods is %T", got)
	}
	if get(t, c, &corev1.Pod{}) != get(t, c, &corev1.Pod{}) {
		t.Error("two informers of pods do not gather together")
	}
	if get(t, c, &corev1.Node{}) != inner.nodes || get(t, c, &v1alpha1.EvictionRequest{}) != inner.requests {
		t.Error("the informers of others are other ones")
	}
	mute := &cheaper{Cache: &fixed{requests: struct{ cache.Informer }{}}}
	if _, err := mute.GetInformer(t.Context(), &v1alpha1.EvictionRequest{}); err == nil {
		t.Error("an informer that does not show what it holds is no error")
	}
	if _, err := c.GetInformer(t.Context(), &corev1.Namespace{}); err == nil {
		t.Error("the error of the cache is lost")
	}
}

func TestTheCacheIsAskedOnlyForWhatItMayHave(t *testing.T) {
	there := builder.EvictionRequest("shop", "web", "there").Obj()
	there.Name = "there"
	requests := func(synced bool) cache.Informer {
		indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)
		if err := indexer.Add(there); err != nil {
			t.Fatal(err)
		}
		return &held{indexer: indexer, synced: synced}
	}
	request, pod := &v1alpha1.EvictionRequest{}, &corev1.Pod{}
	cases := map[string]struct {
		informer cache.Informer
		obj      client.Object
		name     string
		asked    int
		found    bool
	}{
		"a request that is there":             {requests(true), request, "there", 1, true},
		"one that is not":                     {requests(true), request, "other", 0, false},
		"one that is not yet, as far as seen": {requests(false), request, "there", 1, true},
		"no request, and no informer":         {nil, request, "other", 1, false},
		"another kind":                        {requests(true), pod, "other", 1, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inner := &fixed{requests: tc.informer}
			c := &cheaper{Cache: inner}
			if tc.informer != nil {
				get(t, c, request)
			}
			for range 2 {
				err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: tc.name}, tc.obj)
				if found := err == nil; found != tc.found || !found && !apierrors.IsNotFound(err) {
					t.Errorf("the answer is %v", err)
				}
			}
			if inner.asked != 2*tc.asked {
				t.Errorf("the cache was asked %d times for two calls, want %d", inner.asked, 2*tc.asked)
			}
		})
	}
}

// Several handlers ask at every event of every pod.
func TestToAskForNoRequestAllocatesTheKey(t *testing.T) {
	c := &cheaper{Cache: &fixed{requests: &held{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil), synced: true}}}
	er := &v1alpha1.EvictionRequest{}
	get(t, c, er)
	key := client.ObjectKey{Namespace: "shop", Name: "5d1c0a1b-6a9d-2e6f-43b5-b0f8e1d9a7c2"}
	allocation.AtMost(t, allocation.Cost{Allocs: 2, Bytes: 70}, func() {
		if err := c.Get(t.Context(), key, er); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	})
}

// BenchmarkGet is the question of every event of a pod: is there a request? Beside it the
// part of the cache's own answer that composes the error.
func BenchmarkGet(b *testing.B) {
	inner := &fixed{requests: &held{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil), synced: true}}
	c := &cheaper{Cache: inner}
	if _, err := c.GetInformer(b.Context(), &v1alpha1.EvictionRequest{}); err != nil {
		b.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "shop", Name: "5d1c0a1b-6a9d-2e6f-43b5-b0f8e1d9a7c2"}
	for _, way := range []struct {
		name string
		get  func(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error
	}{{"by the store", c.Get}, {"by the cache", inner.Get}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			er := &v1alpha1.EvictionRequest{}
			for b.Loop() {
				if err := way.get(b.Context(), key, er); !apierrors.IsNotFound(err) {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAnInformerTellsWhatItHasSeen(t *testing.T) {
	cases := map[string]struct {
		obj client.Object
		// want is empty for an error.
		want string
	}{
		"one that gathers":              {&corev1.Pod{}, "17"},
		"one that does not":             {&v1alpha1.EvictionRequest{}, "17"},
		"one that does not show it":     {&corev1.Node{}, ""},
		"a kind that nobody has wanted": {&corev1.Namespace{}, ""},
	}
	c := &cheaper{Cache: &fixed{pods: &held{}, requests: &held{}, nodes: struct{ cache.Informer }{}}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := LastSyncResourceVersion(t.Context(), c, tc.obj)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q and %v, want %q", got, err, tc.want)
			}
		})
	}
}
