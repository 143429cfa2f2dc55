package keys

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

const root = "../.."

func TestProblem(t *testing.T) {
	const surge = "drawbridge.dev/surge"
	const wrong = `label drawbridge.dev/surge (Namespace): "%s" is not understood, so it does nothing; the values are: enabled, disabled`
	cases := map[string]struct {
		written Written
		off     []string
		want    string
	}{
		"a key of somebody else":                         {written: Written{"Pod", Label, "app.kubernetes.io/name", "x"}},
		"a key without a domain":                         {written: Written{"Pod", Label, "drawbridge.dev", "x"}},
		"a key of a subdomain":                           {written: Written{"Pod", Label, "example.drawbridge.dev/surge", "x"}},
		"a key of a domain that ends like ours":          {written: Written{"Pod", Label, "mydrawbridge.dev/surge", "x"}},
		"a value that is understood":                     {written: Written{"Namespace", Label, surge, "enabled"}},
		"a value that is understood, on a pod":           {written: Written{"Pod", Label, surge, "disabled"}},
		"a value that is understood, in a template":      {written: Written{TemplateOf("Deployment"), Label, surge, "enabled"}},
		"another value":                                  {written: Written{"Namespace", Label, surge, "true"}, want: strings.ReplaceAll(wrong, "%s", "true")},
		"an empty value":                                 {written: Written{"Namespace", Label, surge, ""}, want: strings.ReplaceAll(wrong, "%s", "")},
		"a value that only begins well":                  {written: Written{"Namespace", Label, surge, "enabled-not"}, want: strings.ReplaceAll(wrong, "%s", "enabled-not")},
		"a value of an odd length":                       {written: Written{"Namespace", Label, surge, strings.Repeat("é", 61)}, want: strings.ReplaceAll(wrong, "%s", strings.Repeat("é", 60))},
		"a value that would break the line":              {written: Written{"Namespace", Label, surge, "a\n\"b\"\\"}, want: strings.ReplaceAll(wrong, "%s", "a 'b'/")},
		"a kind on which it does nothing":                {written: Written{"Deployment", Label, surge, "enabled"}, want: "label drawbridge.dev/surge (Deployment): it does nothing here, it belongs on: Namespace, Pod, pod template of a Deployment"},
		"a template in which it does nothing":            {written: Written{TemplateOf("StatefulSet"), Label, surge, "enabled"}, want: "label drawbridge.dev/surge (pod template of a StatefulSet): it does nothing here, it belongs on: Namespace, Pod, pod template of a Deployment"},
		"a key of every template":                        {written: Written{TemplateOf("StatefulSet"), Annotation, v1alpha1.InterceptorsAnnotation, "a.example.com,b.example.com"}},
		"malformed names of interceptors":                {written: Written{TemplateOf("StatefulSet"), Annotation, v1alpha1.InterceptorsAnnotation, "a.example.com, b"}, want: `annotation drawbridge.dev/interceptors (pod template of a StatefulSet): "a.example.com, b" is not understood, so it does nothing; the values are: names of interceptors: fully qualified domain names, at most 15, separated by commas without spaces`},
		"an annotation that is a label":                  {written: Written{"Namespace", Annotation, surge, "enabled"}, want: "annotation drawbridge.dev/surge (Namespace): it does nothing, because it is a label"},
		"a label that is an annotation":                  {written: Written{"Pod", Label, v1alpha1.InterceptorsAnnotation, "a.example.com"}, want: "label drawbridge.dev/interceptors (Pod): it does nothing, because it is an annotation"},
		"a key that nobody knows":                        {written: Written{"Namespace", Label, "drawbridge.dev/surg", "enabled"}, want: "label drawbridge.dev/surg (Namespace): Drawbridge knows no such key, so it does nothing; those it knows are in docs/reference/labels-and-annotations.md"},
		"a key under the name of an interceptor of ours": {written: Written{"Pod", Label, "surge.drawbridge.dev/enabled", "true"}, want: "label surge.drawbridge.dev/enabled (Pod): Drawbridge knows no such key, so it does nothing; those it knows are in docs/reference/labels-and-annotations.md"},
		"the feature is off":                             {written: Written{"Namespace", Label, surge, "enabled"}, off: []string{"surge.enabled"}, want: "label drawbridge.dev/surge (Namespace): it does nothing while the value surge.enabled of the chart is false"},
		"the feature is off, and not asked for":          {written: Written{"Namespace", Label, surge, "disabled"}, off: []string{"surge.enabled"}},
		"another feature is off":                         {written: Written{"Namespace", Label, surge, "enabled"}, off: []string{"hooks.enabled"}},
		"what Drawbridge writes":                         {written: Written{"Node", Annotation, v1alpha1.CordonAnnotation, "other"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.written.Problem(tc.off...)); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarning(t *testing.T) {
	for name, tc := range map[string]struct {
		written Written
		want    string
	}{
		"a key of users":                {written: Written{"Namespace", Label, "drawbridge.dev/surge", "enabled"}},
		"a key of the chart":            {written: Written{"Pod", Annotation, "drawbridge.dev/webhook-token", "path"}},
		"a key of Drawbridge":           {written: Written{"Node", Annotation, v1alpha1.CordonAnnotation, "other"}, want: "annotation drawbridge.dev/node-cordon (Node): Drawbridge alone writes and removes it"},
		"a key of Drawbridge elsewhere": {written: Written{"Pod", Annotation, v1alpha1.CordonAnnotation, "other"}, want: "annotation drawbridge.dev/node-cordon (Pod): it does nothing here, it belongs on: Node"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.written.Warning()); diff != "" {
				t.Errorf("warning (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOf(t *testing.T) {
	labels := map[string]string{"drawbridge.dev/surge": "enabled", "app": "x", "example.drawbridge.dev/a": "b"}
	for name, tc := range map[string]struct {
		object   Metadata
		template *Metadata
		want     []Written
	}{
		"an object without a template": {
			object: Metadata{Place: "Pod", Labels: labels, Annotations: map[string]string{"drawbridge.dev/b": "", "drawbridge.dev/a": ""}},
			want: []Written{
				{"Pod", Label, "drawbridge.dev/surge", "enabled"}, {"Pod", Annotation, "drawbridge.dev/a", ""}, {"Pod", Annotation, "drawbridge.dev/b", ""},
			},
		},
		"the same in the template counts there": {
			object: Metadata{Place: "Job", Labels: labels}, template: &Metadata{Place: TemplateOf("Job"), Labels: labels},
			want: []Written{{TemplateOf("Job"), Label, "drawbridge.dev/surge", "enabled"}},
		},
		"another value in the template is another thing": {
			object: Metadata{Place: "Job", Labels: labels}, template: &Metadata{Place: TemplateOf("Job"), Labels: map[string]string{"drawbridge.dev/surge": "disabled"}},
			want: []Written{{"Job", Label, "drawbridge.dev/surge", "enabled"}, {TemplateOf("Job"), Label, "drawbridge.dev/surge", "disabled"}},
		},
		"a request has the labels of its pod": {
			object: Metadata{Place: "EvictionRequest", Labels: labels, Annotations: labels},
			want:   []Written{{"EvictionRequest", Annotation, "drawbridge.dev/surge", "enabled"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of(tc.object, tc.template)); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheFilesAreOfThisTable(t *testing.T) {
	chart, err := ChartFile()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"charts/drawbridge/files/keys.json": chart, Page: ReferencePage()} {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is old: run make generate-docs (-want +got):\n%s", path, diff)
		}
	}
}

// A key that is not in the table would be warned of wherever it stands.
func TestEveryKeyOfTheSourcesIsInTheTable(t *testing.T) {
	found := map[string]string{}
	for _, folder := range []string{"api", "cmd", "evacuation", "internal", "pdb", "translate", "webhook"} {
		walk(t, folder, ".go", func(path string) {
			if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/keys/") {
				return
			}
			for _, key := range keysOf(t, path) {
				found[key] = path
			}
		})
	}
	inChart := regexp.MustCompile(`\bdrawbridge\.dev/[-A-Za-z0-9.]*[A-Za-z0-9]`)
	walk(t, "charts/drawbridge", ".yaml", func(path string) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range inChart.FindAllIndex(content, -1) {
			if at[0] == 0 || !strings.ContainsRune(".-", rune(content[at[0]-1])) {
				found[string(content[at[0]:at[1]])] = path
			}
		}
	})
	delete(found, v1alpha1.SchemeGroupVersion.String())
	if len(found) < 25 {
		t.Errorf("only %d keys were found in the sources", len(found))
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if byKey(key) == nil {
			t.Errorf("%s of %s is not in the table", key, found[key])
		}
	}
	for i := range Rows {
		if _, ok := found[Rows[i].Key]; !ok {
			t.Errorf("%s is in the table and nowhere else", Rows[i].Key)
		}
	}
}

func walk(t *testing.T, folder, extension string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == extension {
			visit(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// keysOf returns the constants of a file that are keys: literals, and those that follow
// GroupName.
func keysOf(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	add := func(value string) {
		name, ok := strings.CutPrefix(value, v1alpha1.GroupName+"/")
		if ok && regexp.MustCompile(`^[-A-Za-z]+$`).MatchString(name) {
			all = append(all, value)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if value, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				add(value)
			}
		case *ast.BinaryExpr:
			literal, ok := n.Y.(*ast.BasicLit)
			if ok && n.Op == token.ADD && isGroupName(n.X) {
				if value, err := strconv.Unquote(literal.Value); err == nil {
					add(v1alpha1.GroupName + value)
				}
			}
		}
		return true
	})
	return all
}

func isGroupName(e ast.Expr) bool {
	if selector, ok := e.(*ast.SelectorExpr); ok {
		x, isIdent := selector.X.(*ast.Ident)
		return isIdent && x.Name == "v1alpha1" && selector.Sel.Name == "GroupName"
	}
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "GroupName"
}
