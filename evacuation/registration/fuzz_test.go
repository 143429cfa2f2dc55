package registration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// An expression is whatever somebody wrote into a registration or a hook, for which there
// is one variable more. It is refused in
// one line, or it answers for every pod, or fails on it, within its cost.
func FuzzMatchCondition(f *testing.F) {
	for _, source := range []string{
		"", "true", "object", "object.metadata.name == 'db-0'", "pod.metadata.name == object.metadata.name", "object.metadata.labels['app'] == 'db'", "!has(object.spec.nodeName)",
		"object.metadata.labels.all(k, k.all(c, c != 'x'))", "object.spec.volumes.exists(v, has(v.persistentVolumeClaim))",
		"namespaceObject.metadata.labels['team'] == 'a'", "object.metadata.name.matches('(a+)+$')", "1 / 0 == 1", "[1,2,3].map(x, x * x).sum() > 3",
		"object.spec.containers.size() > 0", "\x00", "'\xff'", "a.b.c", "true ? false : 1", "object.metadata.annotations.size() > 9223372036854775807",
	} {
		f.Add(source, "app", "db")
	}
	registrations, err := theExpressions()
	if err != nil {
		f.Fatal(err)
	}
	hooks, err := theHookExpressions()
	if err != nil {
		f.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	f.Fuzz(func(t *testing.T, source, label, value string) {
		compiled, err := hooks.compile(source)
		if _, errRegistration := registrations.compile(source); err != nil && errRegistration == nil {
			t.Errorf("%q is refused for hooks only: %v", source, err)
		}
		if err != nil {
			if text := oneLine(err); text == "" || strings.ContainsAny(text, "\n\r") {
				t.Errorf("%q is refused with %q", source, text)
			}
			return
		}
		pod := builder.Pod("shop", "db-0").Node("n1").Label(label, value).Obj()
		_, cost, err := compiled.evaluate(&celInput{pod: pod, namespace: namespace})
		if cost < 0 {
			t.Errorf("%q costs %d", source, cost)
		}
		if again, _, errAgain := compiled.evaluate(&celInput{pod: pod, namespace: namespace}); (err == nil) != (errAgain == nil) {
			t.Errorf("%q gives %v, and then %t and %v", source, err, again, errAgain)
		}
	})
}
