package registration

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	shop := change{budgets: "shop"}
	checkTold(t, registry, []telling{
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
	})
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
			checkFed(t, tc.options, evb("shop", "a", "*"), tc.want, tc.wantError)
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
