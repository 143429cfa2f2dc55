package registration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// objects are what an API server has.
type objects struct {
	registrations []*builder.EvictionInterceptorWrapper
	hooks         []*builder.EvacuationHookWrapper
	budgets       []*v1alpha1.EvictionBudget
}

// live reads the objects and the namespaces of registryOf. Every list asks the function
// first, if there is one.
func (o objects) live(t *testing.T, listing func(list client.ObjectList, namespace string) error) client.Reader {
	t.Helper()
	all := fake.NewClientBuilder().WithScheme(builder.Scheme(t)).
		WithIndex(&corev1.Namespace{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithObjects(namespace("shop", "team", "a"), namespace("depot", "team", "b"), namespace("kube-system"), namespace(ownNamespace))
	for _, w := range o.registrations {
		all.WithObjects(w.Clone().Obj())
	}
	for _, w := range o.hooks {
		all.WithObjects(w.Clone().Obj())
	}
	for _, b := range o.budgets {
		all.WithObjects(b.DeepCopy())
	}
	return interceptor.NewClient(all.Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if listing != nil {
				if err := listing(list, (&client.ListOptions{}).ApplyOptions(opts).Namespace); err != nil {
					return err
				}
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// checkResolve compares the interceptors of a pod. They are the same for the pod in the
// cache, and for who reads all objects live. None may be nil or empty.
func checkResolve(t *testing.T, registry *Registry, all objects, pod *builder.PodWrapper, want []string, wantError error) {
	t.Helper()
	before := pod.DeepCopy()
	got, err := registry.Resolve(pod.Obj())
	if !errors.Is(err, wantError) {
		t.Errorf("error %v, want %v", err, wantError)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, pod.Obj()); diff != "" {
		t.Errorf("the pod was changed (-want +got):\n%s", diff)
	}
	cached, err := podcache.Transform(pod.Obj())
	if err != nil {
		t.Fatal(err)
	}
	fromCache, err := registry.Resolve(cached.(*corev1.Pod))
	if !errors.Is(err, wantError) {
		t.Errorf("error %v for the pod in the cache, want %v", err, wantError)
	}
	if diff := cmp.Diff(got, fromCache); diff != "" {
		t.Errorf("another answer for the pod in the cache (-live +cached):\n%s", diff)
	}
	if wantError != nil {
		return
	}
	live, _, err := registry.ResolveLive(t.Context(), all.live(t, nil), pod.Obj())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, live); diff != "" {
		t.Errorf("another answer from the live objects (-memory +live):\n%s", diff)
	}
}

// checkLive compares the interceptors of a pod in the live objects, and the namespaces in
// which those of a kind were listed.
func checkLive[kind client.ObjectList](t *testing.T, registry *Registry, now objects, pod *corev1.Pod, want, wantLists []string) {
	t.Helper()
	var lists []string
	live := now.live(t, func(list client.ObjectList, namespace string) error {
		if _, ok := list.(kind); ok {
			lists = append(lists, namespace)
		}
		return nil
	})
	got, _, err := registry.ResolveLive(t.Context(), live, pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantLists, lists); diff != "" {
		t.Errorf("namespaces in which they were listed (-want +got):\n%s", diff)
	}
}

// known is what a registry knows of a name.
type known struct {
	want  Info
	found bool
}

func checkRegistrations(t *testing.T, registry *Registry, cases map[string]known) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, found := registry.Registration(name)
			if found != tc.found {
				t.Errorf("found is %v, want %v", found, tc.found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("registration (-want +got):\n%s", diff)
			}
		})
	}
}

// checkRefused wants a message that starts with one text and ends with another.
func checkRefused(t *testing.T, refused *refusal, reason, first, last string) {
	t.Helper()
	if refused == nil {
		t.Fatal("it is accepted")
	}
	if refused.reason != reason || !strings.HasPrefix(refused.message, first) || !strings.HasSuffix(refused.message, last) {
		t.Errorf("refused because of %s: %s", refused.reason, refused.message)
	}
}

// telling is a change of a registry and whom it concerns.
type telling struct {
	what   string
	change func()
	want   []change
}

func checkTold(t *testing.T, registry *Registry, steps []telling) {
	t.Helper()
	var told []change
	registry.subscribe(func(c change) { told = append(told, c) })
	for _, step := range steps {
		told = nil
		step.change()
		if !slices.Equal(told, step.want) {
			t.Errorf("%s: told %v, want %v", step.what, told, step.want)
		}
	}
}

// checkFed feeds an object that covers all pods of its namespace to the registry, and takes
// it away again. Who wants nothing has an API server without such objects.
func checkFed(t *testing.T, options Options, object client.Object, want []string, wantError string) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	scheme.AddKnownTypes(v1alpha1.SchemeGroupVersion, &v1alpha1.EvictionInterceptor{}, &v1alpha1.EvictionInterceptorList{})
	on := options.Hooks || options.Budgets
	if on {
		utilruntime.Must(v1alpha1.AddToScheme(scheme))
	}
	informers := &informertest.FakeInformers{Scheme: scheme}
	registry := NewRegistry(options)
	err := registry.SetupWithCache(t.Context(), informers)
	if wantError != "" {
		if err == nil || !strings.Contains(err.Error(), wantError) {
			t.Errorf("got error %v, want that %s is missing", err, wantError)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !on {
		if got := len(registry.feeds); got != 2 {
			t.Errorf("%d informers feed the registry, want those of registrations and namespaces", got)
		}
		return
	}
	informer, err := informers.FakeInformerFor(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	informer.Add(object)
	registry.synced.Store(true)
	pod := builder.Pod(object.GetNamespace(), "p").Obj()
	if got, err := registry.Resolve(pod); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	informer.Delete(object)
	if got, err := registry.Resolve(pod); err != nil || len(got) > 0 {
		t.Errorf("it is gone: got %q, %v, want none", got, err)
	}
}
