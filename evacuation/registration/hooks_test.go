package registration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const ownAccount = "system:serviceaccount:drawbridge-system:drawbridge"

// hooked is registryOf with hooks, which act under our account.
func hooked(hooks []*builder.EvacuationHookWrapper, registrations ...*builder.EvictionInterceptorWrapper) *Registry {
	r := registryOf(registrations...)
	r.options.Account, r.options.Hooks = ownAccount, true
	for _, hook := range hooks {
		r.putHook(hook.Obj())
	}
	return r
}

func hooks(all ...*builder.EvacuationHookWrapper) []*builder.EvacuationHookWrapper { return all }

func TestResolveHooks(t *testing.T) {
	const (
		dump  = "dump.shop.hooks.drawbridge.dev"
		flush = "flush.shop.hooks.drawbridge.dev"
		other = "dump.depot.hooks.drawbridge.dev"
	)
	db := builder.Pod("shop", "db-0").Label("app", "db")
	hook, register := builder.EvacuationHook, builder.EvictionInterceptor
	cases := map[string]struct {
		hooks         []*builder.EvacuationHookWrapper
		registrations []*builder.EvictionInterceptorWrapper
		pod           *builder.PodWrapper
		want          []string
		wantError     error
	}{
		"without a selector it covers its namespace": {hooks: hooks(hook("shop", "dump")), pod: db, want: []string{dump}},
		"and no other one":                           {hooks: hooks(hook("depot", "dump")), pod: db},
		"not even one of the same name and labels":   {hooks: hooks(hook("depot", "dump").Pods("app", "db"), hook("shop", "dump").Pods("app", "db")), pod: db, want: []string{dump}},
		"a label":                                          {hooks: hooks(hook("shop", "dump").Pods("app", "db"), hook("shop", "flush").Pods("app", "web")), pod: db, want: []string{dump}},
		"a label that a pod lacks":                         {hooks: hooks(hook("shop", "dump").PodsWhere("app", "DoesNotExist"), hook("shop", "flush").PodsWhere("zone", "DoesNotExist")), pod: db, want: []string{flush}},
		"an expression has the variable pod":               {hooks: hooks(hook("shop", "dump").When("pod.metadata.name == 'db-0'"), hook("shop", "flush").When("pod.metadata.name == 'db-1'")), pod: db, want: []string{dump}},
		"or object, as others do":                          {hooks: hooks(hook("shop", "dump").When("object.metadata.name == 'db-0' && pod == object")), pod: db, want: []string{dump}},
		"an expression over the namespace":                 {hooks: hooks(hook("shop", "dump").When("namespaceObject.metadata.labels['team'] == 'a'")), pod: db, want: []string{dump}},
		"an expression fails: not covered":                 {hooks: hooks(hook("shop", "dump").When("pod.metadata.annotations['none'] == ''"), hook("shop", "flush")), pod: db, want: []string{flush}},
		"a bad expression covers nothing":                  {hooks: hooks(hook("shop", "dump").When("pod.spec.containers.size() > 0"), hook("shop", "flush")), pod: db, want: []string{flush}},
		"a bad selector covers nothing":                    {hooks: hooks(hook("shop", "dump").PodsWhere("app", "Near", "db"), hook("shop", "flush")), pod: db, want: []string{flush}},
		"a bad template is not our matter":                 {hooks: hooks(hook("shop", "dump").Job(`{"spec": "nonsense"}`)), pod: db, want: []string{dump}},
		"by priority, with registrations":                  {hooks: hooks(hook("shop", "dump").Priority(20000), hook("shop", "flush").Priority(5)), registrations: list(register("a.x"), register("z.x").Priority(30000)), pod: db, want: []string{"z.x", dump, "a.x", flush}},
		"its priority is that of registrations":            {hooks: hooks(hook("shop", "dump")), registrations: list(register("a.x"), register("z.x")), pod: db, want: []string{"a.x", dump, "z.x"}},
		"never in kube-system":                             {hooks: hooks(hook("kube-system", "dump")), pod: builder.Pod("kube-system", "dns")},
		"not even by annotation":                           {hooks: hooks(hook("kube-system", "dump")), pod: builder.Pod("kube-system", "dns").Interceptors("dump.kube-system.hooks.drawbridge.dev", "b.x"), want: []string{"b.x"}},
		"never in our own namespace":                       {hooks: hooks(hook(ownNamespace, "dump")), pod: builder.Pod(ownNamespace, "manager")},
		"an unknown namespace has its hooks":               {hooks: hooks(hook("new", "dump")), pod: builder.Pod("new", "p"), want: []string{"dump.new.hooks.drawbridge.dev"}},
		"an unknown namespace in an expression: ask again": {hooks: hooks(hook("new", "dump").When("namespaceObject != null")), pod: builder.Pod("new", "p"), wantError: ErrNamespaceUnknown},
		"a registration of a hook's name selects nothing":  {registrations: list(register(dump)), pod: db},
		"and takes nothing from the hook":                  {hooks: hooks(hook("shop", "dump")), registrations: list(register(dump).Priority(1)), pod: db, want: []string{dump}},
		"a registration under the suffix selects nothing":  {registrations: list(register("any.hooks.drawbridge.dev")), pod: db},
		"a hook in the annotation runs in its place":       {hooks: hooks(hook("shop", "dump").Priority(20000)), pod: db.Clone().Interceptors("z.x", dump, "b.x"), want: []string{"z.x", dump, "b.x"}},
		"one that does not cover the pod runs, too":        {hooks: hooks(hook("shop", "dump").Pods("app", "web")), pod: db.Clone().Interceptors(dump), want: []string{dump}},
		"a hook of another namespace is ignored":           {hooks: hooks(hook("depot", "dump")), pod: db.Clone().Interceptors(other, "b.x"), want: []string{"b.x"}},
		"a hook that does not exist is ignored":            {pod: db.Clone().Interceptors("b.x", dump), want: []string{"b.x"}},
		"a hook that is refused is ignored":                {hooks: hooks(hook("shop", "dump").When("nonsense")), pod: db.Clone().Interceptors(dump)},
		"a registration of a hook's name is ignored":       {registrations: list(register(dump)), pod: db.Clone().Interceptors(dump)},
		"a name under the suffix that is none is ignored":  {hooks: hooks(hook("shop", "dump")), pod: db.Clone().Interceptors("shop.hooks.drawbridge.dev"), want: []string{dump}},
		"the suffix alone is a name like others":           {pod: db.Clone().Interceptors("hooks.drawbridge.dev"), want: []string{"hooks.drawbridge.dev"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := hooked(tc.hooks, tc.registrations...)
			before := tc.pod.DeepCopy()
			got, err := registry.Resolve(tc.pod.Obj())
			if !errors.Is(err, tc.wantError) {
				t.Errorf("error %v, want %v", err, tc.wantError)
			}
			if len(got) > 0 || len(tc.want) > 0 { // None may be nil or empty.
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("interceptors (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(before, tc.pod.Obj()); diff != "" {
				t.Errorf("the pod was changed (-want +got):\n%s", diff)
			}
			cached, err := podcache.Transform(tc.pod.Obj())
			if err != nil {
				t.Fatal(err)
			}
			fromCache, _ := registry.Resolve(cached.(*corev1.Pod)) // Its error is the same.
			if diff := cmp.Diff(got, fromCache); diff != "" {
				t.Errorf("another answer for the pod in the cache (-live +cached):\n%s", diff)
			}
			if tc.wantError == nil {
				live, _, err := registry.ResolveLive(t.Context(), liveOf(t, tc.hooks, tc.registrations, nil), tc.pod.Obj())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(got, live); diff != "" {
					t.Errorf("another answer from the live objects (-memory +live):\n%s", diff)
				}
			}
		})
	}
}

// liveOf has these objects and the namespaces of registryOf. It notes what is listed.
func liveOf(t *testing.T, hooks []*builder.EvacuationHookWrapper, registrations []*builder.EvictionInterceptorWrapper, lists *[]string) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	objects := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Namespace{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithObjects(namespace("shop", "team", "a"), namespace("depot", "team", "b"), namespace("kube-system"), namespace(ownNamespace))
	for _, w := range hooks {
		objects.WithObjects(w.Clone().Obj())
	}
	for _, w := range registrations {
		objects.WithObjects(w.Clone().Obj())
	}
	return interceptor.NewClient(objects.Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.EvacuationHookList); ok && lists != nil {
				*lists = append(*lists, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
			}
			return c.List(ctx, list, opts...)
		},
	})
}

func TestHooksAreReadLive(t *testing.T) {
	pod := builder.Pod("shop", "p").Obj()
	known := hooks(builder.EvacuationHook("shop", "old"), builder.EvacuationHook("shop", "dump"))
	now := hooks(builder.EvacuationHook("shop", "dump"), builder.EvacuationHook("shop", "new").When("pod.metadata.name == 'p'"), builder.EvacuationHook("depot", "dump"))
	cases := map[string]struct {
		on    bool
		want  []string
		lists []string
	}{
		"those of the pod's namespace": {true, []string{"dump.shop.hooks.drawbridge.dev", "new.shop.hooks.drawbridge.dev"}, []string{"shop"}},
		"not if they are switched off": {false, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := hooked(known)
			registry.options.Hooks = tc.on
			var lists []string
			got, _, err := registry.ResolveLive(t.Context(), liveOf(t, now, nil, &lists), pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("interceptors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.lists, lists); diff != "" {
				t.Errorf("namespaces whose hooks were listed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRegistrationOfAHook(t *testing.T) {
	registry := hooked(hooks(
		builder.EvacuationHook("shop", "plain"),
		builder.EvacuationHook("shop", "full.v2").Priority(7).Guard(v1alpha1.GuardAlways),
		builder.EvacuationHook("shop", "bad").When("nonsense"),
	), builder.EvictionInterceptor("gone.shop.hooks.drawbridge.dev").ActedBy("shop", "thief"),
		builder.EvictionInterceptor("plain.shop.hooks.drawbridge.dev").ActedBy("shop", "thief"))
	cases := map[string]struct {
		want  Info
		found bool
	}{
		"plain.shop.hooks.drawbridge.dev":   {Info{Name: "plain.shop.hooks.drawbridge.dev", Priority: 10000, Guard: v1alpha1.GuardWhileEvacuating, Usernames: []string{ownAccount}}, true},
		"full.v2.shop.hooks.drawbridge.dev": {Info{Name: "full.v2.shop.hooks.drawbridge.dev", Priority: 7, Guard: v1alpha1.GuardAlways, Usernames: []string{ownAccount}}, true},
		"bad.shop.hooks.drawbridge.dev":     {},
		"gone.shop.hooks.drawbridge.dev":    {},
		"plain.depot.hooks.drawbridge.dev":  {},
		"shop/plain":                        {},
	}
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

func TestWhyAHookIsRefused(t *testing.T) {
	hook := builder.EvacuationHook
	cases := map[string]struct {
		from         *builder.EvacuationHookWrapper
		reason, text string
	}{
		"a pod selector": {hook("shop", "a").PodsWhere("app", "In"), v1alpha1.ReasonInvalidSelector, "spec.podSelector cannot be read: "},
		"an expression":  {hook("shop", "a").When("true", "pod.spec.foo == 1"), v1alpha1.ReasonInvalidExpression, `spec.matchConditions[1] "c1" does not compile: line 1, column 9: undefined field 'foo'. Expressions can read what Drawbridge keeps of a pod (variable pod or object) and`},
		"the request":    {hook("shop", "a").When("request.metadata.name == ''"), v1alpha1.ReasonInvalidExpression, `spec.matchConditions[0] "c0" does not compile: line 1, column 1: undeclared reference to 'request'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			refused := compileHook(tc.from.Obj(), ownAccount).refused
			if refused == nil {
				t.Fatal("it is accepted")
			}
			if refused.reason != tc.reason || !strings.HasPrefix(refused.message, tc.text) || !strings.HasSuffix(refused.message, "The hook covers no pods.") {
				t.Errorf("refused because of %s: %s", refused.reason, refused.message)
			}
		})
	}
}

// Registrations have one name for the pod.
func TestOnlyHooksCallThePodPod(t *testing.T) {
	if _, err := compiler(t).compile("pod.metadata.name == ''"); err == nil || !strings.Contains(err.Error(), "undeclared reference to 'pod'") {
		t.Errorf("got error %v, want that there is no such variable", err)
	}
}

func TestHooksAreNotMeasured(t *testing.T) {
	measured := &counts{}
	registry := NewRegistry(Options{Namespace: ownNamespace, Account: ownAccount, Metrics: measured})
	registry.put(builder.EvictionInterceptor("a.x").Obj())
	registry.putHook(builder.EvacuationHook("shop", "fragile").When("pod.metadata.labels['none'] == ''").Obj())
	registry.putHook(builder.EvacuationHook("shop", "bad").When("nonsense").Obj())
	if _, err := registry.Resolve(builder.Pod("shop", "p").Obj()); err != nil {
		t.Fatal(err)
	}
	registry.remove("shop/fragile")
	if diff := cmp.Diff(&counts{accepted: 1}, measured, cmp.AllowUnexported(counts{})); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
}

func TestChangesOfHooksAreTold(t *testing.T) {
	registry := hooked(hooks(builder.EvacuationHook("shop", "a").UID("1")))
	var told []change
	registry.subscribe(func(c change) { told = append(told, c) })
	a := change{registration: "shop/a"}
	steps := []struct {
		what   string
		change func()
		want   []change
	}{
		{"another status", func() { registry.putHook(builder.EvacuationHook("shop", "a").UID("1").Obj()) }, nil},
		{"another generation", func() { registry.putHook(builder.EvacuationHook("shop", "a").UID("1").Generation(2).Obj()) }, []change{a}},
		{"another object of that name", func() { registry.putHook(builder.EvacuationHook("shop", "a").UID("2").Generation(2).Obj()) }, []change{a}},
		{"one of another namespace", func() { registry.putHook(builder.EvacuationHook("depot", "a").Obj()) }, []change{{registration: "depot/a"}}},
		{"one goes", func() { registry.remove("shop/a") }, []change{a}},
		{"it goes again", func() { registry.remove("shop/a") }, nil},
	}
	for _, step := range steps {
		told = nil
		step.change()
		if !slices.Equal(told, step.want) {
			t.Errorf("%s: told %v, want %v", step.what, told, step.want)
		}
	}
}

func TestHooksAreFedOnlyIfSwitchedOn(t *testing.T) {
	cases := map[string]struct {
		options   Options
		want      []string
		wantError string
	}{
		"on":                                  {Options{Namespace: ownNamespace, Account: ownAccount, Hooks: true}, []string{"dump.shop.hooks.drawbridge.dev"}, ""},
		"off: nobody asks for hooks":          {Options{Namespace: ownNamespace, Account: ownAccount}, nil, ""},
		"off: no account is needed":           {Options{Namespace: ownNamespace}, nil, ""},
		"on without an account: who may act?": {Options{Namespace: ownNamespace, Hooks: true}, nil, "Account"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// The scheme of an API server without the CustomResourceDefinition.
			scheme := runtime.NewScheme()
			utilruntime.Must(corev1.AddToScheme(scheme))
			scheme.AddKnownTypes(v1alpha1.SchemeGroupVersion, &v1alpha1.EvictionInterceptor{}, &v1alpha1.EvictionInterceptorList{})
			if tc.options.Hooks {
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
			if !tc.options.Hooks {
				if got := len(registry.feeds); got != 2 {
					t.Errorf("%d informers feed the registry, want those of registrations and namespaces", got)
				}
				return
			}
			hook := builder.EvacuationHook("shop", "dump").Obj()
			informer, err := informers.FakeInformerFor(t.Context(), hook)
			if err != nil {
				t.Fatal(err)
			}
			informer.Add(hook)
			registry.synced.Store(true)
			pod := builder.Pod("shop", "p").Obj()
			if got, err := registry.Resolve(pod); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			informer.Delete(hook)
			if got, err := registry.Resolve(pod); err != nil || len(got) > 0 {
				t.Errorf("the hook is gone: got %q, %v, want none", got, err)
			}
		})
	}
}

// A name before the registry is in sync is a guess; one of a hook would not be.
func TestNoHookCountsBeforeTheRegistryIsInSync(t *testing.T) {
	registry := hooked(hooks(builder.EvacuationHook("shop", "dump")))
	registry.feeds = append(registry.feeds, func() bool { return false })
	registry.synced.Store(false)
	got, err := registry.Resolve(builder.Pod("shop", "p").Interceptors("z.x", "dump.shop.hooks.drawbridge.dev").Obj())
	if !errors.Is(err, ErrNotSynced) || !slices.Equal(got, []string{"z.x"}) {
		t.Errorf("got %q, %v, want z.x and an error", got, err)
	}
}

func BenchmarkHooks(b *testing.B) {
	r, _ := benchRegistry()
	r.putHook(builder.EvacuationHook("ns-1", "dump").Pods("app", "web-1").Obj())
	for name, bench := range map[string]struct {
		namespace string
		want      int
	}{"elsewhere": {"ns-3", 0}, "covered": {"ns-1", 1}} {
		b.Run(name, func(b *testing.B) {
			pod := builder.Pod(bench.namespace, "p").Label("app", "web-1").Label("tier", "back").Obj()
			b.ReportAllocs()
			for b.Loop() {
				if got, err := r.Resolve(pod); err != nil || len(got) != bench.want {
					b.Fatalf("%d interceptors and error %v, want %d", len(got), err, bench.want)
				}
			}
		})
	}
}

// A registration that the caches do not have says how long its interceptor may be silent.
func TestDeadlinesAreReadLive(t *testing.T) {
	registry := registryOf()
	live := liveOf(t, nil, list(builder.EvictionInterceptor("slow.x").HeartbeatDeadline(time.Hour)), nil)
	_, found, err := registry.ResolveLive(t.Context(), live, builder.Pod("shop", "p").Obj())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Duration{"cached": DeadlineOf(registry)("slow.x"), "live": DeadlineOf(found)("slow.x"), "nobody": DeadlineOf(found)("nobody.x")}
	if diff := cmp.Diff(map[string]time.Duration{"cached": 0, "live": time.Hour, "nobody": 0}, got); diff != "" {
		t.Errorf("deadlines (-want +got):\n%s", diff)
	}
}
