package registration

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const ordered = v1alpha1.OrderInterceptor

func TestResolveTheOrder(t *testing.T) {
	const last, later = "last.order.drawbridge.dev", "later.order.drawbridge.dev"
	db := builder.Pod("shop", "db-0").Label("app", "db")
	register := func(name string) *builder.EvictionInterceptorWrapper {
		return builder.EvictionInterceptor(name).Pods("app", "db")
	}
	after := func(name string) *builder.EvictionInterceptorWrapper { return register(name).After("app", "web") }
	just := func(names ...string) []string { return names }
	then := slices.Concat[[]string]
	var many []*builder.EvictionInterceptorWrapper
	var names []string
	for i := range v1alpha1.MaxPodInterceptors - 1 {
		names = append(names, fmt.Sprintf("i%02d.x", i))
		many = append(many, register(names[i]))
	}
	paces := budgets(evb("shop", "a", "db"))
	cases := map[string]struct {
		budgets       []*v1alpha1.EvictionBudget
		registrations []*builder.EvictionInterceptorWrapper
		pod           *builder.PodWrapper
		want          []string
	}{
		"nobody has an order":                         {nil, list(register("a.x")), db, just("a.x")},
		"right before its registration":               {nil, list(after("a.x")), db, just(ordered, "a.x")},
		"before the first that has one":               {nil, list(register("a.x").Priority(4), after("b.x").Priority(3), register("c.x").Priority(2), after("d.x").Priority(1)), db, just("a.x", ordered, "b.x", "c.x", "d.x")},
		"in the place of a name without interceptor":  {nil, list(register("a.x").Priority(3), after(last).Priority(2), register("c.x").Priority(1)), db, just("a.x", ordered, "c.x")},
		"once for two of these":                       {nil, list(after(last).Priority(3), register("b.x").Priority(2), after(later).Priority(1)), db, just(ordered, "b.x")},
		"for one of these before another one":         {nil, list(after(last).Priority(2), after("b.x").Priority(1)), db, just(ordered, "b.x")},
		"for one of these behind another one":         {nil, list(after("b.x").Priority(2), after(last).Priority(1)), db, just(ordered, "b.x")},
		"before budgets":                              {paces, list(after(last)), db, just(ordered, paced)},
		"behind budgets":                              {paces, list(after(last).Priority(1)), db, just(paced, ordered)},
		"of a pod that is not selected: none":         {nil, list(after("a.x"), after(last)), builder.Pod("shop", "web-0").Label("app", "web").Interceptors("b.x"), just("b.x")},
		"of who is in the annotation":                 {nil, list(after("a.x")), builder.Pod("shop", "p").Interceptors("b.x", "a.x"), just("b.x", ordered, "a.x")},
		"of a name without interceptor that is there": {nil, list(after(last)), builder.Pod("shop", "p").Interceptors("b.x", last, "a.x"), just("b.x", ordered, "a.x")},
		"and without any registration of that name":   {nil, nil, builder.Pod("shop", "p").Interceptors("b.x", last), just("b.x", ordered)},
		"in the annotation, where it stays":           {nil, list(after("a.x")), db.Clone().Interceptors("a.x", ordered, "b.x"), just("a.x", ordered, "b.x")},
		"in the annotation, without any order":        {nil, nil, db.Clone().Interceptors("b.x", ordered), just("b.x", ordered)},
		"in the annotation, and elsewhere: once":      {nil, list(after(last).Priority(20000)), db.Clone().Interceptors("b.x", ordered), just("b.x", ordered)},
		"a circle has none":                           {nil, list(register("a.x").After("app", "db"), register("b.x")), db, just("b.x")},
		"never in kube-system":                        {nil, list(builder.EvictionInterceptor("a.x").When("true").After("app", "web")), builder.Pod("kube-system", "dns"), nil},
		"fifteen: the last one goes":                  {nil, append(slices.Clone(many), after("z.x").Priority(1)), db, then(names, just(ordered))},
		"fifteen with budgets: these stay":            {paces, append(slices.Clone(many[:13]), after("z.x").Priority(1000)), db, then(names[:13], just(ordered, paced))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkResolve(t, budgeted(tc.budgets, tc.registrations...), objects{budgets: tc.budgets, registrations: tc.registrations}, tc.pod, tc.want, nil)
		})
	}
}

// Native responders run before all others, also before the order.
func TestTheOrderOfAPodWithNativeResponders(t *testing.T) {
	const key = "acme.example.com/migrate"
	pod := builder.Pod("shop", "db-0").Responders(key)
	registrations := list(
		builder.EvictionInterceptor("a.x").When("true").After("app", "web"),
		builder.EvictionInterceptor("b.x").When("true").After("app", "cache").NativeKey(key),
	)
	registry := engaged(switched(true), nil, registrations...)
	checkResolve(t, registry, objects{registrations: registrations}, pod, []string{native, ordered, "a.x"}, nil)
	checkAfter(t, registry, pod.Obj(), "a.x 10m0s")

	alone := engaged(switched(true), nil, registrations[1])
	checkResolve(t, alone, objects{registrations: registrations[1:]}, pod, []string{native}, nil)
	checkAfter(t, alone, pod.Obj())
}

// checkAfter compares the orders of a pod: "REGISTRATION TIMEOUT" of each.
func checkAfter(t *testing.T, registry *Registry, pod *corev1.Pod, want ...string) {
	t.Helper()
	found, err := registry.After(pod)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, after := range found {
		got = append(got, fmt.Sprintf("%s %s", after.Registration, after.Timeout))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}

// The order follows the registrations: what is gone, or not accepted any more, has none.
func TestAnOrderComesAndGoes(t *testing.T) {
	registry := budgeted(nil)
	pod := builder.Pod("shop", "db-0").Label("app", "db").Interceptors("b.x").Obj()
	put := func(w *builder.EvictionInterceptorWrapper, generation int64) {
		registry.put(w.Generation(generation).Obj())
	}
	a := func() *builder.EvictionInterceptorWrapper {
		return builder.EvictionInterceptor("a.x").Pods("app", "db").Priority(20000)
	}
	wants := func(names []string, orders ...string) {
		t.Helper()
		got, err := registry.Resolve(pod)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("interceptors (-want +got):\n%s", diff)
		}
		checkAfter(t, registry, pod, orders...)
	}
	wants([]string{"b.x"})
	put(a().After("app", "web"), 1)
	wants([]string{ordered, "a.x", "b.x"}, "a.x 10m0s")
	put(a().After("app", "web").AfterTimeout(time.Hour), 2)
	wants([]string{ordered, "a.x", "b.x"}, "a.x 1h0m0s")
	put(builder.EvictionInterceptor("b.x").Pods("app", "other").After("app", "cache"), 1)
	wants([]string{ordered, "a.x", "b.x"}, "a.x 1h0m0s", "b.x 10m0s")
	put(a().After("app", "db"), 3)
	wants([]string{ordered, "b.x"}, "b.x 10m0s")
	put(a(), 4)
	wants([]string{"a.x", ordered, "b.x"}, "b.x 10m0s")
	registry.remove("b.x")
	wants([]string{"a.x", "b.x"})
	put(a().After("app", "web"), 5)
	wants([]string{ordered, "a.x", "b.x"}, "a.x 10m0s")
	registry.remove("a.x")
	wants([]string{"b.x"})
}

// Without the pod's namespace nobody knows who intercepts it.
func TestTheOrderOfAPodInAnUnknownNamespace(t *testing.T) {
	registry := budgeted(nil, builder.EvictionInterceptor("a.x").Namespaces("team", "a").After("app", "web"))
	if _, err := registry.After(builder.Pod("new", "p").Obj()); !errors.Is(err, ErrNamespaceUnknown) {
		t.Errorf("error %v, want %v", err, ErrNamespaceUnknown)
	}
}

func TestRegistrationOfTheOrder(t *testing.T) {
	info := func(guard v1alpha1.GuardPolicy) Info {
		return Info{Name: ordered, Guard: guard, Usernames: []string{ownAccount}, Planned: v1alpha1.Interceptor{OnNodeLost: v1alpha1.NodeLostSkip}}
	}
	register := func(name string) *builder.EvictionInterceptorWrapper {
		return builder.EvictionInterceptor(name).Pods("app", "db").After("app", "web")
	}
	cases := map[string]struct {
		registrations []*builder.EvictionInterceptorWrapper
		want          v1alpha1.GuardPolicy
	}{
		"the default":                       {list(register("a.x")), v1alpha1.GuardWhileEvacuating},
		"that of its registration":          {list(register("a.x").Guard(v1alpha1.GuardNever)), v1alpha1.GuardNever},
		"the strictest of several":          {list(register("a.x").Guard(v1alpha1.GuardNever), register("b.x").Guard(v1alpha1.GuardAlways)), v1alpha1.GuardAlways},
		"others do not count":               {list(register("a.x").Guard(v1alpha1.GuardNever), builder.EvictionInterceptor("b.x").Guard(v1alpha1.GuardAlways)), v1alpha1.GuardNever},
		"none that is left: as if there is": {nil, v1alpha1.GuardWhileEvacuating},
		"nobody else acts for it":           {list(builder.EvictionInterceptor(ordered).ActedBy("shop", "thief")), v1alpha1.GuardWhileEvacuating},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := budgeted(nil, tc.registrations...)
			got, found := registry.RegistrationOf(ordered, builder.Pod("shop", "db-0").Label("app", "db").Obj())
			if diff := cmp.Diff(info(tc.want), got); diff != "" || !found {
				t.Errorf("of the pod, found %t (-want +got):\n%s", found, diff)
			}
			got, found = registry.Registration(ordered)
			if diff := cmp.Diff(info(v1alpha1.GuardWhileEvacuating), got); diff != "" || !found {
				t.Errorf("without a pod, found %t (-want +got):\n%s", found, diff)
			}
		})
	}
}

func TestWhomAnOrderSelects(t *testing.T) {
	order := func(change func(*builder.EvictionInterceptorWrapper)) *After {
		t.Helper()
		w := builder.EvictionInterceptor("a.x")
		change(w)
		after, err := NewAfter(w.Name, w.Spec.After)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	byPod := order(func(w *builder.EvictionInterceptorWrapper) { w.After("app", "web") })
	byNamespace := order(func(w *builder.EvictionInterceptorWrapper) { w.AfterNamespaces("team", "a") })
	byBoth := order(func(w *builder.EvictionInterceptorWrapper) { w.After("app", "web").AfterNamespaces("team", "a") })
	type answers struct{ Pod, Namespace, Both bool }
	cases := map[string]struct {
		app, team string
		want      answers
	}{
		"neither":       {"db", "b", answers{}},
		"the pod":       {"web", "b", answers{Pod: true}},
		"the namespace": {"db", "a", answers{Namespace: true}},
		"both":          {"web", "a", answers{true, true, true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod, namespace := map[string]string{"app": tc.app}, map[string]string{"team": tc.team}
			got := answers{byPod.Selects(pod, namespace), byNamespace.Selects(pod, namespace), byBoth.Selects(pod, namespace)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
}
