package registration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const ownNamespace = "drawbridge-system"

func namespace(name string, pairs ...string) *corev1.Namespace {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
	for i := 0; i < len(pairs); i += 2 {
		object.Labels[pairs[i]] = pairs[i+1]
	}
	return object
}

// registryOf knows the namespaces shop (team a), depot (team b), kube-system and
// ours.
func registryOf(registrations ...*builder.EvictionInterceptorWrapper) *Registry {
	r := NewRegistry(Options{Namespace: ownNamespace, AllowedReserved: []string{"allowed.k8s.io"}})
	for _, n := range []*corev1.Namespace{namespace("shop", "team", "a"), namespace("depot", "team", "b"), namespace("kube-system"), namespace(ownNamespace)} {
		r.putNamespace(n)
	}
	for _, registration := range registrations {
		r.put(registration.Obj())
	}
	return r
}

func TestResolve(t *testing.T) {
	db := builder.Pod("shop", "db-0").Label("app", "db").Label("tier", "back")
	onHost := builder.Pod("shop", "p")
	onHost.Spec.HostNetwork = true
	register := builder.EvictionInterceptor
	cases := map[string]struct {
		registrations []*builder.EvictionInterceptorWrapper
		pod           *builder.PodWrapper
		want          []string
		wantError     error
	}{
		"nobody":                             {pod: db},
		"an empty selector selects all":      {registrations: list(register("a.x")), pod: db, want: []string{"a.x"}},
		"a label":                            {registrations: list(register("a.x").Pods("app", "db"), register("b.x").Pods("app", "web")), pod: db, want: []string{"a.x"}},
		"two labels":                         {registrations: list(register("a.x").Pods("app", "db").Pods("tier", "back"), register("b.x").Pods("app", "db").Pods("tier", "front")), pod: db, want: []string{"a.x"}},
		"one of some values":                 {registrations: list(register("a.x").PodsWhere("app", "In", "web", "db")), pod: db, want: []string{"a.x"}},
		"one of many values":                 {registrations: list(register("a.x").PodsWhere("app", "In", append(numbers(100), "db")...)), pod: db, want: []string{"a.x"}},
		"none of many values":                {registrations: list(register("a.x").PodsWhere("app", "In", numbers(100)...)), pod: db},
		"a key":                              {registrations: list(register("a.x").PodsWhere("app", "Exists"), register("b.x").PodsWhere("zone", "Exists")), pod: db, want: []string{"a.x"}},
		"not a value":                        {registrations: list(register("a.x").PodsWhere("app", "NotIn", "web"), register("b.x").PodsWhere("app", "NotIn", "db")), pod: db, want: []string{"a.x"}},
		"not a key":                          {registrations: list(register("a.x").PodsWhere("zone", "DoesNotExist"), register("b.x").PodsWhere("app", "DoesNotExist")), pod: db, want: []string{"a.x"}},
		"a key, but not a value":             {registrations: list(register("a.x").PodsWhere("app", "Exists").PodsWhere("app", "NotIn", "db")), pod: db},
		"a pod without labels":               {registrations: list(register("a.x").Pods("app", "db"), register("b.x").PodsWhere("app", "DoesNotExist")), pod: builder.Pod("shop", "p"), want: []string{"b.x"}},
		"a namespace by label":               {registrations: list(register("a.x").Namespaces("team", "a"), register("b.x").Namespaces("team", "b")), pod: db, want: []string{"a.x"}},
		"a namespace by what it lacks":       {registrations: list(register("a.x").NamespacesWhere("off", "DoesNotExist"), register("b.x").NamespacesWhere("team", "NotIn", "a")), pod: db, want: []string{"a.x"}},
		"pod and namespace":                  {registrations: list(register("a.x").Pods("app", "db").Namespaces("team", "a"), register("b.x").Pods("app", "db").Namespaces("team", "b")), pod: db, want: []string{"a.x"}},
		"an expression":                      {registrations: list(register("a.x").When("object.metadata.name == 'db-0'"), register("b.x").When("object.metadata.name == 'web'")), pod: db, want: []string{"a.x"}},
		"all expressions":                    {registrations: list(register("a.x").When("true", "object.metadata.labels['tier'] == 'front'")), pod: db},
		"an expression over the namespace":   {registrations: list(register("a.x").When("namespaceObject.metadata.labels['team'] == 'a'")), pod: db, want: []string{"a.x"}},
		"an expression fails: not selected":  {registrations: list(register("a.x").When("object.metadata.annotations['none'] == 'x'"), register("b.x")), pod: db, want: []string{"b.x"}},
		"a bad expression selects nothing":   {registrations: list(register("a.x").When("object.spec.containers.size() > 0"), register("b.x")), pod: db, want: []string{"b.x"}},
		"a bad selector selects nothing":     {registrations: list(register("a.x").PodsWhere("app", "Near", "db"), register("b.x").NamespacesWhere("a b", "Exists"), register("c.x")), pod: db, want: []string{"c.x"}},
		"a reserved name selects nothing":    {registrations: list(register("actor.k8s.io"), register("imperative-eviction.k8s.io"), register("allowed.k8s.io")), pod: db, want: []string{"allowed.k8s.io"}},
		"what the cache drops is never seen": {registrations: list(register("a.x").When("has(dyn(object).spec.hostNetwork)")), pod: onHost},
		"annotation and registrations":       {registrations: list(register("a.x").Priority(20000), register("c.x")), pod: db.Clone().Interceptors("z.x", "b.x"), want: []string{"a.x", "c.x", "z.x", "b.x"}},
		"never in kube-system":               {registrations: list(register("a.x")), pod: builder.Pod("kube-system", "dns").Interceptors("b.x"), want: []string{"b.x"}},
		"never in our own namespace":         {registrations: list(register("a.x")), pod: builder.Pod(ownNamespace, "manager")},
		"an unknown namespace does not matter to who selects all": {registrations: list(register("a.x"), register("b.x").Pods("app", "db").When("has(object.metadata.labels)")), pod: builder.Pod("new", "p").Label("app", "db"), want: []string{"a.x", "b.x"}},
		"an unknown namespace is selected by label: ask again":    {list(register("a.x").Namespaces("team", "a"), register("b.x")), builder.Pod("new", "p").Interceptors("c.x"), []string{"b.x", "c.x"}, ErrNamespaceUnknown},
		"an unknown namespace in an expression: ask again":        {list(register("a.x").When("has(namespaceObject.metadata.labels)")), builder.Pod("new", "p"), nil, ErrNamespaceUnknown},
		"an unknown namespace, but the pod is not selected":       {registrations: list(register("a.x").Pods("app", "db").Namespaces("team", "a"), register("b.x").PodsWhere("app", "Exists").When("namespaceObject != null")), pod: builder.Pod("new", "p")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkResolve(t, registryOf(tc.registrations...), objects{registrations: tc.registrations}, tc.pod, tc.want, tc.wantError)
		})
	}
}

func list(registrations ...*builder.EvictionInterceptorWrapper) []*builder.EvictionInterceptorWrapper {
	return registrations
}

func numbers(n int) []string {
	var values []string
	for i := range n {
		values = append(values, fmt.Sprint(i))
	}
	return values
}

func TestRegistration(t *testing.T) {
	registry := registryOf(
		builder.EvictionInterceptor("slow.x").HeartbeatDeadline(time.Hour),
		builder.EvictionInterceptor("plain.x"),
		builder.EvictionInterceptor("full.x").Priority(7).ActedBy("shop", "mover").ActedBy("depot", "mover").Evicts().Guard(v1alpha1.GuardAlways),
		builder.EvictionInterceptor("bad.x").When("nonsense").ActedBy("shop", "mover"),
	)
	checkRegistrations(t, registry, map[string]known{
		"slow.x":  {Info{Name: "slow.x", Priority: 10000, Guard: v1alpha1.GuardWhileEvacuating, Planned: v1alpha1.Interceptor{HeartbeatDeadline: &metav1.Duration{Duration: time.Hour}}}, true},
		"plain.x": {Info{Name: "plain.x", Priority: 10000, Guard: v1alpha1.GuardWhileEvacuating}, true},
		"full.x": {Info{
			Name: "full.x", Priority: 7, Evicts: true, Guard: v1alpha1.GuardAlways,
			Usernames: []string{"system:serviceaccount:shop:mover", "system:serviceaccount:depot:mover"},
		}, true},
		"bad.x":     {},
		"unknown.x": {},
	})
}

func TestWhyARegistrationIsRefused(t *testing.T) {
	register := builder.EvictionInterceptor
	cases := map[string]struct {
		from         *builder.EvictionInterceptorWrapper
		reason, text string
	}{
		"a name of hooks":            {register("a.shop.hooks.drawbridge.dev"), v1alpha1.ReasonReservedName, `metadata.name "a.shop.hooks.drawbridge.dev" is not allowed: names under hooks.drawbridge.dev are those of EvacuationHooks`},
		"a reserved name":            {register("actor.k8s.io"), v1alpha1.ReasonReservedName, `metadata.name "actor.k8s.io" is not allowed: names under k8s.io and kubernetes.io are reserved`},
		"the name of the order":      {register(v1alpha1.OrderInterceptor), v1alpha1.ReasonReservedName, `metadata.name "order.drawbridge.dev" is not allowed: it is the interceptor of spec.after of all registrations; choose another name, which may end in .order.drawbridge.dev. `},
		"a pod selector of an order": {register("a.x").AfterWhere("app", "Near"), v1alpha1.ReasonInvalidSelector, "spec.after.podSelector cannot be read: "},
		"a pod selector":             {register("a.x").PodsWhere("app", "In"), v1alpha1.ReasonInvalidSelector, "spec.podSelector cannot be read: "},
		"a namespace selector":       {register("a.x").Namespaces("a b", "c"), v1alpha1.ReasonInvalidSelector, "spec.namespaceSelector cannot be read: "},
		"an expression":              {register("a.x").When("true", "object.spec.foo == 1"), v1alpha1.ReasonInvalidExpression, `spec.matchConditions[1] "c1" does not compile: line 1, column 12: undefined field 'foo'. `},
		"an expression of no truth":  {register("a.x").When("1"), v1alpha1.ReasonInvalidExpression, `spec.matchConditions[0] "c0" does not compile: it must be of type bool, but is int. `},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, compileEntry(tc.from.Obj(), nil).refused, tc.reason, tc.text, "The registration selects no pods.")
		})
	}
}

// The indexed answer is that of asking everybody, after any sequence of changes.
func TestResolveIsLikeAskingEverybody(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	registry := registryOf()
	registrations := map[string]*v1alpha1.EvictionInterceptor{}
	hooks := map[string]*v1alpha1.EvacuationHook{}
	namespaces := map[string]*corev1.Namespace{"shop": namespace("shop", "team", "a"), "depot": namespace("depot", "team", "b")}
	generation := int64(0)
	matched := 0
	for range 3000 {
		switch name := pick("a", "b", "c", "d", "e", "f") + ".x"; random.IntN(7) {
		case 0, 1:
			generation++
			w := builder.EvictionInterceptor(name).Generation(generation).Priority(random.Int32N(3))
			for range random.IntN(3) {
				switch operator := pick("In", "NotIn", "Exists", "DoesNotExist"); operator {
				case "In", "NotIn":
					w.PodsWhere(pick("app", "tier"), metav1.LabelSelectorOperator(operator), pick("1", "2"), pick("2", "3"))
				default:
					w.PodsWhere(pick("app", "tier"), metav1.LabelSelectorOperator(operator))
				}
			}
			if random.IntN(2) == 0 {
				w.Namespaces("team", pick("a", "b"))
			}
			registrations[name] = w.Obj()
			registry.put(w.Obj())
		case 2:
			delete(registrations, name)
			registry.remove(name)
		case 3:
			n := namespace(pick("shop", "depot"), "team", pick("a", "b"))
			namespaces[n.Name] = n
			registry.putNamespace(n)
		case 4:
			generation++
			w := builder.EvacuationHook(pick("shop", "depot"), pick("a", "b", "c")).Generation(generation).Priority(random.Int32N(3))
			if random.IntN(2) == 0 {
				w.Pods(pick("app", "tier"), pick("1", "2"))
			}
			hooks[w.Namespace+"/"+w.Name] = w.Obj()
			registry.putHook(w.Obj())
		case 5:
			key := pick("shop", "depot") + "/" + pick("a", "b", "c")
			delete(hooks, key)
			registry.remove(key)
		default: // Several look-ups per state.
		}
		pod := builder.Pod(pick("shop", "depot"), "p")
		for _, key := range []string{"app", "tier"} {
			if value := pick("", "1", "2", "3"); value != "" {
				pod.Label(key, value)
			}
		}
		var want []*entry
		for _, from := range registrations {
			pods, _ := metav1.LabelSelectorAsSelector(orAll(from.Spec.PodSelector))
			where, _ := metav1.LabelSelectorAsSelector(orAll(from.Spec.NamespaceSelector))
			if pods.Matches(labels.Set(pod.Labels)) && where.Matches(labels.Set(namespaces[pod.Namespace].Labels)) {
				want = append(want, &entry{Info: infoOf(from)})
			}
		}
		for _, from := range hooks {
			pods, _ := metav1.LabelSelectorAsSelector(orAll(from.Spec.PodSelector))
			if pods.Matches(labels.Set(pod.Labels)) && from.Namespace == pod.Namespace {
				want = append(want, &entry{Info: Info{Name: v1alpha1.HookInterceptor(client.ObjectKeyFromObject(from)), Priority: *from.Spec.Priority}})
			}
		}
		got, err := registry.Resolve(pod.Obj())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(order(nil, want), got); diff != "" {
			t.Fatalf("pod with labels %v in %s (-want +got):\n%s", pod.Labels, pod.Namespace, diff)
		}
		matched += len(got)
	}
	if matched < 1000 {
		t.Errorf("only %d matches, which proves little", matched)
	}
}

func orAll(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil {
		return &metav1.LabelSelector{}
	}
	return selector
}

func TestNothingIsSureBeforeTheRegistryIsInSync(t *testing.T) {
	synced := false
	registry := registryOf(builder.EvictionInterceptor("a.x"))
	registry.feeds = []toolscache.InformerSynced{func() bool { return synced }}
	registry.synced.Store(false)
	changes := 0
	registry.OnChange(func() { changes++ })
	pod := builder.Pod("shop", "p").Interceptors("z.x").Obj()

	registry.put(builder.EvictionInterceptor("b.x").Obj())
	if got, err := registry.Resolve(pod); !errors.Is(err, ErrNotSynced) || !slices.Equal(got, []string{"z.x"}) {
		t.Errorf("before: got %q, %v, want the annotation and an error", got, err)
	}
	synced = true
	if got, err := registry.Resolve(pod); err != nil || !slices.Equal(got, []string{"a.x", "b.x", "z.x"}) {
		t.Errorf("after: got %q, %v, want all", got, err)
	}
	if changes != 0 {
		t.Errorf("%d changes were told before the registry was in sync", changes)
	}
	if err := registry.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if changes != 1 {
		t.Errorf("%d changes told, want 1 for being in sync", changes)
	}
}

func TestChangesAreTold(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("a.x").UID("1"))
	changes := 0
	registry.OnChange(func() { changes++ })
	steps := []struct {
		what   string
		change func()
		want   int
	}{
		{"another status", func() { registry.put(builder.EvictionInterceptor("a.x").UID("1").Obj()) }, 0},
		{"another generation", func() { registry.put(builder.EvictionInterceptor("a.x").UID("1").Generation(2).Obj()) }, 1},
		{"another object of that name", func() { registry.put(builder.EvictionInterceptor("a.x").UID("2").Generation(2).Obj()) }, 1},
		{"a new one", func() { registry.put(builder.EvictionInterceptor("b.x").Obj()) }, 1},
		{"one goes", func() { registry.remove("b.x") }, 1},
		{"it goes again", func() { registry.remove("b.x") }, 0},
		{"the same namespace", func() { registry.putNamespace(namespace("shop", "team", "a")) }, 0},
		{"another label", func() { registry.putNamespace(namespace("shop", "team", "b")) }, 1},
		{"a namespace goes", func() { registry.removeNamespace("shop") }, 1},
	}
	for _, step := range steps {
		changes = 0
		step.change()
		if changes != step.want {
			t.Errorf("%s: told %d times, want %d", step.what, changes, step.want)
		}
	}
}

// counts is a Metrics.
type counts struct {
	accepted, refused int
	failed, forgotten []string
}

func (c *counts) Registrations(accepted, refused int) { c.accepted, c.refused = accepted, refused }
func (c *counts) EvaluationFailed(name string)        { c.failed = append(c.failed, name) }
func (c *counts) Forget(name string)                  { c.forgotten = append(c.forgotten, name) }

func TestRegistryIsMeasured(t *testing.T) {
	measured := &counts{}
	registry := NewRegistry(Options{Namespace: ownNamespace, Metrics: measured})
	registry.put(builder.EvictionInterceptor("a.x").When("object.metadata.labels['none'] == ''").Obj())
	registry.put(builder.EvictionInterceptor("b.x").Obj())
	registry.put(builder.EvictionInterceptor("c.x").When("nonsense").Obj())
	if _, err := registry.Resolve(builder.Pod("shop", "p").Obj()); err != nil {
		t.Fatal(err)
	}
	registry.remove("b.x")
	want := &counts{accepted: 1, refused: 1, failed: []string{"a.x"}, forgotten: []string{"b.x"}}
	if diff := cmp.Diff(want, measured, cmp.AllowUnexported(counts{})); diff != "" {
		t.Errorf("measured (-want +got):\n%s", diff)
	}
}

// Look-ups go on while everything changes; the race detector watches.
func TestLookUpsDuringChanges(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("always.x"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(300) {
			registry.put(builder.EvictionInterceptor("a.x").Generation(i+1).Pods("app", "db").When("has(object.metadata.labels)").Obj())
			registry.putNamespace(namespace("shop", "round", fmt.Sprint(i)))
			registry.remove("a.x")
		}
	}()
	pod := builder.Pod("shop", "p").Label("app", "db").Obj()
	for {
		if got, err := registry.Resolve(pod); err != nil || !slices.Contains(got, "always.x") {
			t.Fatalf("got %q and error %v, want always.x among them", got, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func TestARegistryOfWhatIsGivenIsInSync(t *testing.T) {
	registry := Static(Options{Namespace: "drawbridge-system"}, Known{
		Registrations: []v1alpha1.EvictionInterceptor{*builder.EvictionInterceptor("a.example.com").Pods("app", "db").Namespaces("tier", "gold").Obj()},
		Hooks:         []v1alpha1.EvacuationHook{*builder.EvacuationHook("lab", "dump").Pods("app", "db").Obj()},
		Namespaces:    []corev1.Namespace{*namespace("shop", "tier", "gold"), *namespace("lab"), *namespace("bin")},
	})
	for where, want := range map[string][]string{"shop": {"a.example.com"}, "lab": {"dump.lab.hooks.drawbridge.dev"}, "bin": nil} {
		got, err := registry.Resolve(builder.Pod(where, "db-0").Label("app", "db").Obj())
		if err != nil {
			t.Errorf("resolve in %s: %v", where, err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("interceptors in %s (-want +got):\n%s", where, diff)
		}
	}
}
