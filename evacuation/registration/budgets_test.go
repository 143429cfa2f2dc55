package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const paced = v1alpha1.BudgetInterceptor

// evb is a budget for the pods that app selects: a value of that label, "*" for all pods,
// empty for no selector, or an operator that there is not.
func evb(namespace, name, app string, change ...func(*v1alpha1.EvictionBudget)) *v1alpha1.EvictionBudget {
	b := &v1alpha1.EvictionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1}}
	switch app {
	case "":
	case "*":
		b.Spec.Selector = &metav1.LabelSelector{}
	case "Near":
		b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near", Values: []string{"db"}}}}
	default:
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	for _, f := range change {
		f(b)
	}
	return b
}

func guardedBy(guard v1alpha1.GuardPolicy) func(*v1alpha1.EvictionBudget) {
	return func(b *v1alpha1.EvictionBudget) { b.Spec.Guard = guard }
}

func generation(n int64) func(*v1alpha1.EvictionBudget) {
	return func(b *v1alpha1.EvictionBudget) { b.Generation = n }
}

// budgeted is hooked with budgets.
func budgeted(budgets []*v1alpha1.EvictionBudget, registrations ...*builder.EvictionInterceptorWrapper) *Registry {
	r := hooked(nil, registrations...)
	r.options.Budgets = true
	for _, b := range budgets {
		r.putBudget(b)
	}
	return r
}

func budgets(all ...*v1alpha1.EvictionBudget) []*v1alpha1.EvictionBudget { return all }

func TestResolveBudgets(t *testing.T) {
	db := builder.Pod("shop", "db-0").Label("app", "db")
	register := builder.EvictionInterceptor
	var many []*builder.EvictionInterceptorWrapper
	var names []string
	for i := range v1alpha1.MaxPodInterceptors {
		names = append(names, fmt.Sprintf("i%02d.x", i))
		many = append(many, register(names[i]))
	}
	cases := map[string]struct {
		budgets       []*v1alpha1.EvictionBudget
		registrations []*builder.EvictionInterceptorWrapper
		pod           *builder.PodWrapper
		want          []string
	}{
		"a label":                                {budgets: budgets(evb("shop", "a", "db")), pod: db, want: []string{paced}},
		"another label":                          {budgets: budgets(evb("shop", "a", "web")), pod: db},
		"an empty selector covers the namespace": {budgets: budgets(evb("shop", "a", "*")), pod: db, want: []string{paced}},
		"none covers nothing":                    {budgets: budgets(evb("shop", "a", "")), pod: db},
		"no other namespace":                     {budgets: budgets(evb("depot", "a", "db"), evb("depot", "b", "*")), pod: db},
		"several are one interceptor":            {budgets: budgets(evb("shop", "a", "db"), evb("shop", "b", "*"), evb("shop", "c", "web")), pod: db, want: []string{paced}},
		"a bad selector covers nothing":          {budgets: budgets(evb("shop", "a", "Near")), pod: db},
		"and takes nothing from others":          {budgets: budgets(evb("shop", "a", "Near"), evb("shop", "b", "db")), pod: db, want: []string{paced}},
		"a bad window is not our matter": {
			budgets: budgets(evb("shop", "a", "db", func(b *v1alpha1.EvictionBudget) {
				b.Spec.Windows = []v1alpha1.BudgetWindow{{Schedule: "nonsense", TimeZone: "Nowhere"}}
			})),
			pod: db, want: []string{paced},
		},
		"nor is a bad condition": {
			budgets: budgets(evb("shop", "a", "db", func(b *v1alpha1.EvictionBudget) {
				b.Spec.Conditions = []v1alpha1.MatchCondition{{Name: "c", Expression: "nonsense"}}
			})),
			pod: db, want: []string{paced},
		},
		"after those of a higher priority":            {budgets: budgets(evb("shop", "a", "db")), registrations: list(register("z.x"), register("low.x").Priority(499), register("high.x").Priority(501)), pod: db, want: []string{"z.x", "high.x", paced, "low.x"}},
		"after the annotation":                        {budgets: budgets(evb("shop", "a", "db")), pod: db.Clone().Interceptors("z.x", "a.x"), want: []string{"z.x", "a.x", paced}},
		"the annotation does not move it":             {budgets: budgets(evb("shop", "a", "db")), pod: db.Clone().Interceptors(paced, "a.x"), want: []string{"a.x", paced}},
		"nor is it covered by the annotation":         {budgets: budgets(evb("shop", "a", "web")), pod: db.Clone().Interceptors("a.x", paced, "b.x"), want: []string{"a.x", "b.x"}},
		"too many others do not take its place":       {budgets: budgets(evb("shop", "a", "db")), registrations: many, pod: db, want: append(slices.Clone(names[:14]), paced)},
		"nor do too many in the annotation":           {budgets: budgets(evb("shop", "a", "db")), pod: db.Clone().Interceptors(names...), want: append(slices.Clone(names[:14]), paced)},
		"if there is room, it stays where it is":      {budgets: budgets(evb("shop", "a", "db")), registrations: list(register("low.x").Priority(1)), pod: db.Clone().Interceptors(names[:14]...), want: append(slices.Clone(names[:14]), paced)},
		"never in kube-system":                        {budgets: budgets(evb("kube-system", "a", "*")), pod: builder.Pod("kube-system", "dns")},
		"never in our own namespace":                  {budgets: budgets(evb(ownNamespace, "a", "*")), pod: builder.Pod(ownNamespace, "manager")},
		"an unknown namespace has its budgets":        {budgets: budgets(evb("new", "a", "*")), pod: builder.Pod("new", "p"), want: []string{paced}},
		"a registration of that name selects nothing": {registrations: list(register(paced)), pod: db},
		"and takes nothing from the budgets":          {budgets: budgets(evb("shop", "a", "db")), registrations: list(register(paced).Priority(20000), register("a.x")), pod: db, want: []string{"a.x", paced}},
		"a name under it is one like others":          {pod: db.Clone().Interceptors("a." + paced), want: []string{"a." + paced}},
		"a budget of a hook's name is no hook":        {budgets: budgets(evb("shop", "dump", "web")), pod: db.Clone().Interceptors("dump.shop.hooks.drawbridge.dev")},
		"a pod without labels":                        {budgets: budgets(evb("shop", "a", "*")), pod: builder.Pod("shop", "p"), want: []string{paced}},
		"a pod without the label":                     {budgets: budgets(evb("shop", "a", "db")), pod: builder.Pod("shop", "p")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			all := objects{budgets: tc.budgets, registrations: tc.registrations}
			checkResolve(t, budgeted(tc.budgets, tc.registrations...), all, tc.pod, tc.want, nil)
		})
	}
}

func TestBudgetsAreReadLive(t *testing.T) {
	pod := builder.Pod("shop", "p").Label("app", "db").Obj()
	cases := map[string]struct {
		off        bool
		known, now []*v1alpha1.EvictionBudget
		want       []string
	}{
		"one that is new":                   {now: budgets(evb("shop", "a", "db")), want: []string{paced}},
		"one that is gone":                  {known: budgets(evb("shop", "a", "db"))},
		"another generation":                {known: budgets(evb("shop", "a", "web")), now: budgets(evb("shop", "a", "db", generation(2))), want: []string{paced}},
		"another budget of that name":       {known: budgets(evb("shop", "a", "db")), now: budgets(evb("shop", "a", "web", func(b *v1alpha1.EvictionBudget) { b.UID = "2" }))},
		"those of the pod's namespace":      {known: budgets(evb("depot", "a", "db")), now: budgets(evb("depot", "a", "*"))},
		"not while budgets are not applied": {off: true, known: budgets(), now: budgets(evb("shop", "a", "db"))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := budgeted(tc.known)
			registry.options.Budgets = !tc.off
			lists := []string{"shop"}
			if tc.off {
				lists = nil
			}
			checkLive[*v1alpha1.EvictionBudgetList](t, registry, objects{budgets: tc.now}, pod, tc.want, lists)
		})
	}
}

func TestAnUnreadableAPIServerIsToldWhenBudgetsAreReadLive(t *testing.T) {
	broken := errors.New("no connection")
	live := objects{}.live(t, func(list client.ObjectList, _ string) error {
		if _, ok := list.(*v1alpha1.EvictionBudgetList); ok {
			return broken
		}
		return nil
	})
	_, _, err := budgeted(nil).ResolveLive(t.Context(), live, builder.Pod("shop", "p").Obj())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "list the budgets of namespace shop live") {
		t.Errorf("got error %v, want that the budgets cannot be listed", err)
	}
}

func TestRegistrationOfBudgets(t *testing.T) {
	info := func(guard v1alpha1.GuardPolicy) Info {
		return Info{Name: paced, Priority: 500, Guard: guard, Usernames: []string{ownAccount}}
	}
	db := builder.Pod("shop", "db-0").Label("app", "db").Obj()
	cases := map[string]struct {
		budgets []*v1alpha1.EvictionBudget
		pod     *corev1.Pod
		want    v1alpha1.GuardPolicy
	}{
		"the default":                       {budgets(evb("shop", "a", "db")), db, v1alpha1.GuardWhileEvacuating},
		"its own":                           {budgets(evb("shop", "a", "db", guardedBy(v1alpha1.GuardNever))), db, v1alpha1.GuardNever},
		"always, before never":              {budgets(evb("shop", "a", "db", guardedBy(v1alpha1.GuardAlways)), evb("shop", "b", "*", guardedBy(v1alpha1.GuardNever))), db, v1alpha1.GuardAlways},
		"always, after the default":         {budgets(evb("shop", "a", "db"), evb("shop", "b", "*", guardedBy(v1alpha1.GuardAlways))), db, v1alpha1.GuardAlways},
		"the default, after never":          {budgets(evb("shop", "a", "db", guardedBy(v1alpha1.GuardNever)), evb("shop", "b", "*")), db, v1alpha1.GuardWhileEvacuating},
		"others do not count":               {budgets(evb("shop", "a", "db", guardedBy(v1alpha1.GuardNever)), evb("shop", "b", "web", guardedBy(v1alpha1.GuardAlways)), evb("depot", "c", "*", guardedBy(v1alpha1.GuardAlways))), db, v1alpha1.GuardNever},
		"a bad selector does not count":     {budgets(evb("shop", "a", "db", guardedBy(v1alpha1.GuardNever)), evb("shop", "b", "Near", guardedBy(v1alpha1.GuardAlways))), db, v1alpha1.GuardNever},
		"none that is left: as if there is": {nil, db, v1alpha1.GuardWhileEvacuating},
		"none in a namespace without any":   {budgets(evb("kube-system", "a", "*", guardedBy(v1alpha1.GuardAlways))), builder.Pod("kube-system", "dns").Obj(), v1alpha1.GuardWhileEvacuating},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := budgeted(tc.budgets)
			got, found := registry.RegistrationOf(paced, tc.pod)
			if !found {
				t.Fatal("it is not found")
			}
			if diff := cmp.Diff(info(tc.want), got); diff != "" {
				t.Errorf("of the pod (-want +got):\n%s", diff)
			}
			whole, found := registry.Registration(paced)
			if !found {
				t.Fatal("it is not found without a pod")
			}
			if diff := cmp.Diff(info(v1alpha1.GuardWhileEvacuating), whole); diff != "" {
				t.Errorf("without a pod (-want +got):\n%s", diff)
			}
		})
	}
}

// Who asks for a pod gets of all others what there is without one.
func TestRegistrationOfOthers(t *testing.T) {
	registry := budgeted(budgets(evb("shop", "a", "*", guardedBy(v1alpha1.GuardAlways))), builder.EvictionInterceptor("a.x").ActedBy("ops", "a"))
	pod := builder.Pod("shop", "p").Obj()
	got, found := registry.RegistrationOf("a.x", pod)
	if want, _ := registry.Registration("a.x"); !found || cmp.Diff(want, got) != "" || got.Guard != v1alpha1.GuardWhileEvacuating {
		t.Errorf("found %t: %+v, want %+v", found, got, want)
	}
	if got, found := registry.RegistrationOf("none.x", pod); found {
		t.Errorf("found %+v, want nothing", got)
	}
}

func TestNobodyActsForBudgetsThatAreSwitchedOff(t *testing.T) {
	thief := builder.EvictionInterceptor(paced).ActedBy("shop", "thief")
	registry := hooked(nil, thief)
	pod := builder.Pod("shop", "p").Interceptors("a.x", paced).Obj()
	if got, found := registry.Registration(paced); found {
		t.Errorf("found %+v, want nothing", got)
	}
	if got, found := registry.RegistrationOf(paced, pod); found {
		t.Errorf("found %+v for the pod, want nothing", got)
	}
	for what, resolver := range map[string]Resolver{"the registry": registry, "the annotation": FromAnnotation()} {
		if got, err := resolver.Resolve(pod); err != nil || !slices.Equal(got, []string{"a.x"}) {
			t.Errorf("%s has %q, %v, want a.x", what, got, err)
		}
	}
	registry.options.Budgets = true
	if got, found := registry.Registration(paced); !found || !slices.Equal(got.Usernames, []string{ownAccount}) {
		t.Errorf("found %t: %+v, want us and no thief", found, got)
	}
}

func TestWhyTheNameOfBudgetsIsRefused(t *testing.T) {
	refused := compileEntry(builder.EvictionInterceptor(paced).Obj(), nil).refused
	want := &refusal{v1alpha1.ReasonReservedName, `metadata.name "budgets.drawbridge.dev" is not allowed: it is the interceptor of EvictionBudgets; choose another name. The registration selects no pods.`}
	if diff := cmp.Diff(want, refused, cmp.AllowUnexported(refusal{})); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

func BenchmarkBudgets(b *testing.B) {
	r, _ := benchRegistry()
	r.options.Budgets = true
	for i := range 20 {
		r.putBudget(evb("ns-1", fmt.Sprintf("b-%d", i), fmt.Sprintf("web-%d", 20-i)))
	}
	benchCovered(b, r)
}
