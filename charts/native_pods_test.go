package charts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/surge"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// mutate does to a pod what the API server does by a policy with one parameter, nil for none.
func mutate(t *testing.T, policy *admissionregistrationv1.MutatingAdmissionPolicy, namespace *corev1.Namespace, params runtime.Object, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 37)))
	if err != nil {
		t.Fatal(err)
	}
	has := plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	kind, resource := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	interfaces := admission.NewObjectInterfacesFromScheme(clientgoscheme.Scheme)
	pod = pod.DeepCopy()
	pod.SetGroupVersionKind(kind)
	attributes := admission.NewAttributesRecord(pod, nil, kind, pod.Namespace, pod.Name, resource, "", admission.Create, &metav1.CreateOptions{}, false, nil)
	versioned, err := admission.NewVersionedAttributes(attributes, kind, interfaces)
	if err != nil {
		t.Fatal(err)
	}
	var conditions []plugincel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, has, environment.NewExpressions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	match := matcher.Match(t.Context(), versioned, params, nil)
	if match.Error != nil {
		t.Fatalf("%s: %v", policy.Name, match.Error)
	}
	if !match.Matches {
		return pod
	}
	has.HasPatchTypes = true
	accessor := &patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}
	patched, err := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(accessor, has, environment.NewExpressions)).Patch(t.Context(), patch.Request{
		MatchedResource: resource, VersionedAttributes: versioned, ObjectInterfaces: interfaces, Namespace: namespace,
		OptionalVariables: plugincel.OptionalVariableBindings{VersionedParams: params},
	}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatalf("%s: %v", policy.Name, err)
	}
	mutated, ok := patched.(*corev1.Pod)
	if !ok {
		t.Fatalf("%s makes a %T", policy.Name, patched)
	}
	return mutated
}

// What new pods of the API server name, by what there is of ours in the cluster.
func TestWhichPodsNameOurResponder(t *testing.T) {
	policies := all[*admissionregistrationv1.MutatingAdmissionPolicy](renderWith(t, install.Options{Values: values{"native": values{"responderPolicy": "Always"}}}))
	selector := &metav1.LabelSelector{
		MatchLabels: map[string]string{"app": "db"},
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			{Key: "tier", Operator: metav1.LabelSelectorOpExists},
			{Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist},
			{Key: "mode", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"test"}},
		},
	}
	interceptor := &v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: "a.example.com"}, Spec: v1alpha1.EvictionInterceptorSpec{PodSelector: selector}}
	inTeams := interceptor.DeepCopy()
	inTeams.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}, MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "stage", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"test"}},
	}}
	everything := &v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: "a.example.com"}}
	ofSurge := &v1alpha1.EvictionInterceptor{ObjectMeta: metav1.ObjectMeta{Name: surge.Name}}
	hook := &v1alpha1.EvacuationHook{Spec: v1alpha1.EvacuationHookSpec{PodSelector: selector}}
	budget := &v1alpha1.EvictionBudget{Spec: v1alpha1.EvictionBudgetSpec{Selector: selector}}
	ofOne := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "u", Controller: new(true)}}
		}
	}
	label := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels[key] = value }
	}
	bare := func(p *corev1.Pod) { p.Labels = nil }
	var ten []string
	for i := range v1alpha1.MaxNativeResponders {
		ten = append(ten, fmt.Sprintf("r%d.example.com/work", i))
	}
	names := func(names ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.EvictionResponders = builder.Pod("", "").Responders(names...).Spec.EvictionResponders
		}
	}
	annotated := func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com"}
	}
	teams := map[string]string{"team": "shop"}
	const added, acme = "drawbridge.dev/interceptors=1000", "acme.example.com/x"
	type change = func(*corev1.Pod)
	for name, tc := range map[string]struct {
		by     runtime.Object
		labels map[string]string
		change []change
		want   string
	}{
		"nothing intercepts":                         {},
		"the annotation":                             {change: []change{annotated}, want: added},
		"a registration":                             {by: interceptor, want: added},
		"a registration of all pods":                 {by: everything, change: []change{bare}, want: added},
		"after another responder":                    {by: interceptor, change: []change{names(acme)}, want: acme + "=10000 " + added},
		"it is there already":                        {by: interceptor, change: []change{names(v1alpha1.NativeResponder)}, want: v1alpha1.NativeResponder + "=10000"},
		"there is no place":                          {by: interceptor, change: []change{names(ten...)}, want: strings.Join(ten, "=10000 ") + "=10000"},
		"another value of a label":                   {by: interceptor, change: []change{label("app", "web")}},
		"a value that is not in the list":            {by: interceptor, change: []change{label("tier", "c")}},
		"no labels":                                  {by: interceptor, change: []change{bare}},
		"a label that must not be":                   {by: interceptor, change: []change{label("old", "")}},
		"a value that must not be":                   {by: interceptor, change: []change{label("mode", "test")}},
		"another value instead":                      {by: interceptor, change: []change{label("mode", "live")}, want: added},
		"the namespace is selected":                  {by: inTeams, labels: teams, want: added},
		"the namespace is not":                       {by: inTeams, labels: map[string]string{"team": "other"}},
		"the namespace has no labels":                {by: inTeams},
		"the namespace has a value that must not be": {by: inTeams, labels: map[string]string{"team": "shop", "stage": "test"}},
		"a hook":         {by: hook, want: added},
		"a hook for all": {by: &v1alpha1.EvacuationHook{}, change: []change{bare}, want: added},
		"a hook, and the pod does the work of one":        {by: hook, change: []change{label(v1alpha1.HookLabel, "x")}},
		"a hook of other pods":                            {by: hook, change: []change{label("app", "web")}},
		"a budget":                                        {by: budget, want: added},
		"a budget for all":                                {by: &v1alpha1.EvictionBudget{Spec: v1alpha1.EvictionBudgetSpec{Selector: &metav1.LabelSelector{}}}, change: []change{bare}, want: added},
		"a budget of other pods":                          {by: budget, change: []change{label("app", "web")}},
		"the surge is registered, and the pod is alone":   {by: ofSurge},
		"a Deployment that does not surge":                {change: []change{ofOne("ReplicaSet")}},
		"a Deployment that surges":                        {change: []change{ofOne("ReplicaSet"), label("drawbridge.dev/surge", "enabled")}, want: added},
		"a namespace that surges":                         {labels: map[string]string{"drawbridge.dev/surge": "enabled"}, change: []change{ofOne("ReplicaSet")}, want: added},
		"a namespace that surges, with an exception":      {labels: map[string]string{"drawbridge.dev/surge": "enabled"}, change: []change{ofOne("ReplicaSet"), label("drawbridge.dev/surge", "disabled")}},
		"a StatefulSet with the label":                    {change: []change{ofOne("StatefulSet"), label("drawbridge.dev/surge", "enabled")}},
		"a DaemonSet":                                     {by: interceptor, change: []change{ofOne("DaemonSet")}},
		"a mirror pod":                                    {by: interceptor, change: []change{func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }}},
		"a group, whose pods must not have any responder": {by: interceptor, change: []change{annotated, func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")} }}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := builder.Pod("shop", "db-0").Label("app", "db").Label("tier", "b").Obj()
			for _, change := range tc.change {
				change(pod)
			}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: tc.labels}}
			for range 2 { // Policies run again.
				for _, policy := range policies {
					var params runtime.Object
					if kind := policy.Spec.ParamKind; kind != nil {
						if tc.by == nil || !strings.HasSuffix(fmt.Sprintf("%T", tc.by), "."+kind.Kind) {
							continue // There is no such parameter.
						}
						object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tc.by)
						if err != nil {
							t.Fatal(err)
						}
						params = &unstructured.Unstructured{Object: object}
					}
					pod = mutate(t, policy, namespace, params, pod)
				}
			}
			var got []string
			for _, r := range pod.Spec.EvictionResponders {
				got = append(got, fmt.Sprintf("%s=%d", r.Name, *r.Priority))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("responders (-want +got):\n%s", diff)
			}
		})
	}
}
