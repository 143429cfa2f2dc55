package charts_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// third is a preset that the chart does not have, by the names of its files.
var third = map[string]string{
	"policy.yaml": `
apiVersion: drawbridge.dev/v1alpha1
kind: EvacuationPolicy
metadata:
  name: third
spec:
  interceptor: third.example.com
  pods:
    selector:
      matchLabels: {third.example.com: box}
  workload:
    apiVersion: third.example.com/v1
    kind: Box
  strategy: "'External'"
  mark:
    operations:
      - {op: add, path: /spec/leave, value: "true"}
  evacuating: workload.spec.leave == true
`,
	"registration.yaml": `
apiVersion: drawbridge.dev/v1alpha1
kind: EvictionInterceptor
metadata:
  name: third.example.com
spec:
  podSelector:
    matchLabels: {third.example.com: box}
`,
	"rbac.yaml": `
rules:
  - apiGroups: [third.example.com]
    resources: [boxes]
    verbs: [get, list, watch, patch]
`,
}

// thirdSettings is a preset.yaml for it.
const thirdSettings = `
values:
  policy.yaml:
    deadline: spec.deadline
  policy-lid.yaml:
    deadline: spec.deadline
  registration.yaml:
    priority: spec.priority
maximum:
  priority: 7
deschedulerExcept: third.example.com in (box, lid)
`

// thirdLid is a further policy of it.
var thirdLid = strings.Replace(third["policy.yaml"], "name: third", "name: third-lid", 1)

// with is the third preset with other files; one without text is left out.
func with(files map[string]string) map[string]string {
	all := maps.Clone(third)
	for name, text := range files {
		if all[name] = text; text == "" {
			delete(all, name)
		}
	}
	return all
}

// chartWith is a copy of the chart with a preset more.
func chartWith(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	chart, err := install.Chart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	preset := filepath.Join(folder, "presets", name)
	if err := os.Mkdir(preset, 0o750); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(preset, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// presetNames are the presets of the chart.
func presetNames(t *testing.T) []string {
	t.Helper()
	folders, err := os.ReadDir("drawbridge/presets")
	if err != nil || len(folders) == 0 {
		t.Fatalf("there are no presets: %v", err)
	}
	var names []string
	for _, folder := range folders {
		names = append(names, folder.Name())
	}
	return names
}

// A preset is files and a value: whoever adds one edits no template, and gets nothing of
// the other presets.
func TestAThirdPresetIsOnlyFiles(t *testing.T) {
	cases := map[string]struct {
		files    map[string]string
		values   values
		policies []string
		deadline string
		priority int32
		except   string
	}{
		"policy, registration and permissions": {files: third, values: values{"enabled": true}, policies: []string{"third"}},
		"a second policy": {
			files: with(map[string]string{"policy-lid.yaml": thirdLid}), values: values{"enabled": true}, policies: []string{"third", "third-lid"},
		},
		"values that nobody has set": {
			files: with(map[string]string{"preset.yaml": thirdSettings}), values: values{"enabled": true, "deadline": ""},
			policies: []string{"third"}, except: "third.example.com in (box, lid)",
		},
		"values of its own": {
			files:    with(map[string]string{"policy-lid.yaml": thirdLid, "preset.yaml": thirdSettings}),
			values:   values{"enabled": true, "deadline": "1h", "priority": 7},
			policies: []string{"third", "third-lid"}, deadline: "1h0m0s", priority: 7, except: "third.example.com in (box, lid)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := renderWith(t, install.Options{
				Chart: chartWith(t, "third", tc.files), Values: values{"vm": values{"third": tc.values}, "serviceAccount": values{"name": "acct"}},
			})
			p := presetOf(t, objects, "drawbridge-third")
			if p == nil {
				t.Fatal("there is no preset third")
			}
			if diff := cmp.Diff(tc.policies, slices.Sorted(maps.Keys(p.policies))); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
			for _, policy := range p.policies {
				deadline := ""
				if policy.Spec.Deadline != nil {
					deadline = policy.Spec.Deadline.Duration.String()
				}
				if deadline != tc.deadline {
					t.Errorf("policy %s has the deadline %q, want %q", policy.Name, deadline, tc.deadline)
				}
			}
			spec := v1alpha1.EvictionInterceptorSpec{
				PodSelector:     p.policies["third"].Spec.Pods.Selector,
				ServiceAccounts: []v1alpha1.ServiceAccountReference{{Namespace: install.DefaultNamespace, Name: "acct"}},
			}
			if tc.priority != 0 {
				spec.Priority = &tc.priority
			}
			if diff := cmp.Diff(spec, p.registration.Spec); diff != "" {
				t.Errorf("registration (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"get boxes", "list boxes", "patch boxes", "watch boxes"}, may(p.role)); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
			args := only[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Args
			if !slices.Contains(args, "--evacuation-preset=drawbridge-third") {
				t.Errorf("the manager is not told of the preset: %q", args)
			}
			if got := slices.Contains(args, "--descheduler-except="+tc.except); got != (tc.except != "") {
				t.Errorf("the manager is told an exception for the descheduler: %t, want %q: %q", got, tc.except, args)
			}
			nothingOfTheOthers(t, objects)
		})
	}
}

// nothingOfTheOthers checks that no object comes from a preset of the chart itself.
func nothingOfTheOthers(t *testing.T, objects []runtime.Object) {
	t.Helper()
	for _, name := range presetNames(t) {
		if presetOf(t, objects, "drawbridge-"+name) != nil {
			t.Errorf("there is the preset %s, too", name)
		}
		for _, arg := range only[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Args {
			if strings.Contains(arg, name) {
				t.Errorf("the manager is told %s", arg)
			}
		}
	}
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				if strings.Contains(group, "kubevirt") {
					t.Errorf("role %s has permissions for %s", role.Name, group)
				}
			}
		}
	}
}

// A branch on a name would be one that the next preset falls out of.
func TestNoTemplateNamesAPreset(t *testing.T) {
	names := regexp.MustCompile(`(?i)` + strings.Join(presetNames(t), "|"))
	files := 0
	err := filepath.WalkDir("drawbridge/templates", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if found := names.Find(data); found != nil {
			t.Errorf("%s names %s", path, found)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d templates: %v", files, err)
	}
}

// presetSettings is what a preset.yaml may have.
type presetSettings struct {
	Values            map[string]map[string]string `json:"values"`
	Maximum           map[string]int               `json:"maximum"`
	Gone              map[string]string            `json:"gone"`
	DeschedulerExcept string                       `json:"deschedulerExcept"`
}

// What the render would not tell: a file that is not read, a value without a default, a
// policy that no registration brings pods to.
func TestPresetsAreWhole(t *testing.T) {
	var defaults struct {
		VM map[string]map[string]any `json:"vm"`
	}
	data, err := os.ReadFile("drawbridge/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &defaults); err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`^(policy|policy-[-a-z0-9]+|registration|rbac|preset)\.yaml$`)
	for _, name := range presetNames(t) {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join("drawbridge", "presets", name)
			files, err := os.ReadDir(folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if !known.MatchString(file.Name()) {
					t.Errorf("nothing reads the file %s", file.Name())
				}
			}

			var settings presetSettings
			if data, err := os.ReadFile(filepath.Join(folder, "preset.yaml")); err == nil {
				if err := yaml.UnmarshalStrict(data, &settings); err != nil {
					t.Fatal(err)
				}
			} else if !os.IsNotExist(err) {
				t.Fatal(err)
			}
			want := []string{"enabled"}
			for file, fields := range settings.Values {
				if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
					t.Errorf("values are for a file that is not there: %v", err)
				}
				want = slices.AppendSeq(want, maps.Keys(fields))
			}
			slices.Sort(want)
			if diff := cmp.Diff(slices.Compact(want), slices.Sorted(maps.Keys(defaults.VM[name]))); diff != "" {
				t.Errorf("values (-in preset.yaml +in values.yaml):\n%s", diff)
			}

			objects := render(t, values{"vm": values{name: values{"enabled": true}}})
			var roles []string
			for _, role := range all[*rbacv1.ClusterRole](objects) {
				if slices.Contains(roles, role.Name) {
					t.Errorf("two roles are named %s", role.Name)
				}
				roles = append(roles, role.Name)
			}
			p := presetOf(t, objects, "drawbridge-"+name)
			for _, policy := range p.policies {
				if policy.Spec.Interceptor != p.registration.Name {
					t.Errorf("policy %s is of interceptor %s, and %s is registered", policy.Name, policy.Spec.Interceptor, p.registration.Name)
				}
			}
		})
	}
}

func TestBadPresetsAreRefused(t *testing.T) {
	cases := map[string]struct {
		name   string
		files  map[string]string
		values values
		want   string
	}{
		"no policy":           {files: with(map[string]string{"policy.yaml": ""}), want: "presets/third/policy.yaml is missing or empty"},
		"no registration":     {files: with(map[string]string{"registration.yaml": ""}), want: "presets/third/registration.yaml is missing or empty"},
		"no permissions":      {files: with(map[string]string{"rbac.yaml": ""}), want: "presets/third/rbac.yaml is missing or empty"},
		"a file that is none": {files: with(map[string]string{"policy.yaml": "a: [b"}), want: "presets/third/policy.yaml: error converting YAML"},
		"settings that are none": {
			files: with(map[string]string{"preset.yaml": "a: [b"}), want: "presets/third/preset.yaml: error converting YAML",
		},
		"a value that it does not have": {
			files: third, values: values{"third": values{"enabled": true, "priority": 3}}, want: "vm.third.priority: the preset third has no such value; it has enabled",
		},
		"a value out of its bounds": {
			files: with(map[string]string{"preset.yaml": thirdSettings}), values: values{"third": values{"priority": 8}},
			want: "vm.third.priority must not be more than 7, not 8",
		},
		"an exception for the descheduler besides another": {
			files:  with(map[string]string{"preset.yaml": "deschedulerExcept: a=b"}),
			values: values{"third": values{"enabled": true}, "kubevirt": values{"enabled": true}},
			want:   "the presets kubevirt and third both set deschedulerExcept",
		},
		"a name that is too long": {
			name: strings.Repeat("a", 25), files: third, values: values{strings.Repeat("a", 25): values{"enabled": true}},
			want: "the name of a preset is of at most 24",
		},
		"a value of a preset beside it": {files: third, values: values{"fourth": values{}}, want: "vm.fourth: there is no preset fourth; there are kubevirt, strimzi, third"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.name == "" {
				tc.name = "third"
			}
			if tc.values == nil {
				tc.values = values{"third": values{"enabled": true}}
			}
			_, err := template(t, install.Options{Chart: chartWith(t, tc.name, tc.files), Values: values{"vm": tc.values}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error does not say %q: %v", tc.want, err)
			}
		})
	}
}
