package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

var fence = regexp.MustCompile("(?ms)^```(?:go|yaml)\n(.*?)^```$")

// Code that is shown is code that is compiled and tested.
func TestCodeStandsInAFileThatThePageLinksTo(t *testing.T) {
	for _, name := range []string{"guides/write-an-interceptor.md", "guides/write-a-requester.md", "guides/interceptor-client-go.md"} {
		content := page(t, name)
		var sources []string
		for _, match := range link.FindAllStringSubmatch(content, -1) {
			if ext := filepath.Ext(match[1]); ext == ".go" || ext == ".yaml" {
				source, err := os.ReadFile(filepath.Join(filepath.Dir(name), filepath.FromSlash(match[1])))
				if err != nil {
					t.Fatal(err)
				}
				sources = append(sources, string(source))
			}
		}
		blocks := fence.FindAllStringSubmatch(content, -1)
		if len(blocks) == 0 {
			t.Errorf("%s shows no code", name)
		}
		for _, block := range blocks {
			if !slices.ContainsFunc(sources, func(source string) bool { return strings.Contains(source, block[1]) }) {
				t.Errorf("%s shows code that no file it links to has:\n%s", name, block[1])
			}
		}
	}
}

// decode reads the object of a kind from manifests, and nothing it does not know.
func decode(t *testing.T, manifests []string, kind string, into any) {
	t.Helper()
	for _, manifest := range manifests {
		if strings.Contains(manifest, "\nkind: "+kind+"\n") {
			if err := yaml.UnmarshalStrict([]byte(manifest), into); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			return
		}
	}
	t.Fatalf("there is no %s", kind)
}

func TestTheManifestsOfTheExampleFitTogether(t *testing.T) {
	manifests := strings.Split(page(t, "../examples/interceptor/deploy.yaml"), "---\n")
	var (
		namespace    corev1.Namespace
		account      corev1.ServiceAccount
		binding      rbacv1.ClusterRoleBinding
		deployment   appsv1.Deployment
		registration v1alpha1.EvictionInterceptor
	)
	for kind, into := range map[string]any{
		"Namespace": &namespace, "ServiceAccount": &account, "ClusterRoleBinding": &binding,
		"Deployment": &deployment, "EvictionInterceptor": &registration,
	} {
		decode(t, manifests, kind, into)
	}
	who := v1alpha1.ServiceAccountReference{Namespace: namespace.Name, Name: account.Name}
	got := map[string]v1alpha1.ServiceAccountReference{
		"account":      {Namespace: account.Namespace, Name: account.Name},
		"deployment":   {Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName},
		"binding":      {Namespace: binding.Subjects[0].Namespace, Name: binding.Subjects[0].Name},
		"registration": registration.Spec.ServiceAccounts[0],
	}
	want := map[string]v1alpha1.ServiceAccountReference{"account": who, "deployment": who, "binding": who, "registration": who}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("whom they are about (-want +got):\n%s", diff)
	}
	if args := deployment.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--name="+registration.Name) {
		t.Errorf("the program runs with %v, registered is %s", args, registration.Name)
	}
	if !strings.Contains(page(t, "../charts/drawbridge/templates/rbac-users.yaml"), "name: {{ $name }}"+strings.TrimPrefix(binding.RoleRef.Name, "drawbridge")) {
		t.Errorf("the chart has no ClusterRole %s", binding.RoleRef.Name)
	}
}
