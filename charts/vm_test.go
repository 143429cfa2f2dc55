package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// preset is one of the chart, as the manager reads it.
type preset struct {
	role         *rbacv1.ClusterRole
	policies     map[string]*v1alpha1.EvacuationPolicy
	registration *v1alpha1.EvictionInterceptor
}

// presetOf finds a preset among the objects of the chart, nil if it is switched off.
func presetOf(t *testing.T, objects []runtime.Object, name string) *preset {
	t.Helper()
	i := slices.IndexFunc(all[*corev1.ConfigMap](objects), func(c *corev1.ConfigMap) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	found := &preset{policies: map[string]*v1alpha1.EvacuationPolicy{}}
	for text := range strings.SplitSeq(all[*corev1.ConfigMap](objects)[i].Data["objects"], "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		var into metav1.Object
		switch kind.Kind {
		case "EvacuationPolicy":
			into = &v1alpha1.EvacuationPolicy{}
		case "EvictionInterceptor":
			into = &v1alpha1.EvictionInterceptor{}
		case "":
			continue
		default:
			t.Fatalf("a %s", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		switch into := into.(type) {
		case *v1alpha1.EvacuationPolicy:
			found.policies[into.Name] = into
		case *v1alpha1.EvictionInterceptor:
			found.registration = into
		}
	}
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		if role.Name == name {
			found.role = role
		}
	}
	if found.role == nil || found.registration == nil {
		t.Fatalf("preset %s: role %v, registration %v", name, found.role, found.registration)
	}
	return found
}

// may lists what a role may do to a platform: "verb resource".
func may(role *rbacv1.ClusterRole) []string {
	var list []string
	for _, rule := range role.Rules {
		if slices.Contains([]string{"drawbridge.dev", "rbac.authorization.k8s.io"}, rule.APIGroups[0]) {
			continue
		}
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				list = append(list, verb+" "+resource)
			}
		}
	}
	slices.Sort(list)
	return list
}

// Each preset brings the permissions that it needs, and no others; what is switched
// off brings none.
func TestPresetsBringTheirPermissions(t *testing.T) {
	kubevirt := []string{
		"create virtualmachineinstancemigrations", "delete virtualmachineinstancemigrations",
		"get kubevirts", "get virtualmachineinstancemigrations", "get virtualmachineinstances",
		"list kubevirts", "list virtualmachineinstancemigrations", "list virtualmachineinstances",
		"patch virtualmachineinstances",
		"update virtualmachineinstances/evacuate", "update virtualmachineinstances/evacuate/cancel",
		"watch kubevirts", "watch virtualmachineinstancemigrations", "watch virtualmachineinstances",
	}
	cases := map[string]struct {
		vm   values
		name string
		want []string
	}{
		"nothing":  {vm: values{}},
		"KubeVirt": {vm: values{"kubevirt": values{"enabled": true}}, name: "drawbridge-kubevirt", want: kubevirt},
		"Strimzi":  {vm: values{"strimzi": values{"enabled": true}}, name: "drawbridge-strimzi", want: []string{"patch pods"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := render(t, values{"vm": tc.vm})
			arg := "--evacuation-preset=" + tc.name
			args := only[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Args
			if told := slices.Contains(args, arg); told != (tc.name != "") {
				t.Errorf("the manager is told %s: %t", arg, told)
			}
			if left := slices.Contains(args, "--descheduler-except=kubevirt.io=virt-launcher"); left != (name == "KubeVirt") {
				t.Errorf("launchers are left to KubeVirt: %t", left)
			}
			if tc.name == "" {
				for _, name := range []string{"drawbridge-kubevirt", "drawbridge-strimzi"} {
					if presetOf(t, objects, name) != nil {
						t.Errorf("there is a preset %s", name)
					}
				}
				return
			}
			p := presetOf(t, objects, tc.name)
			if diff := cmp.Diff(tc.want, may(p.role)); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
			bound := slices.ContainsFunc(all[*rbacv1.ClusterRoleBinding](objects), func(b *rbacv1.ClusterRoleBinding) bool { return b.RoleRef.Name == tc.name })
			if !bound {
				t.Error("the role is bound to nobody")
			}
			// The manager may write the objects of the preset, and no others of their kinds.
			names := map[string][]string{}
			for _, rule := range p.role.Rules {
				if rule.APIGroups[0] == "drawbridge.dev" && slices.Contains(rule.Verbs, "patch") {
					names[rule.Resources[0]] = slices.Sorted(slices.Values(rule.ResourceNames))
				}
			}
			want := map[string][]string{"evacuationpolicies": slices.Sorted(maps.Keys(p.policies)), "evictioninterceptors": {p.registration.Name}}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("what it may patch of ours (-want +got):\n%s", diff)
			}
		})
	}
}

// Who upgrades with a value that is gone hears what there is instead.
func TestTheValueCreateMigrationsIsGone(t *testing.T) {
	for _, value := range []bool{true, false} {
		_, err := template(t, install.Options{Values: values{"vm": values{"kubevirt": values{"enabled": true, "createMigrations": value}}}})
		if err == nil || !strings.Contains(err.Error(), "vm.kubevirt.createMigrations is gone: Drawbridge always creates the migrations") ||
			!strings.Contains(err.Error(), "vm.kubevirt.parallelPerCluster") || !strings.Contains(err.Error(), "--reset-then-reuse-values") {
			t.Errorf("createMigrations=%t: %v", value, err)
		}
	}
}

func TestTheValuesOfKubeVirt(t *testing.T) {
	p := presetOf(t, render(t, values{
		"serviceAccount": values{"name": "acct"},
		"vm": values{"kubevirt": values{
			"enabled": true, "parallelPerCluster": 7, "parallelOutboundPerNode": 3, "retryLimit": 4,
			"deadline": "4h", "onFailure": "Evict", "guard": "WhileEvacuating", "priority": 42,
		}},
	}), "drawbridge-kubevirt")
	spec := p.policies["kubevirt"].Spec
	got := []any{
		spec.Migration.ParallelPerCluster, spec.Migration.ParallelOutboundPerNode, spec.Migration.RetryLimit, spec.Deadline.Duration.String(),
		string(spec.OnFailure), string(p.registration.Spec.Guard), *p.registration.Spec.Priority,
	}
	if diff := cmp.Diff([]any{int32(7), int32(3), int32(4), "4h0m0s", "Evict", "WhileEvacuating", int32(42)}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	want := []v1alpha1.ServiceAccountReference{{Namespace: install.DefaultNamespace, Name: "acct"}}
	if diff := cmp.Diff(want, p.registration.Spec.ServiceAccounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	if hotplug := p.policies["kubevirt-hotplug"].Spec.Interceptor; hotplug != p.registration.Name || spec.Interceptor != p.registration.Name {
		t.Errorf("the policies have the interceptors %s and %s", spec.Interceptor, hotplug)
	}
}

// Who is selected and covered by no policy would wait for nothing, so the
// registrations select what the policies cover.
func TestWhichPodsAreOfAPlatform(t *testing.T) {
	pod := func(changes ...func(*builder.PodWrapper)) *corev1.Pod {
		w := builder.Pod("ns", "p")
		for _, change := range changes {
			change(w)
		}
		return w.Obj()
	}
	label := func(key, value string) func(*builder.PodWrapper) {
		return func(w *builder.PodWrapper) { w.Label(key, value) }
	}
	domain := func(w *builder.PodWrapper) { w.Annotation("kubevirt.io/domain", "vm") }
	owned := func(kinds ...string) func(*builder.PodWrapper) {
		return func(w *builder.PodWrapper) {
			for _, kind := range kinds {
				w.Owner(metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "o", UID: "o"})
			}
		}
	}
	cases := map[string]struct {
		preset string
		pod    *corev1.Pod
		want   bool
	}{
		"a launcher":                      {"kubevirt", pod(label("kubevirt.io", "virt-launcher"), domain), true},
		"a launcher without a machine":    {"kubevirt", pod(label("kubevirt.io", "virt-launcher")), false},
		"a hotplugged volume":             {"kubevirt", pod(label("kubevirt.io", "hotplug-disk"), owned("Pod")), true},
		"one of nobody":                   {"kubevirt", pod(label("kubevirt.io", "hotplug-disk")), false},
		"one of two pods":                 {"kubevirt", pod(label("kubevirt.io", "hotplug-disk"), owned("Pod", "Pod")), false},
		"KubeVirt itself":                 {"kubevirt", pod(label("kubevirt.io", "virt-api")), false},
		"any other pod":                   {"kubevirt", pod(domain), false},
		"a pod of a Kafka cluster":        {"strimzi", pod(label("strimzi.io/kind", "Kafka"), owned("StrimziPodSet")), true},
		"the operator of a Kafka cluster": {"strimzi", pod(label("strimzi.io/kind", "Kafka"), owned("ReplicaSet")), false},
		"another kind of Strimzi's":       {"strimzi", pod(label("strimzi.io/kind", "KafkaBridge"), owned("StrimziPodSet")), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := presetOf(t, render(t, values{"vm": values{tc.preset: values{"enabled": true}}}), "drawbridge-"+tc.preset)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
			resolver := resolverWith(t, p.registration, namespace)
			if got := intercepts(t, resolver, tc.pod, p.registration.Name); got != tc.want {
				t.Errorf("intercepted: %t, want %t", got, tc.want)
			}
		})
	}
}

// The manager reads the presets when it starts, so a change of one must start it.
func TestAChangeOfAPresetRestartsTheManager(t *testing.T) {
	annotations := func(kubevirt values) map[string]string {
		return only[*appsv1.Deployment](t, render(t, values{"vm": values{"kubevirt": kubevirt}})).Spec.Template.Annotations
	}
	before := annotations(values{"enabled": true})
	if diff := cmp.Diff(before, annotations(values{"enabled": true})); diff != "" {
		t.Errorf("an upgrade without a change restarts it (-want +got):\n%s", diff)
	}
	for name, change := range map[string]values{
		"switched off":  {"enabled": false},
		"another value": {"enabled": true, "retryLimit": 3},
	} {
		t.Run(name, func(t *testing.T) {
			if cmp.Equal(before, annotations(change)) {
				t.Errorf("it is not restarted: %v", before)
			}
		})
	}
}
