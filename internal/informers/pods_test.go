package informers

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/internal/podcache/packed"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// holding is an informer that has pods, packed or not, and is ready.
func holding(t *testing.T, transform toolscache.TransformFunc, pods ...*corev1.Pod) *held {
	t.Helper()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	for _, pod := range pods {
		obj, err := transform(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return &held{indexer: indexer, synced: true}
}

// asHeld are the two ways in which an informer may hold pods.
func asHeld() map[string]toolscache.TransformFunc {
	return map[string]toolscache.TransformFunc{"packed": packed.NewSharing().Transform, "whole": podcache.Transform}
}

func TestAPodIsGot(t *testing.T) {
	web := builder.Pod("shop", "web").Node("n1").Label("app", "web").Obj()
	for name, transform := range asHeld() {
		t.Run(name, func(t *testing.T) {
			c := &cheaper{Cache: &fixed{pods: holding(t, transform, web.DeepCopy())}}
			get(t, c, &corev1.Pod{})

			got := builder.Pod("depot", "other").Interceptors("a.example.com").Obj() // Nothing of it may stay.
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(web), got); err != nil {
				t.Fatal(err)
			}
			slim, err := podcache.Transform(web)
			if err != nil {
				t.Fatal(err)
			}
			want := slim.(*corev1.Pod).DeepCopy()
			want.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the pod (-want +got):\n%s", diff)
			}

			got.Labels["app"] = "written to"
			var shared, again corev1.Pod
			for _, pod := range []*corev1.Pod{&shared, &again} {
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(web), pod, client.UnsafeDisableDeepCopy); err != nil {
					t.Fatal(err)
				}
			}
			if shared.Labels["app"] != "web" {
				t.Error("who writes to a pod writes to the informer's")
			}
			shared.Labels["app"] = "written to"
			if again.Labels["app"] != "written to" {
				t.Error("what is not to be copied is copied")
			}

			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "gone"}, got); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `"gone"`) {
				t.Errorf("a pod that is not there: %v", err)
			}
		})
	}
}

func TestPodsAreListed(t *testing.T) {
	pods := []*corev1.Pod{
		builder.Pod("shop", "web-1").Node("n1").Label("app", "web").Obj(),
		builder.Pod("shop", "web-2").Node("n2").Label("app", "web").Obj(),
		builder.Pod("shop", "db-0").Node("n1").Label("app", "db").Obj(),
		builder.Pod("depot", "web-1").Node("n1").Label("app", "web").Obj(),
	}
	byNode := func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }
	shop, web, n1 := client.InNamespace("shop"), client.MatchingLabels{"app": "web"}, client.MatchingFields{"node": "n1"}
	cases := map[string]struct {
		options []client.ListOption
		want    []string
		err     string
	}{
		"all":                          {nil, []string{"depot/web-1", "shop/db-0", "shop/web-1", "shop/web-2"}, ""},
		"of a namespace":               {[]client.ListOption{shop}, []string{"shop/db-0", "shop/web-1", "shop/web-2"}, ""},
		"with labels":                  {[]client.ListOption{web}, []string{"depot/web-1", "shop/web-1", "shop/web-2"}, ""},
		"of a node":                    {[]client.ListOption{n1}, []string{"depot/web-1", "shop/db-0", "shop/web-1"}, ""},
		"of a node and a namespace":    {[]client.ListOption{n1, shop}, []string{"shop/db-0", "shop/web-1"}, ""},
		"of all three":                 {[]client.ListOption{n1, shop, web}, []string{"shop/web-1"}, ""},
		"of a node without pods":       {[]client.ListOption{client.MatchingFields{"node": "n3"}}, nil, ""},
		"of a namespace without pods":  {[]client.ListOption{client.InNamespace("none")}, nil, ""},
		"as many as wanted":            {[]client.ListOption{client.Limit(1), n1, shop, web}, []string{"shop/web-1"}, ""},
		"by a field without an index":  {[]client.ListOption{client.MatchingFields{"phase": "Running"}}, nil, "select pods by phase"},
		"by another value than a node": {[]client.ListOption{client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("node", "n1")}}, nil, "equal a value"},
		"by two fields":                {[]client.ListOption{client.MatchingFields{"node": "n1", "phase": "Running"}}, nil, "equal a value"},
		"another page":                 {[]client.ListOption{client.Continue("token")}, nil, "does not continue lists"},
	}
	for name, transform := range asHeld() {
		t.Run(name, func(t *testing.T) {
			c := &cheaper{Cache: &fixed{pods: holding(t, transform, pods...)}}
			if err := c.IndexField(t.Context(), &corev1.Pod{}, "node", byNode); err != nil {
				t.Fatal(err)
			}
			for name, tc := range cases {
				t.Run(name, func(t *testing.T) {
					for _, more := range []client.ListOption{client.InNamespace(""), client.UnsafeDisableDeepCopy} {
						list := corev1.PodList{Items: []corev1.Pod{{}}} // It goes.
						err := c.List(t.Context(), &list, append([]client.ListOption{more}, tc.options...)...)
						if tc.err != "" {
							if err == nil || !strings.Contains(err.Error(), tc.err) {
								t.Errorf("the error is %v, want one with %q", err, tc.err)
							}
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						var got []string
						for i := range list.Items {
							got = append(got, client.ObjectKeyFromObject(&list.Items[i]).String())
						}
						slices.Sort(got)
						if diff := cmp.Diff(tc.want, got); diff != "" {
							t.Errorf("pods (-want +got):\n%s", diff)
						}
					}
				})
			}
			var list corev1.PodList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				list.Items[i].Labels["app"] = "written to"
			}
			if err := EachPod(t.Context(), c, func(pod *corev1.Pod) {
				if pod.Labels["app"] == "written to" {
					t.Errorf("who writes to a list writes to the informer's %s", pod.Name)
				}
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestPodsAreAwaited(t *testing.T) {
	informer := holding(t, packed.NewSharing().Transform)
	informer.synced = false
	c := &cheaper{Cache: &fixed{pods: informer}}
	get(t, c, &corev1.Pod{})
	var notStarted *cache.ErrCacheNotStarted
	if err := c.Get(t.Context(), client.ObjectKey{Name: "web"}, &corev1.Pod{}); !errors.As(err, &notStarted) {
		t.Errorf("a pod of a cache that has not been started: %v", err)
	}
	if err := c.List(t.Context(), &corev1.PodList{}); !errors.As(err, &notStarted) {
		t.Errorf("a list of a cache that has not been started: %v", err)
	}
	informer.synced = true
	if err := c.List(t.Context(), &corev1.PodList{}); err != nil {
		t.Errorf("a list when all is there: %v", err)
	}
}

func TestToVisitAllPodsCopiesNone(t *testing.T) {
	var want []*corev1.Pod
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		want = append(want, builder.Pod("shop", name).Obj())
	}
	c := &cheaper{Cache: &fixed{pods: holding(t, func(obj any) (any, error) { return obj, nil }, want...)}}
	var got []*corev1.Pod
	if err := EachPod(t.Context(), c, func(pod *corev1.Pod) { got = append(got, pod) }); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if !slices.Equal(want, got) { // The same pods, not only equal ones.
		t.Errorf("visited %v, want those that the informer holds: %v", got, want)
	}

	var listed []string
	reader := fake.NewClientBuilder().WithObjects(want[0], want[1]).Build()
	if err := EachPod(t.Context(), reader, func(pod *corev1.Pod) { listed = append(listed, pod.Name) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web-1", "web-2"}, listed); diff != "" {
		t.Errorf("pods of another reader (-want +got):\n%s", diff)
	}

	mute := &cheaper{Cache: &fixed{pods: struct{ cache.Informer }{}}}
	if err := EachPod(t.Context(), mute, func(*corev1.Pod) {}); err == nil {
		t.Error("an informer that does not show what it holds is no error")
	}
}

// emitting is an informer whose handlers a test calls.
type emitting struct {
	toolscache.SharedIndexInformer

	handlers []toolscache.ResourceEventHandler
}

func (e *emitting) IsStopped() bool { return false }

func (e *emitting) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return e.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

func (e *emitting) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, _ time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return e.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

func (e *emitting) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	e.handlers = append(e.handlers, handler)
	return nil, nil //nolint:nilnil // Nobody asks.
}

func TestHandlersGetPods(t *testing.T) {
	pod := builder.Pod("shop", "web").Label("app", "web").Obj()
	held, err := packed.NewSharing().Transform(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := packed.Of(held)
	var got []any // What a handler is given.
	unwrap := func(obj any) any {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			return gone.Obj
		}
		return obj
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { got = append(got, obj) },
		UpdateFunc: func(before, after any) { got = append(got, before, after) },
		DeleteFunc: func(obj any) { got = append(got, unwrap(obj)) },
	}
	clock := testclock.NewFakeClock(time.Now())
	inner := &emitting{}
	c := &cheaper{Cache: &fixed{pods: inner}, clock: clock, log: logr.Discard()}
	ways := map[string]func(i cache.Informer, h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error){
		"gathered": func(i cache.Informer, h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandler(h)
		},
		"with resyncs": func(i cache.Informer, h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: new(time.Hour)})
		},
		"with resyncs, the old way": func(i cache.Informer, h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
			return i.AddEventHandlerWithResyncPeriod(h, time.Hour)
		},
	}
	for name, add := range ways {
		t.Run(name, func(t *testing.T) {
			for _, keeps := range []bool{false, true} {
				inner.handlers, got = nil, nil
				h := toolscache.ResourceEventHandler(handler)
				if keeps {
					h = Keeping{handler}
				}
				byKind, err := c.GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("Pod"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := add(byKind, h); err != nil {
					t.Fatal(err)
				}
				clock.Step(gathering)
				if len(inner.handlers) != 1 {
					t.Fatalf("%d handlers listen, want 1", len(inner.handlers))
				}
				inner.handlers[0].OnAdd(held, true)
				inner.handlers[0].OnUpdate(held, held)
				inner.handlers[0].OnDelete(held)
				inner.handlers[0].OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/web", Obj: held})
				if len(got) != 5 {
					t.Fatalf("it is given %d objects, want 5", len(got))
				}
				for _, obj := range got {
					if keeps && obj != held {
						t.Errorf("a handler that keeps pods is given a %T", obj)
					}
					if diff := cmp.Diff(any(want), obj); !keeps && diff != "" {
						t.Errorf("the pod (-want +got):\n%s", diff)
					}
				}
			}
		})
	}
}
