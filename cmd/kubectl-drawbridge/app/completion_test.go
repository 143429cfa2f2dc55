package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// offered runs the plugin as the completion of a shell does. It answers with what standard error
// has but for cobra's own line, which shells leave out.
func offered(t *testing.T, server string, args ...string) (printed, said string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x","users":[{"name":"u","user":{}}]}`, server)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	o, out, errOut := testOptions()
	command := NewCommand(o.Options)
	command.SetArgs(append([]string{"__complete", "--kubeconfig=" + path}, args...))
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(errOut.String()) {
		if !strings.HasPrefix(line, "Completion ended with directive: ") {
			said += line
		}
	}
	return out.String(), said
}

// Every argument and flag that names an object is completed, and asks for its objects.
func TestWhatIsCompletedWithWhat(t *testing.T) {
	const (
		nodes, pods, namespaces = "/api/v1/nodes", "/api/v1/namespaces/shop/pods", "/api/v1/namespaces"
		ours                    = "/apis/drawbridge.dev/v1alpha1/namespaces/shop/"
	)
	cases := map[string]struct{ args, path string }{
		"status NODE":                {"status ", nodes},
		"drain NODE...":              {"drain node-0 ", nodes},
		"forecast NODE...":           {"forecast ", nodes},
		"uncordon NODE...":           {"uncordon ", nodes},
		"cancel NODE":                {"cancel ", nodes},
		"cancel pod/POD":             {"cancel -n shop pod/", pods},
		"why POD":                    {"why -n shop ", pods},
		"skip POD":                   {"skip -n shop ", pods},
		"hooks NAME":                 {"hooks -n shop x", ours + "evacuationhooks"},
		"hooks test NAME":            {"hooks test -n shop ", ours + "evacuationhooks"},
		"hooks test --pod":           {"hooks test -n shop --pod=", pods},
		"hooks retry HOOK":           {"hooks retry -n shop ", ours + "evacuationhooks"},
		"budgets NAME":               {"budgets -n shop ", ours + "evictionbudgets"},
		"dashboard export --node":    {"dashboard export --node ", nodes},
		"dashboard export --pod":     {"dashboard export -n shop --pod ", pods},
		"--namespace":                {"why --namespace ", namespaces},
		"--drawbridge-namespace":     {"doctor --drawbridge-namespace ", namespaces},
		"interceptors has none":      {"interceptors ", ""},
		"doctor has none":            {"doctor ", ""},
		"completion kubectl neither": {"completion kubectl ", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path != tc.path {
					t.Errorf("%s is read", r.URL.Path)
				}
				fmt.Fprint(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"name":"x-1"}}]}`)
			}))
			t.Cleanup(server.Close)
			words := strings.Split(tc.args, " ")
			want := ":4\n" // No names of files.
			if tc.path != "" {
				// What was typed before the name, such as pod/, stays; a flag's name does not.
				_, last, flag := strings.Cut(words[len(words)-1], "=")
				if !flag {
					last = strings.TrimSuffix(words[len(words)-1], "x")
				}
				want = last + "x-1\n" + want
			}
			printed, said := offered(t, server.URL, words...)
			if diff := cmp.Diff(want, printed); diff != "" || said != "" {
				t.Errorf("said %q, printed (-want +got):\n%s", said, diff)
			}
		})
	}
}

func TestCompletionIsSilentWithoutACluster(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, args := range []string{"status ", "why ", "skip db-0 ", "hooks retry dump ", "budgets ", "drain --namespace "} {
		t.Run(args, func(t *testing.T) {
			printed, said := offered(t, server.URL, strings.Split(args, " ")...)
			if printed != ":4\n" || said != "" {
				t.Errorf("printed %q, said %q", printed, said)
			}
		})
	}
}

func TestTheProgramForKubectlIsPrinted(t *testing.T) {
	o, out, _ := testOptions()
	command := NewCommand(o.Options)
	command.SetArgs([]string{"completion", "kubectl"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("kubectl_complete-drawbridge")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	info, err := os.Stat("kubectl_complete-drawbridge")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o111 == 0 {
		t.Error("the file is no program")
	}
}
