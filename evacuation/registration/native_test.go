package registration

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const native = v1alpha1.NativeInterceptor

// engaged is budgeted with native responders, which count while on says so.
func engaged(on *atomic.Bool, budgets []*v1alpha1.EvictionBudget, registrations ...*builder.EvictionInterceptorWrapper) *Registry {
	r := budgeted(budgets, registrations...)
	r.options.Native = on.Load
	return r
}

func switched(on bool) *atomic.Bool {
	b := &atomic.Bool{}
	b.Store(on)
	return b
}

// responders are so many names.
func responders(count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf("r%02d.example.com/migrate", i))
	}
	return names
}

func TestResolveNativeResponders(t *testing.T) {
	plain := builder.Pod("shop", "db-0").Label("app", "db")
	one := plain.Clone().Responders("acme.example.com/migrate")
	ours := plain.Clone().Responders(v1alpha1.NativeResponder)
	nine, ten := plain.Clone().Responders(responders(9)...), plain.Clone().Responders(responders(10)...)
	register := builder.EvictionInterceptor
	var many []*builder.EvictionInterceptorWrapper
	var names []string
	for i := range v1alpha1.MaxPodInterceptors {
		names = append(names, fmt.Sprintf("i%02d.x", i))
		many = append(many, register(names[i]))
	}
	all := budgets(evb("shop", "a", "db"))
	then := slices.Concat[[]string]
	just := func(names ...string) []string { return names }
	cases := map[string]struct {
		off           bool
		budgets       []*v1alpha1.EvictionBudget
		registrations []*builder.EvictionInterceptorWrapper
		pod           *builder.PodWrapper
		want          []string
	}{
		"a pod without responders":                             {pod: plain},
		"a pod without responders has its interceptors":        {pod: plain.Clone().Interceptors("a.x"), want: just("a.x")},
		"one responder":                                        {pod: one, want: just(native)},
		"several responders are one interceptor":               {pod: nine, want: just(native)},
		"ours alone is no native responder":                    {pod: ours},
		"ours alone, with interceptors":                        {pod: ours.Clone().Interceptors("a.x"), want: just("a.x")},
		"ours and another one":                                 {pod: ours.Clone().Responders("acme.example.com/migrate").Interceptors("a.x"), want: just(native, "a.x")},
		"ours is one of ten, so it has its place":              {pod: nine.Clone().Responders(v1alpha1.NativeResponder).Interceptors("a.x"), want: just(native, "a.x")},
		"nothing while native is off":                          {off: true, pod: one},
		"others while native is off":                           {off: true, pod: one.Clone().Interceptors("a.x"), want: just("a.x")},
		"before the annotation":                                {pod: one.Clone().Interceptors("b.x", "a.x"), want: just(native, "b.x", "a.x")},
		"before the highest priority":                          {pod: one, registrations: list(register("a.x").Priority(100000)), want: just(native, "a.x")},
		"before budgets":                                       {pod: one, budgets: all, want: just(native, paced)},
		"ten responders alone":                                 {pod: ten, want: just(native)},
		"nine responders leave a place":                        {pod: nine.Clone().Interceptors("a.x"), want: just(native, "a.x")},
		"ten responders leave none: after the others":          {pod: ten.Clone().Interceptors("a.x"), want: just("a.x", native)},
		"and after the lowest priority":                        {pod: ten, registrations: list(register("a.x").Priority(0)), want: just("a.x", native)},
		"and after budgets":                                    {pod: ten, budgets: all, want: just(paced, native)},
		"fourteen others leave a place":                        {pod: one, registrations: many[:14], want: then(just(native), names[:14])},
		"of fifteen others the last one goes":                  {pod: one, registrations: many, want: then(just(native), names[:14])},
		"of fifteen others the last one goes, behind them too": {pod: ten, registrations: many, want: then(names[:14], just(native))},
		"of fifteen in the annotation the last one goes":       {pod: one.Clone().Interceptors(names...), want: then(just(native), names[:14])},
		"of fifteen in the annotation too if it is behind":     {pod: ten.Clone().Interceptors(names...), want: then(names[:14], just(native))},
		"fifteen with budgets: these stay":                     {pod: one, budgets: all, registrations: many[:14], want: then(just(native), names[:13], just(paced))},
		"sixteen with budgets: these stay":                     {pod: one, budgets: all, registrations: many, want: then(just(native), names[:13], just(paced))},
		"sixteen with budgets and behind: both stay":           {pod: ten, budgets: all, registrations: many, want: then(names[:13], just(paced, native))},
		"fifteen while native is off":                          {off: true, pod: one, registrations: many, want: names},
		"the annotation does not move it":                      {pod: one.Clone().Interceptors("a.x", native, "b.x"), want: just(native, "a.x", "b.x")},
		"nor is it added by the annotation":                    {pod: plain.Clone().Interceptors("a.x", native, "b.x"), want: just("a.x", "b.x")},
		"nor while native is off":                              {off: true, pod: one.Clone().Interceptors(native)},
		"a registration of that name selects nothing":          {pod: plain, registrations: list(register(native))},
		"and moves nothing":                                    {pod: one, registrations: list(register(native).Priority(1), register("a.x")), want: just(native, "a.x")},
		"in kube-system, too, as the pod says it itself":       {pod: builder.Pod("kube-system", "dns").Responders("acme.example.com/migrate"), want: just(native)},
		"in a namespace that is not known":                     {pod: builder.Pod("new", "p").Responders("acme.example.com/migrate"), want: just(native)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := objects{budgets: tc.budgets, registrations: tc.registrations}
			checkResolve(t, engaged(switched(!tc.off), tc.budgets, tc.registrations...), all, tc.pod, tc.want, nil)
		})
	}
}

// A program that has two names gets one turn.
func TestWhoAnswersNativelyIsLeftOut(t *testing.T) {
	const key = "acme.example.com/migrate"
	one := builder.Pod("shop", "db-0").Label("app", "db").Responders(key)
	register := builder.EvictionInterceptor
	just := func(names ...string) []string { return names }
	var many []*builder.EvictionInterceptorWrapper
	var names []string
	for i := range v1alpha1.MaxPodInterceptors - 1 {
		names = append(names, fmt.Sprintf("i%02d.x", i))
		many = append(many, register(names[i]))
	}
	cases := map[string]struct {
		off           bool
		registrations []*builder.EvictionInterceptorWrapper
		hooks         []*builder.EvacuationHookWrapper
		pod           *builder.PodWrapper
		want          []string
	}{
		"a registration whose key the pod names":           {registrations: list(register("a.x").NativeKey(key), register("b.x")), pod: one, want: just(native, "b.x")},
		"a registration of another key":                    {registrations: list(register("a.x").NativeKey("acme.example.com/other")), pod: one, want: just(native, "a.x")},
		"a pod that names no key":                          {registrations: list(register("a.x").NativeKey(key)), pod: builder.Pod("shop", "db-0"), want: just("a.x")},
		"while native is off it is as it was":              {off: true, registrations: list(register("a.x").NativeKey(key)), pod: one, want: just("a.x")},
		"a registered name in the annotation":              {registrations: list(register("a.x").Pods("app", "web").NativeKey(key)), pod: one.Clone().Interceptors("b.x", "a.x"), want: just(native, "b.x")},
		"a name in the annotation that is not registered":  {pod: one.Clone().Interceptors("a.x"), want: just(native, "a.x")},
		"a registration that is refused has no key":        {registrations: list(register("a.x").When("nonsense").NativeKey(key)), pod: one.Clone().Interceptors("a.x"), want: just(native, "a.x")},
		"a hook whose key the pod names":                   {hooks: hooks(builder.EvacuationHook("shop", "a").NativeKey(key)), pod: one, want: just(native)},
		"a hook of another key":                            {hooks: hooks(builder.EvacuationHook("shop", "a").NativeKey("acme.example.com/other")), pod: one, want: just(native, "a.shop.hooks.drawbridge.dev")},
		"who is left out takes nobody's place":             {registrations: append(slices.Clone(many), register("a.x").NativeKey(key)), pod: one, want: slices.Concat(just(native), names)},
		"in the annotation who is left out takes no place": {registrations: append(slices.Clone(many), register("z.x").Pods("app", "web").NativeKey(key)), pod: one.Clone().Interceptors("z.x"), want: slices.Concat(just(native), names)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := engaged(switched(!tc.off), nil, tc.registrations...)
			registry.options.Hooks = true
			for _, hook := range tc.hooks {
				registry.putHook(hook.Obj())
			}
			checkResolve(t, registry, objects{registrations: tc.registrations, hooks: tc.hooks}, tc.pod, tc.want, nil)
		})
	}
}

func TestNativeRespondersCountBeforeTheRegistryIsInSync(t *testing.T) {
	r := engaged(switched(true), nil)
	r.feeds = append(r.feeds, cache.InformerSynced(func() bool { return false }))
	r.synced.Store(false)
	got, err := r.Resolve(builder.Pod("shop", "p").Interceptors("a.x").Responders("acme.example.com/migrate").Obj())
	if !errors.Is(err, ErrNotSynced) || !slices.Equal(got, []string{native, "a.x"}) {
		t.Errorf("got %q, %v, want the responders, the annotation and ErrNotSynced", got, err)
	}
}

// A replica that has just begun does not know whether it has to wait for them.
func TestNobodyIsLetThroughBeforeItIsKnownWhetherNativeRespondersCount(t *testing.T) {
	known := switched(false)
	r := engaged(switched(false), nil)
	r.options.NativeKnown = known.Load
	pod := builder.Pod("shop", "p").Interceptors("a.x")
	if got, err := r.Resolve(pod.Clone().Responders("acme.example.com/migrate").Obj()); !errors.Is(err, ErrNativeUnknown) || !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("got %q, %v, want the annotation and ErrNativeUnknown", got, err)
	}
	if got, err := r.Resolve(pod.Clone().Obj()); err != nil || !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("without responders: got %q, %v, want the annotation", got, err)
	}
	known.Store(true)
	if got, err := r.Resolve(pod.Clone().Responders("acme.example.com/migrate").Obj()); err != nil || !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("known not to be served: got %q, %v, want the annotation", got, err)
	}
}

func TestWhetherNativeRespondersCountMayChange(t *testing.T) {
	on := switched(false)
	registry := engaged(on, nil)
	pod := builder.Pod("shop", "p").Responders("acme.example.com/migrate").Obj()
	becomes := func(now bool) func() {
		return func() {
			on.Store(now)
			registry.NativeChanged()
			if got, err := registry.Resolve(pod); err != nil || slices.Contains(got, native) != now {
				t.Errorf("engaged %t: got %q, %v", now, got, err)
			}
		}
	}
	checkTold(t, registry, []telling{
		{"it engages", becomes(true), []change{{native: true}}},
		{"it lets go", becomes(false), []change{{native: true}}},
	})
}

func TestRegistrationOfNativeResponders(t *testing.T) {
	want := Info{Name: native, Guard: v1alpha1.GuardWhileEvacuating, Usernames: []string{ownAccount}}
	pod := builder.Pod("shop", "p").Responders("acme.example.com/migrate").Obj()
	for name, on := range map[string]bool{"engaged": true, "not engaged: a plan may still have it": false} {
		t.Run(name, func(t *testing.T) {
			registry := engaged(switched(on), nil, builder.EvictionInterceptor(native).ActedBy("shop", "thief"))
			got, found := registry.Registration(native)
			if diff := cmp.Diff(want, got); diff != "" || !found {
				t.Errorf("found %t (-want +got):\n%s", found, diff)
			}
			got, found = registry.RegistrationOf(native, pod)
			if diff := cmp.Diff(want, got); diff != "" || !found {
				t.Errorf("found %t for the pod (-want +got):\n%s", found, diff)
			}
			if diff := cmp.Diff(v1alpha1.Interceptor{Name: native}, PlannedOf(registry)(native)); diff != "" {
				t.Errorf("in a plan (-want +got):\n%s", diff)
			}
		})
	}
	if got, found := hooked(nil, builder.EvictionInterceptor(native)).Registration(native); found {
		t.Errorf("found %+v where nobody would ask natively, want nothing", got)
	}
}

func TestWhyTheNameOfNativeRespondersIsRefused(t *testing.T) {
	refused := compileEntry(builder.EvictionInterceptor(native).Obj(), nil).refused
	want := &refusal{v1alpha1.ReasonReservedName, `metadata.name "native.drawbridge.dev" is not allowed: it is the interceptor of pods' own spec.evictionResponders; choose another name. The registration selects no pods.`}
	if diff := cmp.Diff(want, refused, cmp.AllowUnexported(refusal{})); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

func TestNativeNeedsAnAccount(t *testing.T) {
	r := NewRegistry(Options{Namespace: ownNamespace, Native: func() bool { return false }})
	if err := r.SetupWithCache(t.Context(), nil); err == nil {
		t.Error("without an account anybody could report for native responders")
	}
}
