package registration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// Budgets of a namespace may share the name of a hook, and of a registration: each goes
// alone.
func TestBudgetsHaveKeysOfTheirOwn(t *testing.T) {
	registry := budgeted(budgets(evb("shop", "dump", "*")), builder.EvictionInterceptor("dump.x"))
	registry.putHook(builder.EvacuationHook("shop", "dump").Obj())
	pod := builder.Pod("shop", "p").Obj()
	steps := []struct {
		what string
		do   func()
		want []string
	}{
		{"all three", func() {}, []string{"dump.shop.hooks.drawbridge.dev", "dump.x", paced}},
		{"without the hook", func() { registry.remove("shop/dump") }, []string{"dump.x", paced}},
		{"without the budget", func() { registry.removeBudget("shop/dump") }, []string{"dump.x"}},
		{"without it once more", func() { registry.removeBudget("shop/dump") }, []string{"dump.x"}},
		{"a key that is none", func() { registry.removeBudget("a/b/c") }, []string{"dump.x"}},
	}
	for _, step := range steps {
		step.do()
		if got, err := registry.Resolve(pod); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: got %q, %v, want %q", step.what, got, err, step.want)
		}
	}
}

// A snapshot that somebody holds does not change.
func TestSnapshotsDoNotShareBudgets(t *testing.T) {
	registry := budgeted(budgets(evb("shop", "a", "db"), evb("shop", "b", "db")))
	pod := builder.Pod("shop", "p").Label("app", "db").Obj()
	held := registry.snapshot()
	registry.putBudget(evb("shop", "a", "web", generation(2)))
	registry.putBudget(evb("shop", "c", "web"))
	registry.removeBudget("shop/b")
	if _, covered := registry.budgeted(held, pod); !covered || len(held.budgets["shop"]) != 2 {
		t.Errorf("the old snapshot has %+v, want both budgets", held.budgets["shop"])
	}
	if _, covered := registry.budgeted(registry.snapshot(), pod); covered {
		t.Error("the pod is still covered")
	}
}

func TestChangesOfBudgetsAreTold(t *testing.T) {
	registry := budgeted(budgets(evb("shop", "a", "*")))
	var told []change
	registry.subscribe(func(c change) { told = append(told, c) })
	shop := change{budgets: "shop"}
	steps := []struct {
		what   string
		change func()
		want   []change
	}{
		{"another status", func() {
			registry.putBudget(evb("shop", "a", "*", func(b *v1alpha1.EvictionBudget) { b.Status.ObservedGeneration = 1 }))
		}, nil},
		{"another generation", func() { registry.putBudget(evb("shop", "a", "*", generation(2))) }, []change{shop}},
		{"another object of that name", func() {
			registry.putBudget(evb("shop", "a", "*", generation(2), func(b *v1alpha1.EvictionBudget) { b.UID = "2" }))
		}, []change{shop}},
		{"one of another namespace", func() { registry.putBudget(evb("depot", "a", "*")) }, []change{{budgets: "depot"}}},
		{"one goes", func() { registry.removeBudget("shop/a") }, []change{shop}},
		{"it goes again", func() { registry.removeBudget("shop/a") }, nil},
	}
	for _, step := range steps {
		told = nil
		step.change()
		if !slices.Equal(told, step.want) {
			t.Errorf("%s: told %v, want %v", step.what, told, step.want)
		}
	}
}

// What budgets cover is counted by their controller, and in no metric.
func TestBudgetsAreNotCounted(t *testing.T) {
	measured := &counts{}
	registry := NewRegistry(Options{Namespace: ownNamespace, Account: ownAccount, Budgets: true, Metrics: measured})
	registry.put(builder.EvictionInterceptor("a.x").Obj())
	m, _ := counting(registry)
	m.see(pod("p", "db"))
	m.drain()
	registry.putBudget(evb("shop", "a", "*"))
	registry.putBudget(evb("shop", "b", "Near"))
	registry.removeBudget("shop/b")
	if n := m.queue.Len(); n != 0 {
		t.Errorf("%d items are in the queue, want that budgets add none", n)
	}
	if _, err := registry.Resolve(pod("p", "db")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&counts{accepted: 1}, measured, cmp.AllowUnexported(counts{})); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
}

func TestBudgetsAreFedOnlyIfSwitchedOn(t *testing.T) {
	cases := map[string]struct {
		options   Options
		want      []string
		wantError string
	}{
		"on":                                  {Options{Namespace: ownNamespace, Account: ownAccount, Budgets: true}, []string{paced}, ""},
		"off: nobody asks for budgets":        {Options{Namespace: ownNamespace, Account: ownAccount}, nil, ""},
		"on without an account: who may act?": {Options{Namespace: ownNamespace, Budgets: true}, nil, "Account"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			utilruntime.Must(corev1.AddToScheme(scheme))
			scheme.AddKnownTypes(v1alpha1.SchemeGroupVersion, &v1alpha1.EvictionInterceptor{}, &v1alpha1.EvictionInterceptorList{})
			if tc.options.Budgets {
				utilruntime.Must(v1alpha1.AddToScheme(scheme))
			}
			informers := &informertest.FakeInformers{Scheme: scheme}
			registry := NewRegistry(tc.options)
			err := registry.SetupWithCache(t.Context(), informers)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Errorf("got error %v, want that %s is missing", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !tc.options.Budgets {
				if got := len(registry.feeds); got != 2 {
					t.Errorf("%d informers feed the registry, want those of registrations and namespaces", got)
				}
				return
			}
			b := evb("shop", "a", "*")
			informer, err := informers.FakeInformerFor(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			informer.Add(b)
			registry.synced.Store(true)
			pod := builder.Pod("shop", "p").Obj()
			if got, err := registry.Resolve(pod); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			informer.Delete(b)
			if got, err := registry.Resolve(pod); err != nil || len(got) > 0 {
				t.Errorf("the budget is gone: got %q, %v, want none", got, err)
			}
		})
	}
}

// Commands read budgets once, as they read hooks.
func TestStaticBudgets(t *testing.T) {
	pod := builder.Pod("shop", "p").Obj()
	with := Static(Options{Namespace: ownNamespace}, Known{Budgets: []v1alpha1.EvictionBudget{*evb("shop", "a", "*", guardedBy(v1alpha1.GuardAlways))}})
	if got, err := with.Resolve(pod); err != nil || !slices.Equal(got, []string{paced}) {
		t.Errorf("got %q, %v, want %s", got, err, paced)
	}
	want := Info{Name: paced, Priority: 500, Guard: v1alpha1.GuardAlways}
	got, found := with.RegistrationOf(paced, pod)
	if diff := cmp.Diff(want, got); !found || diff != "" {
		t.Errorf("registration, found %t (-want +got):\n%s", found, diff)
	}
	if got, found := Static(Options{Namespace: ownNamespace}, Known{}).Registration(paced); found {
		t.Errorf("without budgets there is %+v", got)
	}
}
