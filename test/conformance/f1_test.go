package conformance

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// F1 CREATE.
func TestConformance_F1(t *testing.T) {
	ns := kube.Namespace(t)
	c := asDrawbridge(t)

	create := map[string]struct {
		change change
		want   string
	}{
		"1 generateName is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.GenerateName = "er-" },
			want:   "metadata.generateName is not supported",
		},
		"1 generateName without a name is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.Name, er.GenerateName = "", "er-" },
			want:   "metadata.generateName is not supported",
		},
		"2 a name that is not the UID of the pod is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.Name = "web-1" },
			want:   "metadata.name must be equal to spec.target.pod.uid",
		},
		"2 the UID of the pod as the name is accepted": {
			change: func(*v1alpha1.EvictionRequest) {},
			want:   accepted,
		},
		"5 a target without a member is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod = nil },
			want:   "pod must be set",
		},
		"6 an empty pod name is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod.Name = "" },
			want:   "spec.target.pod.name",
		},
		"6 a pod name no pod can have is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod.Name = "Web_1" },
			want:   "name must be the name of a pod",
		},
		"7 an empty pod UID is refused": {
			change: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod.UID = "" },
			want:   "spec.target.pod.uid",
		},
		"8 a request that nobody wants is refused": {
			change: requesters(),
			want:   "requesters must have at least one item",
		},
		"9 100 requesters are accepted": {
			change: requesters(manyNames(v1alpha1.MaxRequesters)...),
			want:   accepted,
		},
		"9 101 requesters are refused": {
			change: requesters(manyNames(v1alpha1.MaxRequesters + 1)...),
			want:   "spec.requesters: Too many: 101: must have at most 100 items",
		},
		"10 duplicate requesters are refused": {
			change: requesters("a.example.com", "b.example.com", "a.example.com"),
			want:   "Duplicate value",
		},
		"14 a request for a pod that does not exist is accepted": {
			change: func(er *v1alpha1.EvictionRequest) { er.Spec.Target.Pod.Name = "never-existed" },
			want:   accepted,
		},
	}
	for name, tc := range create {
		t.Run(name, func(t *testing.T) {
			checkCreate(t, c, newRequest(ns, tc.change), tc.want)
		})
	}

	raw := map[string]struct {
		change func(object map[string]any)
		want   string
	}{
		"4 a request without spec is refused": {
			change: func(object map[string]any) { delete(object, "spec") },
			want:   "spec: Required value",
		},
		"5 a spec without target is refused": {
			change: func(object map[string]any) { delete(object["spec"].(map[string]any), "target") },
			want:   "spec.target: Required value",
		},
		"6 a missing pod name is refused": {
			change: func(object map[string]any) { delete(podReference(object), "name") },
			want:   "spec.target.pod.name: Required value",
		},
		"7 a missing pod UID is refused": {
			change: func(object map[string]any) { delete(podReference(object), "uid") },
			want:   "spec.target.pod.uid: Required value",
		},
		"8 an empty list of requesters is refused": {
			change: func(object map[string]any) { object["spec"].(map[string]any)["requesters"] = []any{} },
			want:   "requesters must have at least one item",
		},
	}
	for name, tc := range raw {
		t.Run(name, func(t *testing.T) {
			checkCreate(t, c, newRawRequest(t, ns, tc.change), tc.want)
		})
	}

	t.Run("3 a second request for a pod already exists", func(t *testing.T) {
		er := createRequest(t, c, ns)
		second := newRequest(ns)
		second.Name, second.Spec.Target.Pod.UID = er.Name, er.Spec.Target.Pod.UID
		if err := c.Create(t.Context(), second); !apierrors.IsAlreadyExists(err) {
			t.Fatalf("want AlreadyExists, got: %v", err)
		}
		all := &v1alpha1.EvictionRequestList{}
		if err := c.List(t.Context(), all, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, stored := range all.Items {
			if stored.Spec.Target.Pod.UID == er.Spec.Target.Pod.UID {
				n++
			}
		}
		if n != 1 {
			t.Errorf("want 1 request for the pod, have %d", n)
		}
	})

	t.Run("11 requester names are fully qualified domain names", func(t *testing.T) {
		for name, want := range domainNames("spec.requesters[0].name") {
			t.Run(fmt.Sprintf("%.40q", name), func(t *testing.T) {
				checkCreate(t, c, newRequest(ns, requesters(name)), want)
			})
		}
	})

	t.Run("13 status is dropped on create", func(t *testing.T) {
		er := newRequest(ns, targets(interceptorA, imperative), active(interceptorA), func(er *v1alpha1.EvictionRequest) {
			er.Status.ObservedGeneration = 1
		})
		if err := c.Create(t.Context(), er); err != nil {
			t.Fatal(err)
		}
		stored := getRaw(t, c, client.ObjectKeyFromObject(er))
		if status, ok := stored["status"]; ok {
			t.Errorf("want no stored status, got %v", status)
		}
	})
}

// podReference is spec.target.pod.
func podReference(object map[string]any) map[string]any {
	return object["spec"].(map[string]any)["target"].(map[string]any)["pod"].(map[string]any)
}

// requesters sets spec.requesters.
func requesters(names ...string) change {
	return func(er *v1alpha1.EvictionRequest) {
		er.Spec.Requesters = nil
		for _, name := range names {
			er.Spec.Requesters = append(er.Spec.Requesters, v1alpha1.Requester{Name: name})
		}
	}
}

// manyNames are n different domain names.
func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("r%d.example.com", i)
	}
	return names
}

// domainNames maps names to what a field that takes only fully qualified domain
// names must answer.
func domainNames(field string) map[string]string {
	malformed := field + ": Invalid value"
	label := strings.Repeat("x", 63)
	long := strings.Join([]string{label, label, label, label}, ".") // 255 characters
	return map[string]string{
		"foo.example.com":      accepted,
		"a.b":                  accepted,
		"1.2":                  accepted,
		"x-1.example.com":      accepted,
		label + ".example.com": accepted,
		long[:253]:             accepted,
		"":                     field,
		"foo":                  malformed,
		"Foo.example.com":      malformed,
		"foo_x.example.com":    malformed,
		"foo..com":             malformed,
		".foo.com":             malformed,
		"foo.com.":             malformed,
		"-foo.example.com":     malformed,
		"foo-.example.com":     malformed,
		"foo.example.com\n":    malformed,
		"x" + label + ".com":   malformed,
		long[:254]:             field + ": Too long",
	}
}

// Statement 12: the stand-in for the pod's list, where interceptor names are
// admitted, is the annotation of a pod.
func TestConformance_F1_PodAnnotation(t *testing.T) {
	ns := kube.Namespace(t)
	c := asAdmin(t)

	cases := map[string]struct {
		value string
		want  string
	}{
		"12 reserved names are refused": {
			value: "a.example.com,deployment.apps.k8s.io",
			want:  `must not name "deployment.apps.k8s.io"`,
		},
		"12 reserved names of the other domain are refused": {
			value: "x.kubernetes.io",
			want:  `must not name "x.kubernetes.io"`,
		},
		"12 the reserved domain itself is refused": {
			value: "k8s.io",
			want:  `must not name "k8s.io"`,
		},
		"12 a name that only ends in the same letters is accepted": {
			value: "notk8s.io,a.mykubernetes.io,k8s.io.example.com",
			want:  accepted,
		},
		"12 the default interceptor is refused": {
			value: "a.example.com,imperative-eviction.k8s.io",
			want:  "must not name imperative-eviction.k8s.io: it always comes last",
		},
		"fifteen names are accepted": {
			value: strings.Join(manyNames(v1alpha1.MaxPodInterceptors), ","),
			want:  accepted,
		},
		"sixteen names are refused": {
			value: strings.Join(manyNames(v1alpha1.MaxPodInterceptors+1), ","),
			want:  "may name at most 15 interceptors",
		},
		"very many names are refused": {
			value: strings.Repeat("a.example.com,", 15_000),
			want:  "may name at most 15 interceptors",
		},
		"a name twice is refused": {
			value: "a.example.com,b.example.com,a.example.com",
			want:  "must not name an interceptor twice",
		},
		"spaces are refused": {
			value: "a.example.com, b.example.com",
			want:  `" b.example.com" is none`,
		},
		"a name with a period at the end is refused, and it is said why": {
			value: "a.example.com.",
			want:  `"a.example.com." is none: leave out the period at the end`,
		},
		"an empty value is refused": {
			value: "",
			want:  "must be a list of fully qualified domain names",
		},
		"a comma at the end is refused": {
			value: "a.example.com,",
			want:  "must be a list of fully qualified domain names",
		},
	}
	i := 0
	for name, tc := range cases {
		i++
		pod := newPod(ns, fmt.Sprintf("pod-%d", i))
		t.Run(name, func(t *testing.T) {
			pod.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: tc.value}
			checkAnswer(t, c.Create(t.Context(), pod, client.DryRunAll), tc.want)
		})
	}

	t.Run("names are fully qualified domain names", func(t *testing.T) {
		for name, want := range domainNames("an annotation that is empty") {
			if want != accepted {
				want = podInterceptorsPolicy
			}
			t.Run(fmt.Sprintf("%.40q", name), func(t *testing.T) {
				pod := newPod(ns, "pod")
				pod.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: name}
				checkAnswer(t, c.Create(t.Context(), pod, client.DryRunAll), want)
			})
		}
	})
}

// The annotation of a pod is immutable, by every road to it.
func TestPodAnnotationIsImmutable(t *testing.T) {
	ns := kube.Namespace(t)
	c := asAdmin(t)
	const immutable = "annotation drawbridge.dev/interceptors is immutable"

	with := newPod(ns, "with")
	with.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com", "x": "y"}
	without := newPod(ns, "without")
	without.Annotations = map[string]string{"x": "y"}
	for _, pod := range []*corev1.Pod{with, without} {
		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	annotation := func(value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.InterceptorsAnnotation, value)
	}
	cases := map[string]struct {
		pod   *corev1.Pod
		patch string
		want  string
	}{
		"it cannot be added":          {without, annotation(`"a.example.com"`), immutable},
		"it cannot be changed":        {with, annotation(`"b.example.com"`), immutable},
		"it cannot be extended":       {with, annotation(`"a.example.com,b.example.com"`), immutable},
		"it cannot be removed":        {with, annotation("null"), immutable},
		"other annotations can be":    {with, `{"metadata":{"annotations":{"x":"z"}}}`, accepted},
		"the last other one can go":   {without, `{"metadata":{"annotations":null}}`, accepted},
		"finalizers can be added":     {with, `{"metadata":{"finalizers":["example.com/f"]}}`, accepted},
		"all annotations cannot go":   {with, `{"metadata":{"annotations":null}}`, immutable},
		"an unchanged one is no edit": {with, annotation(`"a.example.com"`), accepted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(tc.patch))
			checkAnswer(t, c.Patch(t.Context(), tc.pod.DeepCopy(), patch, client.DryRunAll), tc.want)
			// The status subresource takes metadata, too.
			if !strings.Contains(tc.patch, "finalizers") {
				checkAnswer(t, c.Status().Patch(t.Context(), tc.pod.DeepCopy(), patch, client.DryRunAll), tc.want)
			}
		})
	}

	t.Run("a Binding cannot add it", func(t *testing.T) {
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		binding.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com"}
		checkAnswer(t, c.SubResource("binding").Create(t.Context(), without.DeepCopy(), binding), immutable)
	})
}

// Statement 15: creating takes the permission to delete the pod.
func TestConformance_F1_Authorization(t *testing.T) {
	admin := asAdmin(t)
	const refused = authorizationPolicy
	cases := map[string]struct {
		rules []rbacv1.PolicyRule
		want  string
	}{
		"15 without permission to delete pods it is refused":               {nil, refused},
		"15 with permission to delete another pod it is refused":           {[]rbacv1.PolicyRule{deletePod("web-2")}, refused},
		"15 with permission to delete that pod it is accepted":             {[]rbacv1.PolicyRule{deletePod("web-1")}, accepted},
		"15 with permission to delete the namespace's pods it is accepted": {[]rbacv1.PolicyRule{deletePods}, accepted},
		"15 with permission only to evict it is refused": {
			[]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create", "delete"}}}, refused,
		},
	}
	i := 0
	for name, tc := range cases {
		i++
		user := fmt.Sprintf("creator-%d", i)
		t.Run(name, func(t *testing.T) {
			ns := kube.Namespace(t)
			if err := grant(t.Context(), admin, ns, user, append(tc.rules, writeRequests)...); err != nil {
				t.Fatal(err)
			}
			err := as(t, user).Create(t.Context(), newRequest(ns))
			checkAnswer(t, err, tc.want)
			if tc.want == refused {
				checkAnswer(t, err, fmt.Sprintf(`user %q cannot request the eviction of pod "web-1"`, user))
				if !apierrors.IsForbidden(err) {
					t.Errorf("want 403, got %v", err)
				}
			}
		})
	}
	t.Run("15 Drawbridge itself is exempt", func(t *testing.T) {
		checkCreate(t, asDrawbridge(t), newRequest(kube.Namespace(t)), accepted)
	})
}
