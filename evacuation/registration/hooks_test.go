package registration

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
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
			all := objects{hooks: tc.hooks, registrations: tc.registrations}
			checkResolve(t, hooked(tc.hooks, tc.registrations...), all, tc.pod, tc.want, tc.wantError)
		})
	}
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
			checkLive[*v1alpha1.EvacuationHookList](t, registry, objects{hooks: now}, pod, tc.want, tc.lists)
		})
	}
}

func TestRegistrationOfAHook(t *testing.T) {
	full := builder.EvacuationHook("shop", "full.v2").Priority(7).Guard(v1alpha1.GuardAlways)
	full.Spec.Minimum, full.Spec.OnShortNotice = &metav1.Duration{Duration: time.Minute}, v1alpha1.ShortNoticeSkip
	full.Spec.OnNodeLost = v1alpha1.NodeLostInterrupt
	planned := v1alpha1.Interceptor{Minimum: full.Spec.Minimum, OnShortNotice: v1alpha1.ShortNoticeSkip, OnNodeLost: v1alpha1.NodeLostInterrupt}
	registry := hooked(hooks(
		builder.EvacuationHook("shop", "plain"),
		full,
		builder.EvacuationHook("shop", "bad").When("nonsense"),
	), builder.EvictionInterceptor("gone.shop.hooks.drawbridge.dev").ActedBy("shop", "thief"),
		builder.EvictionInterceptor("plain.shop.hooks.drawbridge.dev").ActedBy("shop", "thief"))
	checkRegistrations(t, registry, map[string]known{
		"plain.shop.hooks.drawbridge.dev":   {Info{Name: "plain.shop.hooks.drawbridge.dev", Priority: 10000, Guard: v1alpha1.GuardWhileEvacuating, Usernames: []string{ownAccount}, Planned: v1alpha1.Interceptor{OnNodeLost: v1alpha1.NodeLostWait}}, true},
		"full.v2.shop.hooks.drawbridge.dev": {Info{Name: "full.v2.shop.hooks.drawbridge.dev", Priority: 7, Guard: v1alpha1.GuardAlways, Usernames: []string{ownAccount}, Planned: planned}, true},
		"bad.shop.hooks.drawbridge.dev":     {},
		"gone.shop.hooks.drawbridge.dev":    {},
		"plain.depot.hooks.drawbridge.dev":  {},
		"shop/plain":                        {},
	})
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
			checkRefused(t, compileHook(tc.from.Obj(), ownAccount).refused, tc.reason, tc.text, "The hook covers no pods.")
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
	a := change{registration: "shop/a"}
	checkTold(t, registry, []telling{
		{"another status", func() { registry.putHook(builder.EvacuationHook("shop", "a").UID("1").Obj()) }, nil},
		{"another generation", func() { registry.putHook(builder.EvacuationHook("shop", "a").UID("1").Generation(2).Obj()) }, []change{a}},
		{"another object of that name", func() { registry.putHook(builder.EvacuationHook("shop", "a").UID("2").Generation(2).Obj()) }, []change{a}},
		{"one of another namespace", func() { registry.putHook(builder.EvacuationHook("depot", "a").Obj()) }, []change{{registration: "depot/a"}}},
		{"one goes", func() { registry.remove("shop/a") }, []change{a}},
		{"it goes again", func() { registry.remove("shop/a") }, nil},
	})
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
			checkFed(t, tc.options, builder.EvacuationHook("shop", "dump").Obj(), tc.want, tc.wantError)
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
	benchCovered(b, r)
}

// A registration that the caches do not have says how long its interceptor may be silent, and
// how long it needs.
func TestWhatIsPlannedIsReadLive(t *testing.T) {
	registry := registryOf()
	live := objects{registrations: list(builder.EvictionInterceptor("slow.x").HeartbeatDeadline(time.Hour).Minimum(time.Minute, v1alpha1.ShortNoticeSkip).OnNodeLost(v1alpha1.NodeLostSkip))}.live(t, nil)
	_, found, err := registry.ResolveLive(t.Context(), live, builder.Pod("shop", "p").Obj())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]v1alpha1.Interceptor{"cached": PlannedOf(registry)("slow.x"), "live": PlannedOf(found)("slow.x"), "nobody": PlannedOf(found)("nobody.x")}
	want := map[string]v1alpha1.Interceptor{"cached": {Name: "slow.x"}, "live": {
		Name: "slow.x", HeartbeatDeadline: &metav1.Duration{Duration: time.Hour},
		Minimum: &metav1.Duration{Duration: time.Minute}, OnShortNotice: v1alpha1.ShortNoticeSkip, OnNodeLost: v1alpha1.NodeLostSkip,
	}, "nobody": {Name: "nobody.x"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("planned (-want +got):\n%s", diff)
	}
}
