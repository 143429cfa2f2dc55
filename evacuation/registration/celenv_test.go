package registration

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/internal/podcache"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func compiler(t *testing.T) *expressions {
	t.Helper()
	e, err := theExpressions()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// fill sets every field below v to something that is not empty.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Type() {
	case reflect.TypeFor[metav1.Time]():
		v.Set(reflect.ValueOf(metav1.NewTime(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))))
		return
	case reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("nothing fills a %s", v.Type())
	}
}

// What the cache keeps can be read and is there, what it drops does not compile:
// field by field, for every field that a pod has.
func TestExpressionsReadWhatTheCacheKeeps(t *testing.T) {
	full := &corev1.Pod{}
	fill(t, reflect.ValueOf(full).Elem())
	cached, err := podcache.Transform(full)
	if err != nil {
		t.Fatal(err)
	}
	w := walker{t: t, compiler: compiler(t), pod: full}
	before, after := reflect.ValueOf(full).Elem(), reflect.ValueOf(cached).Elem()
	for _, part := range []string{"ObjectMeta", "Spec", "Status"} {
		path := "object." + map[string]string{"ObjectMeta": "metadata", "Spec": "spec", "Status": "status"}[part]
		w.walk(path, before.FieldByName(part), after.FieldByName(part))
	}
	if w.kept < 60 || w.dropped < 100 {
		t.Errorf("looked at %d kept and %d dropped fields, which cannot be all", w.kept, w.dropped)
	}
	for _, path := range []string{"object.kind", "object.metadata.nothing", "object.nothing"} {
		w.drops(path)
	}
}

type walker struct {
	t             *testing.T
	compiler      *expressions
	pod           *corev1.Pod
	kept, dropped int
}

// walk goes along the fields of the full value; the cached one tells which are kept.
func (w *walker) walk(path string, full, cached reflect.Value) {
	w.t.Helper()
	switch full.Kind() {
	case reflect.Pointer:
		w.walk(path, full.Elem(), cached.Elem())
	case reflect.Slice:
		w.walk(path+"[0]", full.Index(0), cached.Index(0))
	case reflect.Struct:
		if full.Type() == reflect.TypeFor[metav1.Time]() {
			return
		}
		for i := range full.NumField() {
			name, _, _ := strings.Cut(full.Type().Field(i).Tag.Get("json"), ",")
			switch {
			case full.Type().Field(i).Anonymous:
				w.walk(path, full.Field(i), cached.Field(i))
			case cached.Field(i).IsZero():
				w.drops(path + "." + name)
			default:
				w.keeps(path + "." + name)
				w.walk(path+"."+name, full.Field(i), cached.Field(i))
			}
		}
	default:
	}
}

func (w *walker) keeps(path string) {
	w.t.Helper()
	w.kept++
	compiled, err := w.compiler.compile("has(" + path + ")")
	if err != nil {
		w.t.Errorf("%s is kept but does not compile: %v", path, err)
		return
	}
	if match, _, err := compiled.evaluate(&celInput{pod: w.pod}); !match {
		w.t.Errorf("%s is kept but not there: %v", path, err)
	}
}

func (w *walker) drops(path string) {
	w.t.Helper()
	w.dropped++
	if _, err := w.compiler.compile("has(" + path + ")"); err == nil {
		w.t.Errorf("%s is dropped but compiles", path)
	}
}

func TestExpressions(t *testing.T) {
	pod := builder.Pod("shop", "db-0").Label("app", "db").Annotation("owner", "ann").Node("n1").Priority("high", 1000).
		OwnedBy("StatefulSet", "db").Phase(corev1.PodRunning).Ready().Created(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)).Obj()
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}}
	cases := map[string]struct {
		expression string
		noWhere    bool // The namespace is not known.
		want       bool
		wantError  string
	}{
		"a label":                             {expression: "object.metadata.labels['app'] == 'db'", want: true},
		"another value":                       {expression: "object.metadata.labels['app'] == 'web'"},
		"a label that may be missing":         {expression: "has(object.metadata.labels) && 'tier' in object.metadata.labels && object.metadata.labels['tier'] == 'x'"},
		"a label that is missing":             {expression: "object.metadata.labels['tier'] == 'x'", wantError: "no such key: tier"},
		"a field that is missing":             {expression: "object.metadata.deletionTimestamp != ''", wantError: "no such key: deletionTimestamp"},
		"the namespace's name, a CEL keyword": {expression: "object.metadata.namespace == 'shop'", want: true},
		"an owner":                            {expression: "object.metadata.ownerReferences.exists(o, o.kind == 'StatefulSet' && o.controller)", want: true},
		"the kind of a volume":                {expression: "object.spec.volumes.exists(v, has(v.persistentVolumeClaim))", want: true},
		"a kind no volume has":                {expression: "object.spec.volumes.exists(v, has(v.hostPath))"},
		"a number":                            {expression: "object.spec.priority >= 1000", want: true},
		"a condition":                         {expression: "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", want: true},
		"a time is a string":                  {expression: "timestamp(object.metadata.creationTimestamp) < timestamp('2026-06-01T13:00:00Z')", want: true},
		"a label of the namespace":            {expression: "namespaceObject.metadata.labels['team'] == 'a'", want: true},
		"annotations the namespace lacks":     {expression: "has(namespaceObject.metadata.annotations)"},
		"an unknown namespace is null":        {expression: "namespaceObject == null", noWhere: true, want: true},
		"a known one is not":                  {expression: "namespaceObject != null", want: true},
		"the libraries of Kubernetes":         {expression: "object.metadata.name.find('[0-9]+') == '0' && quantity('1Ki').isGreaterThan(quantity('1k'))", want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			compiled, err := compiler(t).compile(tc.expression)
			if err != nil {
				t.Fatal(err)
			}
			in := &celInput{pod: pod, namespace: namespace}
			if tc.noWhere {
				in.namespace = nil
			}
			got, cost, err := compiled.evaluate(in)
			if got != tc.want || (err != nil) != (tc.wantError != "") || err != nil && !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("got %v, %v, want %v, error %q", got, err, tc.want, tc.wantError)
			}
			if cost == 0 && tc.wantError == "" && !strings.HasPrefix(tc.expression, "has(") {
				t.Error("it cost nothing")
			}
		})
	}
}

func TestExpressionsThatDoNotCompile(t *testing.T) {
	cases := map[string]struct{ expression, want string }{
		"no CEL":             {"object.metadata.", "line 1, column 17: Syntax error"},
		"another type":       {"object.metadata.name", "it must be of type bool, but is string"},
		"nothing definite":   {"dyn(true)", "it must be of type bool, but is dyn"},
		"a dropped field":    {"object.spec.containers.size() == 1", "line 1, column 12: undefined field 'containers'"},
		"inside of a volume": {"object.spec.volumes.exists(v, v.persistentVolumeClaim.claimName == 'x')", "undefined field 'claimName'"},
		"no such variable":   {"request.operation == 'DELETE'", "undeclared reference to 'request'"},
		"the second line":    {"true &&\n  nothing", "line 2, column 3: undeclared reference to 'nothing'"},
		"too dear": {
			"object.metadata.annotations.all(a, object.metadata.annotations.all(b, object.metadata.annotations.all(c, object.metadata.annotations[a].contains(object.metadata.annotations[b] + c))))",
			"more than the 10000000 allowed",
		},
		"of unknown cost": {"dyn(object).spec.containers.all(c, c.image.matches('a.*'))", "it may cost any amount"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := compiler(t).compile(tc.expression)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %q, want one line with %q", err, tc.want)
			}
		})
	}
}

// The estimate goes by pods of a common size; a larger one is stopped at run time.
func TestCostIsLimitedAtRunTime(t *testing.T) {
	const loops = "object.metadata.labels.all(a, object.metadata.labels.all(b, (a + b).contains('x') || true))"
	compiled, err := compiler(t).compile(loops)
	if err != nil {
		t.Fatal(err)
	}
	pod := builder.Pod("shop", "db-0")
	for i := range 2000 {
		pod.Label(fmt.Sprintf("label-%d", i), "v")
	}
	if _, _, err := compiled.evaluate(&celInput{pod: pod.Obj()}); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("got error %v, want the cost limit", err)
	}
}

// Each condition stays within the limit of one, all of them do not.
func TestCostOfAllConditionsIsLimited(t *testing.T) {
	pod := builder.Pod("shop", "db-0")
	for i := range 250 {
		pod.Label(fmt.Sprintf("label-%d", i), "v")
	}
	const loops = "object.metadata.labels.all(a, object.metadata.labels.all(b, a + b != ''))"
	e := compileEntry(builder.EvictionInterceptor("a.example.com").When(loops).Obj(), nil)
	if match, err := e.matchConditions(&celInput{pod: pod.Obj()}); !match {
		t.Fatalf("one condition: got %v, %v, want a match", match, err)
	}
	many := builder.EvictionInterceptor("a.example.com")
	for range 20 {
		many.When(loops)
	}
	e = compileEntry(many.Obj(), nil)
	match, err := e.matchConditions(&celInput{pod: pod.Obj()})
	if match || err == nil || !strings.Contains(err.Error(), "the conditions together cost more than the 2500000 allowed") {
		t.Errorf("twenty conditions: got %v, %v", match, err)
	}
}
