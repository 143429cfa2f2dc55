package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/utils/ptr"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// previous is the chart of the release before this one.
var previous = install.Options{
	Chart: "../test/e2e/install/testdata/chart-previous.tgz", Values: values{"crds": values{"enabled": true}},
}

// docs/operations/versions.md promises what is here, for the release before: who was
// written for its API goes on.
func TestTheAPIOfThePreviousReleaseIsKept(t *testing.T) {
	now := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range definitions(t, values{"enabled": true}) {
		now[crd.Name] = crd
	}
	for _, before := range all[*apiextensionsv1.CustomResourceDefinition](renderWith(t, previous)) {
		after := now[before.Name]
		if after == nil {
			t.Errorf("%s is gone", before.Name)
			continue
		}
		if diff := cmp.Diff([]any{before.Spec.Scope, before.Spec.Names.Plural, before.Spec.Names.Kind}, []any{after.Spec.Scope, after.Spec.Names.Plural, after.Spec.Names.Kind}); diff != "" {
			t.Errorf("%s (-before +now):\n%s", before.Name, diff)
		}
		for _, problem := range broken(schemaOf(t, before), schemaOf(t, after), before.Name+": ") {
			t.Error(problem)
		}
	}
}

func schemaOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	for _, version := range crd.Spec.Versions {
		if version.Name == "v1alpha1" && version.Served {
			return version.Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("%s does not serve v1alpha1", crd.Name)
	return nil
}

// broken is what a schema no longer takes, or no longer has, of what was valid before.
// Rules in CEL may become stricter; the changelog says so.
func broken(before, now *apiextensionsv1.JSONSchemaProps, path string) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, path+" "+fmt.Sprintf(format, args...)) }
	if before.Type != now.Type || before.Format != now.Format {
		say("was %s %s and is %s %s", before.Type, before.Format, now.Type, now.Format)
	}
	for _, value := range before.Enum {
		if len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum, func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
			say("no longer takes %s", value.Raw)
		}
	}
	if len(before.Enum) == 0 && len(now.Enum) > 0 {
		say("takes only some values now")
	}
	for _, field := range now.Required {
		if !slices.Contains(before.Required, field) {
			say("needs %s now", field)
		}
	}
	for what, limit := range map[string][2]*int64{
		"maxLength": {before.MaxLength, now.MaxLength}, "maxItems": {before.MaxItems, now.MaxItems}, "maxProperties": {before.MaxProperties, now.MaxProperties},
	} {
		if limit[1] != nil && (limit[0] == nil || *limit[1] < *limit[0]) {
			say("has a lower %s: %v, before %v", what, *limit[1], ptr.Deref(limit[0], -1))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.Properties)) {
		field := before.Properties[name]
		after, kept := now.Properties[name]
		if !kept {
			say("has no %s any more", name)
			continue
		}
		problems = append(problems, broken(&field, &after, path+"."+name)...)
	}
	if before.Items != nil && before.Items.Schema != nil && now.Items != nil && now.Items.Schema != nil {
		problems = append(problems, broken(before.Items.Schema, now.Items.Schema, path+"[]")...)
	}
	if before.AdditionalProperties != nil && before.AdditionalProperties.Schema != nil && now.AdditionalProperties != nil && now.AdditionalProperties.Schema != nil {
		problems = append(problems, broken(before.AdditionalProperties.Schema, now.AdditionalProperties.Schema, path+"{}")...)
	}
	return problems
}

func TestWhatBreaksAnAPI(t *testing.T) {
	text := func(change func(*apiextensionsv1.JSONSchemaProps)) apiextensionsv1.JSONSchemaProps {
		s := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr.To[int64](10), Enum: []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`"b"`)}}}
		if change != nil {
			change(&s)
		}
		return s
	}
	object := func(required []string, fields map[string]apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
		return &apiextensionsv1.JSONSchemaProps{Type: "object", Required: required, Properties: fields}
	}
	before := object(nil, map[string]apiextensionsv1.JSONSchemaProps{"a": text(nil)})
	cases := map[string]struct {
		now  *apiextensionsv1.JSONSchemaProps
		want []string
	}{
		"nothing, if nothing changes": {before, nil},
		"not a new field":             {object(nil, map[string]apiextensionsv1.JSONSchemaProps{"a": text(nil), "b": text(nil)}), nil},
		"a new field that is required": {
			object([]string{"b"}, map[string]apiextensionsv1.JSONSchemaProps{"a": text(nil), "b": text(nil)}), []string{"X needs b now"}},
		"a field that is gone": {object(nil, map[string]apiextensionsv1.JSONSchemaProps{"b": text(nil)}), []string{"X has no a any more"}},
		"another type": {
			object(nil, map[string]apiextensionsv1.JSONSchemaProps{"a": text(func(s *apiextensionsv1.JSONSchemaProps) { s.Type = "integer" })}),
			[]string{"X.a was string  and is integer "}},
		"a value that is gone": {
			object(nil, map[string]apiextensionsv1.JSONSchemaProps{"a": text(func(s *apiextensionsv1.JSONSchemaProps) { s.Enum = s.Enum[:1] })}),
			[]string{`X.a no longer takes "b"`}},
		"not a new value": {
			object(nil, map[string]apiextensionsv1.JSONSchemaProps{"a": text(func(s *apiextensionsv1.JSONSchemaProps) {
				s.Enum = append(s.Enum, apiextensionsv1.JSON{Raw: []byte(`"c"`)})
			})}), nil},
		"a lower limit": {
			object(nil, map[string]apiextensionsv1.JSONSchemaProps{"a": text(func(s *apiextensionsv1.JSONSchemaProps) { s.MaxLength = ptr.To[int64](9) })}),
			[]string{"X.a has a lower maxLength: 9, before 10"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, broken(before, tc.now, "X")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// Helm and kubectl bring the new roles before the new manager starts, so the one of the
// release before still works with them.
func TestThePermissionsOfThePreviousReleaseAreKept(t *testing.T) {
	before, now := ofTheManager(renderWith(t, previous)), ofTheManager(render(t, nil))
	for where, rules := range before {
		if covers, missing := validation.Covers(now[where], rules); !covers {
			t.Errorf("in %q, a manager of the release before would lack %v", where, missing)
		}
	}
}

// ofTheManager are the rules of the manager's account, by namespace.
func ofTheManager(objects []runtime.Object) map[string][]rbacv1.PolicyRule {
	rules := map[string][]rbacv1.PolicyRule{}
	add := func(namespace string, ref rbacv1.RoleRef) {
		for _, role := range all[*rbacv1.ClusterRole](objects) {
			if ref.Kind == "ClusterRole" && role.Name == ref.Name && role.Annotations["helm.sh/hook"] == "" {
				rules[namespace] = append(rules[namespace], role.Rules...)
			}
		}
		for _, role := range all[*rbacv1.Role](objects) {
			if ref.Kind == "Role" && role.Name == ref.Name && role.Namespace == namespace && role.Annotations["helm.sh/hook"] == "" {
				rules[namespace] = append(rules[namespace], role.Rules...)
			}
		}
	}
	for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
		add("", binding.RoleRef)
	}
	for _, binding := range all[*rbacv1.RoleBinding](objects) {
		add(binding.Namespace, binding.RoleRef)
	}
	return rules
}
