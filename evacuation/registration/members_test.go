package registration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// counting returns the counter of a registry, in sync, and whom it has told.
func counting(registry *Registry) (*members, *[]string) {
	var told []string
	m := newMembers(registry, func(name string) { told = append(told, name) })
	registry.subscribe(m.changed)
	m.changed(change{})
	m.queue.Add(work{})
	m.drain()
	return m, &told
}

// drain does all the work there is.
func (m *members) drain() {
	for m.queue.Len() > 0 {
		m.next()
	}
}

func (m *members) counted(t *testing.T, name string) [2]int {
	t.Helper()
	r, ok := m.report(name)
	if !ok {
		t.Fatalf("the pods of %s are not counted", name)
	}
	return [2]int{r.matching, r.failing}
}

func pod(name, app string) *corev1.Pod {
	w := builder.Pod("shop", name)
	if app != "" {
		w.Label("app", app)
	}
	return w.Obj()
}

func TestPodsAreCounted(t *testing.T) {
	// fragile fails for pods without labels.
	const fragile = "object.metadata.labels['app'] == 'db'"
	registry := registryOf(builder.EvictionInterceptor("sel.x").Pods("app", "db"), builder.EvictionInterceptor("cel.x").When(fragile),
		builder.EvictionInterceptor("b.x").Namespaces("team", "b"), builder.EvictionInterceptor("bad.x").When("nonsense"))
	m, told := counting(registry)
	type counted = map[string][2]int
	steps := []struct {
		what string
		do   func()
		want counted
		told []string
	}{
		{"nobody", func() {}, counted{"sel.x": {}, "cel.x": {}, "b.x": {}, "bad.x": {}}, nil},
		{"a pod comes", func() { m.see(pod("p", "db")) }, counted{"sel.x": {1, 0}, "cel.x": {1, 0}}, []string{"cel.x", "sel.x"}},
		{"it comes again", func() { m.see(pod("p", "db")) }, counted{"sel.x": {1, 0}, "cel.x": {1, 0}}, nil},
		{"one for which an expression fails", func() { m.see(pod("q", "")) }, counted{"sel.x": {1, 0}, "cel.x": {1, 1}}, []string{"cel.x"}},
		{"it gets a label", func() { m.see(pod("q", "db")) }, counted{"sel.x": {2, 0}, "cel.x": {2, 0}}, []string{"cel.x", "sel.x"}},
		{"another namespace", func() { m.see(builder.Pod("depot", "p").Obj()) }, counted{"sel.x": {2, 0}, "cel.x": {2, 1}, "b.x": {1, 0}}, []string{"b.x", "cel.x"}},
		{"whose label changes", func() { registry.putNamespace(namespace("depot", "team", "c")) }, counted{"b.x": {}}, []string{"b.x"}},
		{"a pod goes", func() { m.gone(pod("p", "db")) }, counted{"sel.x": {1, 0}, "cel.x": {1, 1}}, []string{"cel.x", "sel.x"}},
		{"it goes unseen", func() {
			m.gone(toolscache.DeletedFinalStateUnknown{Key: "depot/p"})
		}, counted{"cel.x": {1, 0}}, []string{"cel.x"}},
		{"an expression is repaired", func() {
			registry.put(builder.EvictionInterceptor("bad.x").Generation(2).When("true").Obj())
		}, counted{"bad.x": {1, 0}}, []string{"bad.x"}},
		{"and broken again", func() {
			registry.put(builder.EvictionInterceptor("bad.x").Generation(3).When("1").Obj())
		}, counted{"bad.x": {}}, []string{"bad.x"}},
		{"another takes its slot", func() {
			registry.remove("sel.x")
			registry.put(builder.EvictionInterceptor("all.x").Obj())
		}, counted{"all.x": {1, 0}, "cel.x": {1, 0}}, []string{"all.x"}},
		{"never in kube-system", func() { m.see(builder.Pod("kube-system", "dns").Obj()) }, counted{"all.x": {1, 0}}, nil},
		{"a pod goes and comes back at once", func() {
			m.gone(pod("q", "db"))
			m.see(pod("q", "db"))
		}, counted{"all.x": {1, 0}, "cel.x": {1, 0}}, nil},
	}
	for _, step := range steps {
		*told = nil
		step.do()
		m.drain()
		slices.Sort(*told)
		if diff := cmp.Diff(step.told, *told); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", step.what, diff)
		}
		for name, want := range step.want {
			if diff := cmp.Diff(want, m.counted(t, name)); diff != "" {
				t.Errorf("%s: matching and failing pods of %s (-want +got):\n%s", step.what, name, diff)
			}
		}
	}
	if _, ok := m.report("sel.x"); ok {
		t.Error("a registration that is gone is still reported")
	}
	if len(m.pods) != 2 {
		t.Errorf("%d pods are remembered, want 2", len(m.pods))
	}
}

// Nobody is told again before he has asked, however much happens.
func TestNobodyIsToldTwice(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("a.x"))
	m, told := counting(registry)
	m.counted(t, "a.x")
	*told = nil
	for i := range 100 {
		m.see(pod(fmt.Sprint(i), ""))
		m.drain()
	}
	if len(*told) != 1 {
		t.Errorf("told %d times, want once", len(*told))
	}
	if got := m.counted(t, "a.x"); got != [2]int{100, 0} {
		t.Errorf("counted %v, want 100", got)
	}
	m.gone(pod("0", ""))
	m.drain()
	if len(*told) != 2 {
		t.Errorf("told %d times, want once more after the question", len(*told))
	}
}

func TestNothingIsReportedBeforeAllPodsAreSeen(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("a.x"))
	var told []string
	m := newMembers(registry, func(name string) { told = append(told, name) })
	m.changed(change{})
	m.see(pod("p", ""))
	m.drain()
	if _, ok := m.report("a.x"); ok || len(told) > 0 {
		t.Errorf("reported %v, told %q", ok, told)
	}
	m.queue.Add(work{})
	m.drain()
	if got := m.counted(t, "a.x"); got != [2]int{1, 0} || !slices.Equal(told, []string{"a.x"}) {
		t.Errorf("counted %v, told %q", got, told)
	}
}

func TestTheExampleIsTheFirstPodByName(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("a.x").When("object.metadata.annotations['k'] == ''"))
	m, _ := counting(registry)
	for _, name := range []string{"c", "a", "b"} {
		m.see(pod(name, ""))
	}
	m.drain()
	r, _ := m.report("a.x")
	const want = `pod shop/a: matchConditions[0] "c0": no such key: annotations`
	if r.failing != 3 || !strings.HasPrefix(r.example, want) {
		t.Errorf("%d failing, for example %s; want 3, %s", r.failing, r.example, want)
	}
}

// However many pods there are at the start, none of them is queued.
func TestTheFirstPodsAreCountedByRegistration(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("sel.x").Pods("app", "db"))
	m := newMembers(registry, func(string) {})
	registry.subscribe(m.changed)
	m.loading = true
	m.see(pod("p", "db"))
	m.see(pod("q", "db"))
	m.see(pod("r", ""))
	registry.put(builder.EvictionInterceptor("late.x").Pods("app", "db").Obj())
	m.gone(pod("q", "db"))
	if got := m.queue.Len(); got != 1 {
		t.Errorf("%d things are queued, want only the pod that went", got)
	}
	m.loaded()
	m.see(pod("s", "db"))
	m.drain()
	for _, name := range []string{"sel.x", "late.x"} {
		if got := m.counted(t, name); got != [2]int{2, 0} {
			t.Errorf("%s: %v pods match and fail, want p and s", name, got)
		}
	}
}

// As in a ValidatingAdmissionPolicy a condition that is false guards those that
// would fail, wherever it stands.
func TestAConditionGuardsAnother(t *testing.T) {
	registry := registryOf(
		builder.EvictionInterceptor("a.x").When("object.metadata.labels['app'] == 'db'", "has(object.metadata.labels)"),
		builder.EvictionInterceptor("b.x").When("has(object.metadata.labels)", "object.metadata.labels['app'] == 'db'"))
	m, _ := counting(registry)
	m.see(pod("p", ""))
	m.drain()
	for _, name := range []string{"a.x", "b.x"} {
		if got := m.counted(t, name); got != [2]int{} {
			t.Errorf("%s: %v pods match and fail, want none", name, got)
		}
	}
}

// Counting by changes comes to what counting all gives.
func TestCountsStayTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	registry := registryOf()
	m, _ := counting(registry)
	pods := map[string]*corev1.Pod{}
	for generation := range int64(3000) {
		name := pick("a", "b", "c", "d") + ".x"
		switch random.IntN(10) {
		case 8:
			w := builder.EvacuationHook(pick("shop", "depot"), pick("a", "b")).Generation(generation)
			switch random.IntN(3) {
			case 0:
				w.Pods("app", pick("1", "2"))
			case 1:
				w.When("pod.metadata.labels['app'] == '1'")
			default:
			}
			registry.putHook(w.Obj())
		case 9:
			registry.remove(pick("shop", "depot") + "/" + pick("a", "b"))
		case 0:
			w := builder.EvictionInterceptor(name).Generation(generation)
			switch random.IntN(4) {
			case 0:
				w.Pods("app", pick("1", "2"))
			case 1:
				w.When("object.metadata.labels['app'] == '1'")
			case 2:
				w.Namespaces("team", pick("a", "b"))
			default:
			}
			registry.put(w.Obj())
		case 1:
			registry.remove(name)
		case 2:
			registry.putNamespace(namespace(pick("shop", "depot"), "team", pick("a", "b")))
		case 3, 4:
			key := pick("p", "q", "r", "s")
			if p := pods[key]; p != nil {
				m.gone(p)
				delete(pods, key)
			}
		default:
			key := pick("p", "q", "r", "s")
			w := builder.Pod(map[string]string{"p": "shop", "q": "shop", "r": "depot", "s": "depot"}[key], key)
			if app := pick("", "1", "2"); app != "" {
				w.Label("app", app)
			}
			pods[key] = w.Obj()
			m.see(pods[key])
		}
		if random.IntN(3) == 0 {
			continue // Several changes come together.
		}
		m.drain()
		s := registry.snapshot()
		for name, slot := range s.bySource {
			var want [2]int
			for _, p := range pods {
				match, failure := registry.ask(s, slot, p)
				want[0] += delta(false, match)
				want[1] += delta(false, failure != nil)
			}
			if got := m.counted(t, name); got != want {
				t.Fatalf("after %d changes: %s has %v pods, want %v", generation, name, got, want)
			}
		}
	}
}

// during is a selector that does something while a pod is looked at.
type during struct {
	labels.Selector
	do *func()
}

func (d during) Matches(l labels.Labels) bool {
	do := *d.do
	*d.do = func() {}
	do()
	return d.Selector.Matches(l)
}

// watched is a registry of a.x, and what is done when its selector is asked next.
func watched(t *testing.T) (*Registry, *func()) {
	t.Helper()
	do := func() {}
	registry := registryOf(builder.EvictionInterceptor("a.x").Pods("app", "db"))
	e, _, _ := registry.snapshot().known("a.x")
	e.pods = during{e.pods, &do}
	return registry, &do
}

func TestAPodThatGoesWhileItIsLookedAtIsNotCounted(t *testing.T) {
	registry, do := watched(t)
	m, _ := counting(registry)
	*do = func() { m.gone(pod("p", "db")) }
	m.see(pod("p", "db"))
	m.drain()
	if got := m.counted(t, "a.x"); got != [2]int{} || len(m.pods) != 0 {
		t.Errorf("counted %v, %d pods remembered; want none", got, len(m.pods))
	}
}

// A registration that is to be counted again for the same generation does not
// swallow what the look at a pod would find.
func TestCountingAgainSwallowsNoNews(t *testing.T) {
	registry := registryOf(builder.EvictionInterceptor("a.x").Pods("app", "db"))
	m, told := counting(registry)
	m.see(pod("p", ""))
	m.drain()
	m.counted(t, "a.x")
	*told = nil
	m.changed(change{registration: "a.x"})
	m.see(pod("p", "db"))
	m.drain()
	if !slices.Equal(*told, []string{"a.x"}) {
		t.Errorf("told %q, want a.x", *told)
	}
}
