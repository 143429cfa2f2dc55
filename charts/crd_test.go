package charts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// What the apiserver lets the rules of a CRD cost, estimated when it is
// installed: k8s.io/apiextensions-apiserver v0.37.2,
// pkg/apis/apiextensions/validation/validation.go, StaticEstimatedCostLimit and
// StaticEstimatedCRDCostLimit.
const (
	ruleCostLimit = 10_000_000
	crdCostLimit  = 100_000_000
)

// The rules of every CRD compile on the oldest supported release (Kubernetes
// 1.30, where ValidatingAdmissionPolicy is stable) and on the one we build
// with, and stay within half of the apiserver's budget, so that another release's estimate
// does not make the CRD uninstallable.
func TestCRDRulesCompileWithinTheBudget(t *testing.T) {
	files, err := filepath.Glob("drawbridge/files/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no CustomResourceDefinition in the chart")
	}
	releases := map[string]*version.Version{
		"Kubernetes 1.30": version.MajorMinor(1, 30),
		"Kubernetes 1.37": version.MajorMinor(1, 37),
	}
	for _, file := range files {
		structural := structuralSchema(t, file)
		for release, v := range releases {
			t.Run(filepath.Base(file)+" on "+release, func(t *testing.T) {
				c := compiler{t: t, env: environment.MustBaseEnvSet(v)}
				c.walk("", structural, true, 1)
				if c.rules == 0 {
					t.Error("the schema has no rules")
				}
				if c.cost > crdCostLimit/2 {
					t.Errorf("all rules together may cost %d, more than half of the %d allowed", c.cost, crdCostLimit)
				}
				t.Logf("%d rules, estimated cost %d", c.rules, c.cost)
			})
		}
	}
}

type compiler struct {
	t     *testing.T
	env   *environment.EnvSet
	rules int
	cost  uint64
}

// walk compiles the rules of s, which an object has at most that many times,
// and of everything below it.
func (c *compiler) walk(path string, s *schema.Structural, isRoot bool, times uint64) {
	c.t.Helper()
	results, err := cel.Compile(s, model.SchemaDeclType(s, isRoot), celconfig.PerCallLimit, c.env, cel.NewExpressionsEnvLoader())
	if err != nil {
		c.t.Fatalf("%s: %v", path, err)
	}
	for i, result := range results {
		rule := s.XValidations[i]
		c.rules++
		c.cost += result.MaxCost * times
		switch {
		case result.Error != nil:
			c.t.Errorf("%s: %s: %s", path, rule.Rule, result.Error.Detail)
		case result.MaxCost*times > ruleCostLimit/2:
			c.t.Errorf("%s: %s: may cost %d, more than half of the %d allowed", path, rule.Rule, result.MaxCost*times, ruleCostLimit)
		case rule.Message == "":
			c.t.Errorf("%s: %s: the rule has no message", path, rule.Rule)
		}
	}
	for key, property := range s.Properties {
		c.walk(path+"."+key, &property, false, times)
	}
	if s.Items != nil {
		if s.ValueValidation == nil || s.ValueValidation.MaxItems == nil {
			// Types of Kubernetes, such as label selectors, have such lists.
			before := c.rules
			c.walk(path+"[]", s.Items, false, times)
			if c.rules > before {
				c.t.Fatalf("%s: the list has no maxItems, but rules for its items", path)
			}
			return
		}
		c.walk(path+"[]", s.Items, false, times*uint64(*s.ValueValidation.MaxItems))
	}
}

// structuralSchema reads a CustomResourceDefinition as the apiserver does.
func structuralSchema(t *testing.T, file string) *schema.Structural {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &crd); err != nil {
		t.Fatalf("decode %s: %v", file, err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatalf("convert %s: %v", file, err)
	}
	structural, err := schema.NewStructural(&internal)
	if err != nil {
		t.Fatalf("structural schema of %s: %v", file, err)
	}
	return structural
}

// What the CRD allows for a stage, of the maintenance and of its nodes, is the set of
// the stages in its order.
func TestTheCRDHasAllStagesOfMaintenances(t *testing.T) {
	var want []any
	for _, stage := range v1alpha1.MaintenanceStages() {
		want = append(want, string(stage))
	}
	found := enumsOf(structuralSchema(t, "drawbridge/files/crds/drawbridge.dev_nodemaintenances.yaml"), "stage")
	if len(found) != 2 {
		t.Errorf("found %d fields called stage that have an enum, want that of the maintenance and that of its nodes", len(found))
	}
	for _, got := range found {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("stages (-set +CRD):\n%s", diff)
		}
	}
}

// enumsOf are the enums of all fields with that name.
func enumsOf(s *schema.Structural, field string) [][]any {
	if s == nil {
		return nil
	}
	found := enumsOf(s.Items, field)
	for name, property := range s.Properties {
		found = append(found, enumsOf(&property, field)...)
		if name != field || property.ValueValidation == nil || len(property.ValueValidation.Enum) == 0 {
			continue
		}
		var values []any
		for _, value := range property.ValueValidation.Enum {
			values = append(values, value.Object)
		}
		found = append(found, values)
	}
	return found
}

func TestCRDsAreKeptOnUninstall(t *testing.T) {
	const annotation = "helm.sh/resource-policy"
	for _, crd := range definitions(t, values{"enabled": true}) {
		if got := crd.Annotations[annotation]; got != "keep" {
			t.Errorf("%s: annotation %s is %q, want keep", crd.Name, annotation, got)
		}
	}
	for _, crd := range definitions(t, values{"keep": false}) {
		if got := crd.Annotations[annotation]; got != "" {
			t.Errorf("%s: with crds.keep off the annotation %s is %q", crd.Name, annotation, got)
		}
	}
}

// definitions are the CRDs of the chart, for those values of crds.
func definitions(t *testing.T, crds values) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	found := all[*apiextensionsv1.CustomResourceDefinition](render(t, values{"crds": crds}))
	if len(found) != 6 {
		t.Fatalf("the chart has %d CRDs, want 6", len(found))
	}
	return found
}
