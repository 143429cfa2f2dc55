package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestExplain(t *testing.T) {
	forbidden := apierrors.NewForbidden(v1alpha1.Resource("evictionrequests"), "", errors.New(`User "bob" cannot list resource "evictionrequests"`))
	cases := map[string]struct {
		err  error
		want string
		code int
	}{
		"nothing":       {nil, "", 0},
		"^C":            {fmt.Errorf("wrapped: %w", cli.ErrInterrupted), "", 130},
		"no permission": {fmt.Errorf("list: %w", forbidden), "error: no permission: evictionrequests.drawbridge.dev is forbidden: User \"bob\" cannot list resource \"evictionrequests\"\nThe ClusterRole drawbridge-operator", 1},
		"logged out":    {apierrors.NewUnauthorized("no"), "error: the API server does not know who you are", 1},
		"anything else": {errors.New("boom"), "error: boom", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Explain(tc.err); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("text %q, want %q", got, tc.want)
			}
			if got := ExitCode(tc.err); got != tc.code {
				t.Errorf("exit code %d, want %d", got, tc.code)
			}
		})
	}
}

// run runs a command against a server.
func run(t *testing.T, handler http.Handler, args ...string) (said string, code int) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	o, _, errOut := testOptions()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	command := NewCommand(o.Options)
	command.SetArgs(append([]string{"--server=" + server.URL}, args...))
	err := command.ExecuteContext(context.Background())
	return errOut.String() + Explain(err), ExitCode(err)
}

// A cluster that was never told of Drawbridge.
func TestTheAPIIsNotInstalled(t *testing.T) {
	known := map[string]any{
		"/api":                                 metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":                                metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/version":                             map[string]string{"gitVersion": "v1.37.1"},
		"/api/v1":                              metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "nodes", Kind: "Node"}, {Name: "pods", Kind: "Pod", Namespaced: true}}},
		"/api/v1/nodes/node-1":                 builder.Node("node-1").Obj(),
		"/api/v1/namespaces/default/pods/db-0": builder.Pod("default", "db-0").Obj(),
	}
	cluster := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := known[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
	for name, args := range map[string][]string{
		"status": {"status"}, "drain": {"drain", "node-1"}, "why": {"why", "db-0", "-n", "default"}, "uncordon": {"uncordon", "node-1"}, "interceptors": {"interceptors"},
	} {
		t.Run(name, func(t *testing.T) {
			said, code := run(t, cluster, args...)
			if diff := cmp.Diff(notInstalled, said); diff != "" || code != 1 {
				t.Errorf("exit code %d, text (-want +got):\n%s", code, diff)
			}
		})
	}
	if said, code := run(t, cluster, "version"); code != 0 {
		t.Errorf("version fails with %d: %s", code, said)
	}
}
