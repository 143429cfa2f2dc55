// Package docs checks that the pages say what the code does.
package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/internal/features"
	"github.com/drawbridge-dev/drawbridge/internal/metrics"
	"github.com/drawbridge-dev/drawbridge/internal/podcache"
)

func page(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// rows are the first cells of all table rows, without backquotes.
func rows(content string) map[string]string {
	cells := map[string]string{}
	for line := range strings.Lines(content) {
		if parts := strings.Split(line, "|"); len(parts) > 2 {
			cells[strings.Trim(parts[1], " `")] = strings.Trim(parts[2], " `")
		}
	}
	return cells
}

func TestEveryFlagIsDocumentedWithItsDefault(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	documented := rows(page(t, "reference/flags.md"))
	flags := app.NewCommand().Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return // It is for our own tests.
		}
		def, ok := documented["--"+f.Name]
		if !ok {
			t.Errorf("--%s is not documented", f.Name)
			return
		}
		want := f.DefValue
		switch {
		case f.Name == "namespace":
			want = "$POD_NAMESPACE"
		case want == "[]":
			want = ""
		}
		if def != want {
			t.Errorf("--%s is documented with default %q, want %q", f.Name, def, want)
		}
	})
	for name := range documented {
		if flag, ok := strings.CutPrefix(name, "--"); ok && strings.Trim(flag, "-") != "" && flags.Lookup(flag) == nil {
			t.Errorf("%s is documented but does not exist", name)
		}
	}
}

// described collects what is registered.
type described struct {
	prometheus.Registerer
	metrics map[string]string
}

var descText = regexp.MustCompile(`fqName: "([^"]+)", help: ("(?:[^"\\\\]|\\\\.)*"), .*variableLabels: {([^}]*)}`)

func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		parts := descText.FindStringSubmatch(desc.String())
		if parts == nil {
			return fmt.Errorf("cannot read %s", desc)
		}
		d.metrics[parts[1]] = parts[2] + " " + parts[3]
	}
	return nil
}

func (d *described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := d.Register(c); err != nil {
			panic(err)
		}
	}
}

// The catalog, which the reference is generated from, has every metric there is, with
// its help and labels, and no other.
func TestTheCatalogHasEveryMetric(t *testing.T) {
	registry := &described{metrics: map[string]string{}}
	metrics.NewRequests(registry, true)
	metrics.NewEvictor(registry)
	metrics.NewWebhook(registry)
	metrics.NewGuard(registry)
	metrics.NewPreemption(registry)
	metrics.NewSurge(registry)
	metrics.NewHooks(registry)
	metrics.NewBudgets(registry)
	metrics.NewMaintenance(registry)
	metrics.NewVM(registry)
	metrics.NewRegistrations(registry)
	metrics.NewCertificates(registry)
	metrics.NewWebhookServer(registry)
	metrics.NewEvents(registry)
	metrics.NewRollback(registry)
	metrics.NewNative(registry)
	metrics.NewFailurePolicy(registry)
	metrics.NewRefused(registry)
	want := map[string]string{}
	for _, m := range metrics.All() {
		labels := make([]string, len(m.Labels))
		for i, label := range m.Labels {
			labels[i] = label.Name
		}
		want[m.Name] = strconv.Quote(m.Help) + " " + strings.Join(labels, ",")
	}
	if diff := cmp.Diff(want, registry.metrics); diff != "" {
		t.Errorf("metrics, by their names: help and labels (-catalog +registered):\n%s", diff)
	}
}

// Every label is bounded, and the values that the catalog lists are those of the
// sources.
func TestTheCatalogKnowsAllValuesOfLabels(t *testing.T) {
	values := map[string][]string{}
	for _, m := range metrics.All() {
		for _, label := range m.Labels {
			if (len(label.Values) == 0) == (label.Bound == "") {
				t.Errorf("label %s of %s needs either its values or what bounds them", label.Name, m.Name)
			}
			values[m.Name+" "+label.Name] = label.Values
		}
	}
	cases := map[string]struct{ label, folder, prefix string }{
		"reasons of answers":        {"drawbridge_eviction_verdicts_total reason", "../translate", "Reason"},
		"classes of callers":        {"drawbridge_eviction_verdicts_total caller_class", "../translate", "Class"},
		"results of attempts":       {"drawbridge_imperative_eviction_attempts_total result", "../translate", "Result"},
		"triggers of attempts":      {"drawbridge_imperative_eviction_attempts_total trigger", "../translate", "Trigger"},
		"reasons not to surge":      {"drawbridge_surge_declined_total reason", "../evacuation/surge", "declined"},
		"stages of maintenances":    {"drawbridge_maintenances stage", "../api/v1alpha1", "Stage"},
		"reasons to give pods back": {"drawbridge_surge_given_back_total reason", "../internal/metrics", "GivenBack"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := constants(t, tc.folder, tc.prefix)
			slices.Sort(want)
			got := slices.Sorted(slices.Values(values[tc.label]))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("values (-source +catalog):\n%s", diff)
			}
		})
	}
}

// Who makes a metric without naming it in the catalog must not go unnoticed.
func TestMetricsAreMadeFromTheCatalog(t *testing.T) {
	files, err := filepath.Glob("../internal/metrics/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "catalog.go" {
			continue
		}
		if strings.Contains(page(t, file), "Opts{") {
			t.Errorf("%s makes a metric by itself; describe it by a metrics.Metric", file)
		}
	}
}

// The page of a registration lists every field that expressions can read.
func TestEveryFieldThatExpressionsReadIsDocumented(t *testing.T) {
	content := page(t, "reference/evictioninterceptor.md")
	for part, declared := range podcache.Type().Fields {
		for name := range declared.Type.Fields {
			if !strings.Contains(content, "`"+name+"`") {
				t.Errorf("object.%s.%s is not documented", part, name)
			}
		}
	}
}

// constants returns the string constants of the Go files whose name has the prefix.
func constants(t *testing.T, folder, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(folder), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
			return true
		})
	}
	if len(values) == 0 {
		t.Fatalf("no constants %s* in %s", prefix, folder)
	}
	return values
}

func TestEveryReasonIsDocumented(t *testing.T) {
	cases := map[string]struct{ page, folder, prefix string }{
		"events":                 {"reference/events.md", "../internal/events", "Reason"},
		"answers":                {"reference/answers.md", "../translate", "Reason"},
		"caller classes":         {"reference/metrics.md", "../translate", "Class"},
		"results of attempts":    {"runbooks/blocked-by-a-budget.md", "../translate", "Result"},
		"reasons of conditions":  {"concepts.md", "../api/v1alpha1", "Reason"},
		"stages of maintenances": {"reference/nodemaintenance.md", "../api/v1alpha1", "Stage"},
		"verdicts of the plugin": {"guides/plugin.md", "../cmd/kubectl-drawbridge/why", "Verdict"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			content := page(t, tc.page)
			for _, value := range constants(t, tc.folder, tc.prefix) {
				if name == "results of attempts" && (value == "evicted" || value == "gone" || value == "replaced") {
					continue // No failures; they stand with the metric.
				}
				if !regexp.MustCompile(`(^|[^-\w])` + regexp.QuoteMeta(value) + `($|[^-\w])`).MatchString(content) {
					t.Errorf("%s does not mention %s", tc.page, value)
				}
			}
		})
	}
}

// The texts that callers see stand in the page word by word.
func TestTheTextsOfAnswersAreQuoted(t *testing.T) {
	content := page(t, "reference/answers.md")
	for _, prefix := range []string{"EvacuationTriggered", "NotCoordinated", "NotStarted", "DryRunWarning"} {
		for _, text := range constants(t, "../translate", prefix) {
			if !strings.Contains(content, text) {
				t.Errorf("answers.md does not quote %q", text)
			}
		}
	}
}

// The page of the feature gates lists each with its stage and default.
func TestEveryFeatureGateIsDocumented(t *testing.T) {
	content := page(t, "operations/feature-gates.md")
	for _, name := range features.Names() {
		stage, on := features.Stage(name)
		for line := range strings.Lines(content) {
			if strings.HasPrefix(line, "| `"+name+"` |") && strings.Contains(strings.ToUpper(line), "| "+stage+" | "+strings.ToUpper(strconv.FormatBool(on))+" |") {
				name = ""
			}
		}
		if name != "" {
			t.Errorf("%s is not documented as %s, default %t", name, stage, on)
		}
	}
}
