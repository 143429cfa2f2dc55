// Package docs checks that the pages say what the code does.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/drawbridge-dev/drawbridge/cmd/drawbridge/app"
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

// described collects the names of metrics.
type described struct {
	prometheus.Registerer
	names []string
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (d *described) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	for desc := range descs {
		d.names = append(d.names, fqName.FindStringSubmatch(desc.String())[1])
	}
	return nil
}

func (d *described) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = d.Register(c) // Never fails.
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	registry := &described{}
	metrics.NewRequests(registry)
	metrics.NewEvictor(registry)
	metrics.NewWebhook(registry)
	metrics.NewGuard(registry)
	metrics.NewSurge(registry)
	metrics.NewMaintenance(registry)
	metrics.NewVM(registry)
	metrics.NewRegistrations(registry)
	metrics.NewCertificates(registry)
	metrics.NewFailurePolicy(registry)
	if len(registry.names) == 0 {
		t.Fatal("there are no metrics")
	}
	documented := rows(page(t, "reference/metrics.md"))
	for _, name := range registry.names {
		if _, ok := documented[name]; !ok {
			t.Errorf("%s is not documented", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		if strings.Contains(name, "_") {
			t.Errorf("%s is documented but does not exist", name)
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
		"results of attempts":    {"runbooks/blocked-by-a-budget.md", "../evacuation/request", "Result"},
		"reasons of conditions":  {"concepts.md", "../api/v1alpha1", "Reason"},
		"verdicts of the plugin": {"guides/plugin.md", "../cmd/kubectl-drawbridge/story", "Verdict"},
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

var link = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(page(t, path), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(match[1]))); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
