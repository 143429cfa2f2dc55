package waitfor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	statefulSets = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	ref          = Ref{"apps/v1", "StatefulSet", "shop", "db"}
)

// world is for the bookkeeping only: who follows what, and which informers there are. The
// fake knows no field selectors and no permissions of its own; that the informers see the
// changes of an API server, and what is forbidden there, the e2e tests show.
type world struct {
	*Watches
	client *dynamicfake.FakeDynamicClient
	stop   func()
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{statefulSets: "StatefulSetList"}, objects...)
	w := &world{Watches: New(client, mapper, testr.New(t), "chart value hooks.wait.rules"), client: client}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(func() { w.stop() })
	return w
}

func statefulSet(replicas int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"namespace": "shop", "name": "db", "managedFields": []any{map[string]any{"manager": "x"}}},
		"spec":     map[string]any{"replicas": replicas},
	}}
}

// followers returns how many followers each watched object has.
func (w *world) followers() map[Ref]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[Ref]int{}
	for ref, o := range w.of {
		o.mu.Lock()
		all[ref] = len(o.followers)
		o.mu.Unlock()
	}
	return all
}

// watches counts the watches that were begun.
func (w *world) watches() int {
	n := 0
	for _, action := range w.client.Actions() {
		if action.GetVerb() == "watch" {
			n++
		}
	}
	return n
}

func (w *world) mustGet(t *testing.T, ref Ref, follower string, changed func()) map[string]any {
	t.Helper()
	object, err := w.Get(t.Context(), ref, follower, changed)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func nothing() {}

func TestFollowersShareAnInformer(t *testing.T) {
	w := newWorld(t, statefulSet(3))
	var first, second atomic.Int32
	got := w.mustGet(t, ref, "a", func() { first.Add(1) })
	want := map[string]any{
		"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"namespace": "shop", "name": "db"}, "spec": map[string]any{"replicas": int64(3)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
	// One watch asks for permission, the other one is the informer's.
	until(t, "the informer watches", func() bool { return w.watches() == 2 })
	w.mustGet(t, ref, "b", func() { second.Add(1) })
	w.mustGet(t, ref, "a", func() { first.Add(1) })
	if diff := cmp.Diff(map[Ref]int{ref: 2}, w.followers()); diff != "" {
		t.Errorf("followers (-want +got):\n%s", diff)
	}
	if n := w.watches(); n != 2 {
		t.Errorf("%d watches were begun", n)
	}
	if first.Load() != 0 || second.Load() != 0 {
		t.Error("what is in the first list is no change")
	}

	if _, err := w.client.Resource(statefulSets).Namespace("shop").Update(t.Context(), statefulSet(4), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "all are told", func() bool { return first.Load() > 0 && second.Load() > 0 })
	got = w.mustGet(t, ref, "a", func() { first.Add(1) })
	if replicas, _, _ := unstructured.NestedInt64(got, "spec", "replicas"); replicas != 4 {
		t.Errorf("%d replicas after the change", replicas)
	}

	w.Release("a")
	before := first.Load()
	if err := w.client.Resource(statefulSets).Namespace("shop").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the one that is left is told", func() bool { return second.Load() > 1 })
	if first.Load() != before {
		t.Error("one that left is told")
	}
	if got := w.mustGet(t, ref, "b", nothing); got != nil {
		t.Errorf("a deleted object is %v", got)
	}

	w.Release("nobody")
	w.Release("b")
	if diff := cmp.Diff(map[Ref]int{}, w.followers()); diff != "" {
		t.Errorf("followers (-want +got):\n%s", diff)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); w.running.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the informer goes on")
	}
}

func TestObjectThatDoesNotExistYet(t *testing.T) {
	w := newWorld(t)
	var told atomic.Int32
	if got := w.mustGet(t, ref, "a", func() { told.Add(1) }); got != nil {
		t.Errorf("got %v", got)
	}
	until(t, "the informer watches", func() bool { return w.watches() == 2 })
	if _, err := w.client.Resource(statefulSets).Namespace("shop").Create(t.Context(), statefulSet(1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the follower is told", func() bool { return told.Load() > 0 })
	if got := w.mustGet(t, ref, "a", nothing); got == nil {
		t.Error("it exists")
	}
}

func TestWhatIsNotWatched(t *testing.T) {
	cases := map[string]struct {
		ref  Ref
		want string
	}{
		"a kind that is not installed": {Ref{"example.com/v1", "Quorum", "shop", "db"}, "Quorum of example.com/v1 is not installed"},
		"a version that is not served": {Ref{"apps/v2", "StatefulSet", "shop", "db"}, "StatefulSet of apps/v2 is not installed"},
		"a Secret":                     {Ref{"v1", "Secret", "shop", "db"}, "Secret of v1 is refused: Secrets are not read"},
		"a kind without a namespace":   {Ref{"v1", "Node", "shop", "n1"}, "Node of v1 is refused: its objects are in no namespace"},
		"all of a namespace":           {Ref{"apps/v1", "StatefulSet", "shop", ""}, "StatefulSet of apps/v1 is refused: the object has no name or no namespace"},
		"all namespaces":               {Ref{"apps/v1", "StatefulSet", "", "db"}, "StatefulSet of apps/v1 is refused: the object has no name or no namespace"},
		"a malformed apiVersion":       {Ref{"a/b/c", "StatefulSet", "shop", "db"}, "StatefulSet of a/b/c is refused: the apiVersion is malformed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, err := w.Get(t.Context(), tc.ref, "a", nothing)
			if err == nil {
				t.Fatal("it is watched")
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var unknown *UnknownKindError
			var refused *RefusedError
			if !errors.As(err, &unknown) && !errors.As(err, &refused) {
				t.Errorf("%T is no error for people", err)
			}
			if actions := w.client.Actions(); len(actions) != 0 {
				t.Errorf("the API server is asked: %v", actions)
			}
		})
	}
}

func TestForbidden(t *testing.T) {
	const want = `Drawbridge may not read StatefulSet shop/db: it needs the verbs list and watch on statefulsets in API group "apps" (chart value hooks.wait.rules)`
	forbidden := apierrors.NewForbidden(statefulSets.GroupResource(), "db", errors.New("no role"))
	check := func(t *testing.T, w *world) {
		t.Helper()
		_, err := w.Get(t.Context(), ref, "a", nothing)
		var refused *ForbiddenError
		if !errors.As(err, &refused) {
			t.Fatalf("got %v, want a *ForbiddenError", err)
		}
		if diff := cmp.Diff(want, refused.Error()); diff != "" {
			t.Errorf("error (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[Ref]int{}, w.followers()); diff != "" {
			t.Errorf("followers (-want +got):\n%s", diff)
		}
	}
	t.Run("to list", func(t *testing.T) {
		w := newWorld(t)
		w.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
		check(t, w)
	})
	t.Run("to watch", func(t *testing.T) {
		w := newWorld(t)
		w.client.PrependWatchReactor("*", clienttesting.DefaultWatchReactor(nil, forbidden))
		check(t, w)
	})
	// The informer's own list fails, after the question was answered with yes.
	t.Run("from now on", func(t *testing.T) {
		w := newWorld(t)
		var lists, told atomic.Int32
		w.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return lists.Add(1) > 1, nil, forbidden
		})
		_, err := w.Get(t.Context(), ref, "a", func() { told.Add(1) })
		var refused *ForbiddenError
		if !errors.As(err, &refused) {
			t.Fatalf("got %v, want a *ForbiddenError", err)
		}
		until(t, "the follower is told", func() bool { return told.Load() == 1 })
		check(t, w)
	})
}

func TestContextOfGetEnds(t *testing.T) {
	w := newWorld(t)
	why := errors.New("the eviction was canceled")
	ctx, cancel := context.WithCancelCause(t.Context())
	release := make(chan struct{})
	var lists atomic.Int32
	w.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lists.Add(1) == 1 {
			return false, nil, nil
		}
		cancel(why)
		<-release
		return false, nil, nil
	})
	_, err := w.Get(ctx, ref, "a", nothing)
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	w.Release("a")
	close(release)
	if diff := cmp.Diff(map[Ref]int{}, w.followers()); diff != "" {
		t.Errorf("followers (-want +got):\n%s", diff)
	}
}

func TestAfterRun(t *testing.T) {
	w := newWorld(t, statefulSet(3))
	w.mustGet(t, ref, "a", nothing)
	w.stop()
	if diff := cmp.Diff(map[Ref]int{}, w.followers()); diff != "" {
		t.Errorf("followers (-want +got):\n%s", diff)
	}
	if _, err := w.Get(t.Context(), ref, "a", nothing); !errors.Is(err, errEnded) {
		t.Errorf("got %v, want %v", err, errEnded)
	}
}
