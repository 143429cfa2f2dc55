//go:build unix

package gitops

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// ofHelmProvider are the arguments of helm_release that the documentation of the provider
// lists, as far as somebody may want them here.
var ofHelmProvider = []string{
	"atomic", "chart", "create_namespace", "max_history", "name", "namespace", "repository", "timeout", "values", "version", "wait",
}

// helmRelease reads the arguments of the resource helm_release of the example. There is no
// terraform here: HCL's own parser evaluates them. What yamlencode writes is YAML, and so is
// JSON.
func helmRelease(t *testing.T) map[string]cty.Value {
	t.Helper()
	file, problems := hclparse.NewParser().ParseHCLFile(example(t, "terraform", "main.tf"))
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	functions := &hcl.EvalContext{Functions: map[string]function.Function{"yamlencode": stdlib.JSONEncodeFunc}}
	arguments := map[string]cty.Value{}
	for _, block := range file.Body.(*hclsyntax.Body).Blocks {
		if block.Type != "resource" || !slices.Equal(block.Labels, []string{"helm_release", "drawbridge"}) {
			continue
		}
		for name, attribute := range block.Body.Attributes {
			value, problems := attribute.Expr.Value(functions)
			if problems.HasErrors() {
				t.Fatal(problems)
			}
			if !slices.Contains(ofHelmProvider, name) {
				t.Errorf("helm_release has no argument %s", name)
			}
			arguments[name] = value
		}
	}
	if len(arguments) == 0 {
		t.Fatal("there is no helm_release drawbridge")
	}
	return arguments
}

// The provider runs helm with the values, as we do. A second apply changes nothing.
func TestTerraformsValuesInstallTheChart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), exampleTimeout)
	defer cancel()
	arguments := helmRelease(t)
	text := func(name string) string { return arguments[name].AsString() }
	if got := text("repository") + "/" + text("chart"); got != chartURL {
		t.Errorf("the chart is at %s, want %s", got, chartURL)
	}
	values := map[string]any{}
	for _, document := range arguments["values"].AsValueSlice() {
		if err := yaml.Unmarshal([]byte(document.AsString()), &values); err != nil {
			t.Fatal(err)
		}
	}
	if err := unstructured.SetNestedField(values, int64(webhookTimeout), "webhook", "timeoutSeconds"); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := kube.KubeconfigFile("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	o := install.Options{Kubeconfig: kubeconfig, Release: text("name"), Namespace: text("namespace"), Values: values, NoHooks: true}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := install.Uninstall(ctx, o); err != nil {
			t.Error(err)
		}
		if err := remove(ctx, definitions(helmTemplate(ctx, t, o.Release, o.Namespace, values))); err != nil {
			t.Error(err)
		}
	})
	if err := install.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	startManager(ctx, t, helmTemplate(ctx, t, o.Release, o.Namespace, values))
	managed := waitManaged(t, "after the first apply")
	pod := intercepted(t)
	stop := load(t, pod, inProgress)
	if err := install.Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	stop()
	got, err := configuration(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(managed.Webhooks, got.Webhooks); diff != "" {
		t.Errorf("webhooks after the second apply (-before +after):\n%s", diff)
	}
}
