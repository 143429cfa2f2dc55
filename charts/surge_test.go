package charts_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// surgeName is the name of the ConfigMap with the registration.
func surgeName(v values) string {
	if name, ok := v["fullnameOverride"].(string); ok {
		return name + "-surge"
	}
	return "drawbridge-surge"
}

// surgeRegistration is the registration that the chart brings.
func surgeRegistration(t *testing.T, v values) *v1alpha1.EvictionInterceptor {
	t.Helper()
	text := named[*corev1.ConfigMap](t, render(t, v), surgeName(v)).Data["objects"]
	registration := &v1alpha1.EvictionInterceptor{}
	if err := yaml.UnmarshalStrict([]byte(text), registration); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return registration
}

// intercepts reports whether the resolver names the interceptor for the pod. A namespace
// that is not known yet may hide it.
func intercepts(t *testing.T, resolver registration.Resolver, pod *corev1.Pod, name string) bool {
	t.Helper()
	names, err := resolver.Resolve(pod)
	if err != nil && !errors.Is(err, registration.ErrNamespaceUnknown) {
		t.Fatal(err)
	}
	return slices.Contains(names, name)
}

// resolverWith is the resolver of a cluster with this registration.
func resolverWith(t *testing.T, of *v1alpha1.EvictionInterceptor, namespaces ...*corev1.Namespace) registration.Resolver {
	t.Helper()
	informers := &informertest.FakeInformers{Scheme: builder.Scheme(t)}
	registry := registration.NewRegistry(registration.Options{Namespace: install.DefaultNamespace})
	if err := registry.SetupWithCache(t.Context(), informers); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{of}
	for _, namespace := range namespaces {
		objects = append(objects, namespace)
	}
	for _, obj := range objects {
		informer, err := informers.FakeInformerFor(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		informer.Add(obj)
	}
	if _, ok := registry.Registration(of.Name); !ok {
		t.Fatalf("the registration is not accepted: %+v", of.Spec)
	}
	return registry
}

func TestWhichPodsSurge(t *testing.T) {
	namespace := func(name, label string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}}
		if label != "" {
			n.Labels[surge.OptInLabel] = label
		}
		return n
	}
	namespaces := []*corev1.Namespace{
		namespace("plain", ""), namespace("in", "enabled"), namespace("out", "disabled"),
		namespace("kube-system", "enabled"), namespace("extra", "enabled"), namespace(install.DefaultNamespace, "enabled"),
	}
	of := func(namespace, kind, label string) *corev1.Pod {
		p := builder.Pod(namespace, "p").Label("app", "web")
		if kind != "" {
			p.OwnedBy(kind, "o")
		}
		if label != "" {
			p.Label(surge.OptInLabel, label)
		}
		return p.Obj()
	}
	owned := func(namespace, apiVersion, kind, label string, controller bool) *corev1.Pod {
		p := builder.Pod(namespace, "p").Label("app", "web").Owner(metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "o", UID: "o", Controller: &controller})
		if label != "" {
			p.Label(surge.OptInLabel, label)
		}
		return p.Obj()
	}
	const kruise = "apps.kruise.io/v1alpha1"
	all := values{"surge": values{"allDeployments": true}}
	cases := map[string]struct {
		values values
		pod    *corev1.Pod
		want   bool
	}{
		"nobody said anything":                   {nil, of("plain", "ReplicaSet", ""), false},
		"the pod says so":                        {nil, of("plain", "ReplicaSet", "enabled"), true},
		"the pod says something else":            {nil, of("plain", "ReplicaSet", "yes"), false},
		"the namespace says so":                  {nil, of("in", "ReplicaSet", ""), true},
		"the pod wins over its namespace":        {nil, of("in", "ReplicaSet", "disabled"), false},
		"and the other way round":                {nil, of("out", "ReplicaSet", "enabled"), true},
		"by default":                             {all, of("plain", "ReplicaSet", ""), true},
		"not in a namespace that is out":         {all, of("out", "ReplicaSet", ""), false},
		"not a pod that is out":                  {all, of("plain", "ReplicaSet", "disabled"), false},
		"a pod that was handed up":               {nil, of("plain", "Deployment", "enabled"), true},
		"a pod that was set free":                {nil, owned("plain", "apps/v1", "ReplicaSet", "enabled", false), true},
		"and one of a namespace":                 {nil, owned("in", "apps/v1", "ReplicaSet", "", false), true},
		"a CloneSet that asks for it":            {nil, owned("plain", kruise, "CloneSet", "enabled", true), true},
		"a CloneSet in a namespace that does":    {nil, owned("in", kruise, "CloneSet", "", true), false},
		"a CloneSet by default":                  {all, owned("plain", kruise, "CloneSet", "", true), false},
		"a CloneSet that is no controller":       {nil, owned("plain", kruise, "CloneSet", "enabled", false), false},
		"a StatefulSet":                          {all, of("plain", "StatefulSet", "enabled"), false},
		"a pod of nobody":                        {all, of("plain", "", "enabled"), false},
		"kube-system":                            {all, of("kube-system", "ReplicaSet", "enabled"), false},
		"our own namespace":                      {all, of(install.DefaultNamespace, "ReplicaSet", "enabled"), false},
		"an excluded namespace":                  {values{"surge": values{"excludedNamespaces": []any{"extra"}}}, of("extra", "ReplicaSet", "enabled"), false},
		"a namespace nobody has heard of so far": {all, of("new", "ReplicaSet", ""), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resolver := resolverWith(t, surgeRegistration(t, tc.values), namespaces...)
			if got := intercepts(t, resolver, tc.pod, surge.Name); got != tc.want {
				t.Errorf("it surges: %t, want %t", got, tc.want)
			}
		})
	}
}

// The manager reads the registration when it starts, so a change of it must start
// one.
func TestAChangeOfTheRegistrationRestartsTheManager(t *testing.T) {
	template := func(v values) corev1.PodTemplateSpec {
		return only[*appsv1.Deployment](t, render(t, v)).Spec.Template
	}
	as := template(nil)
	for name, surge := range map[string]values{
		"the default":             {"allDeployments": true},
		"the priority":            {"priority": 7},
		"the excluded namespaces": {"excludedNamespaces": []any{"kube-system", "extra"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := values{"surge": surge, "deployment": values{"podAnnotations": values{"a": "b"}}}
			if after := template(v); cmp.Equal(as.Annotations["checksum/surge"], after.Annotations["checksum/surge"]) || after.Annotations["a"] != "b" {
				t.Errorf("annotations %v, before %v", after.Annotations, as.Annotations)
			}
		})
	}
	if diff := cmp.Diff(as, template(nil)); diff != "" {
		t.Errorf("an upgrade without a change restarts it (-want +got):\n%s", diff)
	}
	if off := template(values{"surge": values{"enabled": false}}); off.Annotations["checksum/surge"] != "" {
		t.Errorf("without a surge: annotations %v", off.Annotations)
	}
}

// The registration names the account that the manager runs under, and the manager
// may write the registration and nothing else of the kind.
func TestTheSurgeIsTheManagers(t *testing.T) {
	v := values{"fullnameOverride": "other", "serviceAccount": values{"name": "acct"}, "surge": values{"priority": 7}}
	registration := surgeRegistration(t, v)
	want := []v1alpha1.ServiceAccountReference{{Namespace: install.DefaultNamespace, Name: "acct"}}
	if diff := cmp.Diff(want, registration.Spec.ServiceAccounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	if registration.Name != surge.Name || *registration.Spec.Priority != 7 {
		t.Errorf("name %s, priority %d", registration.Name, *registration.Spec.Priority)
	}
	objects := render(t, v)
	named[*corev1.ConfigMap](t, objects, "other-surge")
	mayPatch := map[string][]string{}
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		for _, rule := range role.Rules {
			if role.Name == "other-surge" && slices.Contains(rule.Verbs, "patch") {
				mayPatch[rule.Resources[0]] = rule.ResourceNames
			}
			if role.Name == "other-surge" && slices.Contains(rule.Verbs, "delete") {
				t.Errorf("it may delete %v", rule.Resources)
			}
		}
	}
	if diff := cmp.Diff(map[string][]string{"pods": nil, "evictioninterceptors": {surge.Name}}, mayPatch); diff != "" {
		t.Errorf("what it may patch (-want +got):\n%s", diff)
	}
}
