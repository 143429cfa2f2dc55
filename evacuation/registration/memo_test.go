package registration

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// What the conditions of a registration read decides what a memo may remember.
func TestWhatConditionsRead(t *testing.T) {
	for name, test := range map[string]struct {
		expression string
		want       parts
	}{
		"a label":                  {"'app' in object.metadata.labels && object.metadata.labels['app'] == 'web'", parts{labels: true}},
		"whether there are labels": {"has(object.metadata.labels)", parts{labels: true}},
		"an annotation":            {"object.metadata.?annotations['x'].orValue('') == 'y'", parts{annotations: true}},
		"its owners":               {"object.metadata.ownerReferences.exists(o, o.kind == 'ReplicaSet')", parts{owners: true}},
		"the namespace":            {"namespaceObject != null", parts{namespace: true}},
		"nothing":                  {"true", parts{}},
		"the name":                 {"object.metadata.name == 'db-0'", parts{more: true}},
		"the metadata":             {"has(object.metadata) && 'a' in object.metadata.labels", parts{labels: true, more: true}},
		"the status":               {"object.status.phase == 'Running' && has(object.metadata.labels)", parts{labels: true, more: true}},
		"a node":                   {"object.spec.nodeName == 'a'", parts{more: true}},
		"the whole pod":            {"[object].exists(p, p.metadata.labels['a'] == 'b')", parts{more: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := compileEntry(builder.EvictionInterceptor("a.example.com").When(test.expression).Obj(), nil)
			if e.refused != nil {
				t.Fatal(e.refused.message)
			}
			if diff := cmp.Diff(test.want, e.reads, cmp.AllowUnexported(parts{})); diff != "" {
				t.Errorf("reads (-want +got):\n%s", diff)
			}
		})
	}
	hook := compileHook(builder.EvacuationHook("shop", "flush").When("pod.metadata.name == 'a'").Obj(), "")
	if hook.refused != nil || !hook.reads.more {
		t.Errorf("a hook that reads the pod's name: %+v, refused %v", hook.reads, hook.refused)
	}
}

// A memo answers as the conditions do, whoever was asked about before.
func TestAMemoAnswersAsTheConditions(t *testing.T) {
	sources := []string{
		"has(object.metadata.labels) && 'app' in object.metadata.labels && object.metadata.labels['app'] == 'web'",
		"object.metadata.labels['app'] == 'web'", // Fails for a pod without.
		"object.metadata.?annotations['note'].orValue('') == 'web'",
		"has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == 'StatefulSet')",
		"object.metadata.name.endsWith('1')",
		"namespaceObject != null && has(namespaceObject.metadata.labels) && 'env' in namespaceObject.metadata.labels",
		"namespaceObject == null || has(object.metadata.ownerReferences)",
	}
	var entries []*entry
	for i, source := range sources {
		e := compileEntry(builder.EvictionInterceptor(fmt.Sprintf("i%d.example.com", i)).When(source).Obj(), nil)
		if e.refused != nil {
			t.Fatal(e.refused.message)
		}
		entries = append(entries, e)
	}
	views := []*namespaceView{nil}
	for _, object := range []*corev1.Namespace{namespace("a"), namespace("a", "env", "prod"), namespace("b", "env", "")} {
		views = append(views, &namespaceView{object: object, text: textOf(object)})
	}
	random := rand.New(rand.NewPCG(1, 2)) // The same in every run.
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	m := newMemo()
	for n := range 20_000 {
		w := builder.Pod("a", pick("db-0", "db-1"))
		for _, add := range []func(){
			func() { w.Label("app", pick("web", "we", "b")) },
			func() { w.Label(pick("ap", "app", "b"), pick("web", "pweb")) },
			func() { w.Annotation("note", pick("web", "")) },
			func() { w.OwnedBy(pick("StatefulSet", "ReplicaSet"), pick("x", "y")) },
		} {
			if random.IntN(2) == 0 {
				add()
			}
		}
		in := views[random.IntN(len(views))].input(w.Obj())
		e := entries[random.IntN(len(entries))]
		got, gotErr := m.matchConditions(e, &in)
		want, wantErr := e.matchConditions(&in)
		if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("pod %d and %s: %v (%v), want %v (%v)\n%+v", n, sources[e.id-entries[0].id], got, gotErr, want, wantErr, w.ObjectMeta)
		}
	}
	if len(m.young) == 0 {
		t.Error("nothing was remembered")
	}
}

// However many pods there are, the memo keeps to its size, and what is asked for often stays.
func TestAMemoIsBounded(t *testing.T) {
	e := compileEntry(builder.EvictionInterceptor("a.example.com").When("'app' in object.metadata.labels").Obj(), nil)
	m := newMemo()
	ask := func(app string) {
		in := (*namespaceView)(nil).input(builder.Pod("a", "b").Label("app", app).Obj())
		if match, err := m.matchConditions(e, &in); !match || err != nil {
			t.Fatalf("%v, %v", match, err)
		}
	}
	has := func(app string) bool {
		in := (*namespaceView)(nil).input(builder.Pod("a", "b").Label("app", app).Obj())
		key, ok := e.reads.key(nil, e.id, &in)
		_, known := m.get(key)
		return ok && known
	}
	for i := range 5 * memoSize {
		ask(fmt.Sprint(i))
		ask("often")
		if len(m.young) > memoSize || len(m.old) > memoSize {
			t.Fatalf("%d and %d answers", len(m.young), len(m.old))
		}
	}
	if !has("often") || has("0") {
		t.Errorf("often is known: %v, and the first: %v", has("often"), has("0"))
	}
	long := make([]byte, memoText)
	ask(string(long))
	if has(string(long)) {
		t.Error("a long text is remembered")
	}
}
