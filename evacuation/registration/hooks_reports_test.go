package registration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestReportsOfHooks(t *testing.T) {
	const dump = "dump.shop.hooks.drawbridge.dev"
	hook := builder.EvacuationHook
	cases := map[string]struct {
		from    *builder.EvacuationHookWrapper
		want    HookReport
		refused string
	}{
		"it covers pods":        {hook("shop", "dump").UID("1").Pods("app", "db"), HookReport{Generation: 1, UID: "1", MatchingPods: 1}, ""},
		"its expression is bad": {hook("shop", "dump").UID("1").Generation(2).When("nonsense"), HookReport{Generation: 2, UID: "1"}, v1alpha1.ReasonInvalidExpression},
		"its selector is bad":   {hook("shop", "dump").UID("1").PodsWhere("app", "In"), HookReport{Generation: 1, UID: "1"}, v1alpha1.ReasonInvalidSelector},
		"its expression fails": {hook("shop", "dump").UID("1").When("pod.metadata.labels['app'] == 'db'"),
			HookReport{Generation: 1, UID: "1", MatchingPods: 1, Failing: 1, Example: `pod shop/q: matchConditions[0] "c0": no such key: labels`}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := hooked(hooks(tc.from))
			status := &StatusReconciler{Registry: registry}
			if _, counted := status.Report(dump); counted {
				t.Error("pods are counted before the controller has started")
			}
			status.members, _ = counting(registry)
			status.members.see(pod("p", "db"))
			status.members.see(pod("q", ""))
			status.members.see(builder.Pod("depot", "p").Label("app", "db").Obj())
			status.members.drain()
			got, counted := status.Report(dump)
			if !counted {
				t.Fatal("its pods are not counted")
			}
			reason := ""
			if got.Refused != nil {
				reason = got.Refused.Reason
				if !strings.HasSuffix(got.Refused.Message, "The hook covers no pods.") {
					t.Errorf("refused with the message %q", got.Refused.Message)
				}
				got.Refused = nil
			}
			got.Example, _, _ = strings.Cut(got.Example, " (")
			if reason != tc.refused {
				t.Errorf("refused with the reason %q, want %q", reason, tc.refused)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNobodyReportsOthersAsHooks(t *testing.T) {
	registry := hooked(hooks(builder.EvacuationHook("shop", "dump")), builder.EvictionInterceptor("a.x"), builder.EvictionInterceptor("thief.shop.hooks.drawbridge.dev"), builder.EvictionInterceptor("shop.hooks.drawbridge.dev"))
	status := &StatusReconciler{Registry: registry}
	status.members, _ = counting(registry)
	for _, name := range []string{"a.x", "thief.shop.hooks.drawbridge.dev", "dump.depot.hooks.drawbridge.dev", "shop.hooks.drawbridge.dev", "shop/dump"} {
		if got, counted := status.Report(name); counted {
			t.Errorf("%s is reported as the hook %+v", name, got)
		}
	}
}

// Changes of hooks go to those who asked, those of registrations into the queue.
func TestHooksAreToldToTheirController(t *testing.T) {
	registry := hooked(hooks(builder.EvacuationHook("shop", "dump")), builder.EvictionInterceptor("a.x"))
	status := &StatusReconciler{Registry: registry}
	var told, queued []string
	status.OnHook(func(hook types.NamespacedName) { told = append(told, hook.String()) })
	status.members = newMembers(registry, status.notify(func(r reconcile.Request) { queued = append(queued, r.String()) }))
	registry.subscribe(status.members.changed)
	status.members.changed(change{})
	status.members.queue.Add(work{})
	steps := []struct {
		what         string
		do           func()
		told, queued []string
	}{
		{"all are counted", func() {}, []string{"shop/dump"}, []string{"/a.x"}},
		{"a pod before anybody has asked", func() { status.members.see(pod("p", "db")) }, nil, nil},
		{"a pod after a report", func() {
			status.Report("dump.shop.hooks.drawbridge.dev")
			status.members.see(pod("q", "db"))
		}, []string{"shop/dump"}, nil},
		{"a pod of another namespace", func() {
			status.Report("dump.shop.hooks.drawbridge.dev")
			status.members.see(builder.Pod("depot", "p").Obj())
		}, nil, nil},
		{"another generation", func() {
			registry.putHook(builder.EvacuationHook("shop", "dump").Generation(2).Obj())
		}, []string{"shop/dump"}, nil},
		{"a hook goes", func() { registry.remove("shop/dump") }, nil, nil},
	}
	for _, step := range steps {
		told, queued = nil, nil
		step.do()
		status.members.drain()
		if !slices.Equal(told, step.told) || !slices.Equal(queued, step.queued) {
			t.Errorf("%s: told %q, queued %q; want %q, %q", step.what, told, queued, step.told, step.queued)
		}
	}
	status.OnHook(nil)
	status.notify(nil)("shop/dump") // Nobody wants to know.
}

// A hook looks at the pods of its namespace and at those that its slot had before.
func TestAHookIsCountedInItsNamespace(t *testing.T) {
	registry := hooked(nil, builder.EvictionInterceptor("all.x"))
	m, _ := counting(registry)
	m.see(pod("p", "db"))
	m.see(builder.Pod("depot", "p").Obj())
	m.see(builder.Pod("depot", "q").Obj())
	m.drain()
	registry.remove("all.x")
	registry.putHook(builder.EvacuationHook("shop", "dump").Obj())
	m.drain()
	if got := m.counted(t, "shop/dump"); got != [2]int{1, 0} {
		t.Errorf("%v pods match and fail, want that of the namespace", got)
	}
	s := registry.snapshot()
	_, slot, _ := s.known("shop/dump")
	if got := len(m.concerned(s, slot)); got != 1 {
		t.Errorf("%d pods are looked at for the hook, want 1", got)
	}
}

// The statuses of hooks are written by others: ours leaves a hook's name alone.
func TestOurStatusIsNotThatOfAHook(t *testing.T) {
	w := newStatusWorld(t, builder.EvictionInterceptor("dump.shop.hooks.drawbridge.dev"))
	w.registry.putHook(builder.EvacuationHook("shop", "dump").Obj())
	w.status.members.drain()
	w.must("dump.shop.hooks.drawbridge.dev", 0)
	got := w.get("dump.shop.hooks.drawbridge.dev")
	if diff := cmp.Diff([]string{"Accepted=False ReservedName"}, conditions(got)); diff != "" {
		t.Errorf("conditions of the EvictionInterceptor (-want +got):\n%s", diff)
	}
	w.clock.Step(time.Hour)
	if report, counted := w.status.Report("dump.shop.hooks.drawbridge.dev"); !counted || report.Refused != nil {
		t.Errorf("the hook is reported as %+v, counted %t, want it accepted", report, counted)
	}
}
