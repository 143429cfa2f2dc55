//go:build unix

package preemption

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// annotate is a patch of the annotation; a null takes it away.
func annotate(value string) client.Patch {
	if value != "null" {
		value = fmt.Sprintf("%q", value)
	}
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AllowDisruptionAnnotation, value))
}

// refused fails the test unless the error says all of this.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Error("it was accepted")
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error: %v\nwant in it: %s", err, part)
		}
	}
}

func TestPriorityClassesAreChecked(t *testing.T) {
	s := newScene(t, 0)
	const number = "must be an int32 in plain decimal digits, for example 100000; "
	const high = "must not be above 2000000000, the priority of system-cluster-critical"
	cases := map[string]struct{ value, want string }{
		"a number":                      {value: "100000"},
		"the smallest int32":            {value: "-2147483648"},
		"system-cluster-critical's":     {value: "2000000000"},
		"above system-cluster-critical": {"2000000001", high},
		"the largest int32":             {"2147483647", high},
		"no int32":                      {"2147483648", number + `"2147483648" is none`},
		"below int32":                   {"-2147483649", number + `"-2147483649" is none`},
		"a word":                        {"high", number + `"high" is none`},
		"empty":                         {"", number + `"" is none`},
		"a leading zero":                {"01", number + `"01" is none`},
		"minus zero":                    {"-0", number + `"-0" is none`},
		"a plus sign":                   {"+1", number + `"+1" is none`},
		"very many digits":              {strings.Repeat("9", 100), number + `"` + strings.Repeat("9", 60) + `" is none`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			class := &schedulingv1.PriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Annotations: map[string]string{v1alpha1.AllowDisruptionAnnotation: tc.value}}, Value: 1,
			}
			err := admin.Create(t.Context(), class, client.DryRunAll)
			if tc.want != "" {
				refused(t, err, tc.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a change of a class", func(t *testing.T) {
		class := s.class("checked", 1, "5")
		refused(t, admin.Patch(t.Context(), class, annotate("x")), number+`"x" is none`)
		if err := admin.Patch(t.Context(), class, annotate("6")); err != nil {
			t.Error(err)
		}
		if err := admin.Patch(t.Context(), class, annotate("null")); err != nil {
			t.Error(err)
		}
	})
}

func TestTheAPIServerStampsPods(t *testing.T) {
	s := newScene(t, 1)
	guarded, plain := s.class("guarded", 1, "77"), s.class("plain", 2, "")
	forged := func(w *builder.PodWrapper) { w.Annotation(v1alpha1.AllowDisruptionAnnotation, "5") }
	other := func(w *builder.PodWrapper) { w.Annotation("other", "x") }

	// scene.pod checks the stamp.
	s.pod("guarded", guarded)
	s.pod("forged", guarded, forged)
	s.pod("with-other-annotations", guarded, other)
	s.pod("plain-forged", plain, forged, other)
	none := builder.Pod(s.namespace, "without-a-class").Annotation(v1alpha1.AllowDisruptionAnnotation, "5").Obj()
	s.create(none)
	if got, ok := none.Annotations[v1alpha1.AllowDisruptionAnnotation]; ok {
		t.Errorf("a pod without a class keeps %q", got)
	}
}

func TestNobodyChangesTheStamp(t *testing.T) {
	s := newScene(t, 1)
	const want = "cannot be changed: it is written when the pod is created, from its PriorityClass"
	guarded := s.running(s.pod("guarded", s.class("guarded", 1, "77")))
	plain := s.running(s.pod("plain", s.class("plain", 2, "")))
	cases := map[string]func(context.Context) error{
		"another value": func(ctx context.Context) error { return admin.Patch(ctx, guarded.DeepCopy(), annotate("5")) },
		"no value":      func(ctx context.Context) error { return admin.Patch(ctx, guarded.DeepCopy(), annotate("null")) },
		"a new value":   func(ctx context.Context) error { return admin.Patch(ctx, plain.DeepCopy(), annotate("5")) },
		"by way of the status": func(ctx context.Context) error {
			return admin.Status().Patch(ctx, plain.DeepCopy(), annotate("5"))
		},
		"by way of a binding": func(ctx context.Context) error {
			pod := builder.Pod(s.namespace, "bound").Change(func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }).Obj()
			if err := admin.Create(ctx, pod); err != nil {
				return err
			}
			return admin.SubResource("binding").Create(ctx, pod, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Annotations: map[string]string{v1alpha1.AllowDisruptionAnnotation: "5"}},
				Target:     corev1.ObjectReference{Kind: "Node", Name: s.nodes[0]},
			})
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) { refused(t, change(t.Context()), want) })
	}
	t.Run("anything else may be changed", func(t *testing.T) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"other":"y"}}}`))
		if err := admin.Patch(t.Context(), guarded, patch); err != nil {
			t.Error(err)
		}
	})
}
