package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completing are options for a cluster at that address, and namespace shop.
func completing(t *testing.T, server string) *Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u","namespace":"shop"}}],"current-context":"x","users":[{"name":"u","user":{}}]}`, server)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	*o.Config.KubeConfig = path
	return o
}

// lister answers lists with these pages of names, by their paths, and records the calls.
type lister struct {
	t     *testing.T
	pages map[string][][]string

	mu    sync.Mutex
	calls []string
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pages, known := l.pages[r.URL.Path]
	at := 0
	if token := r.URL.Query().Get("continue"); token != "" {
		if _, err := fmt.Sscan(token, &at); err != nil {
			l.t.Error(err)
		}
	}
	l.mu.Lock()
	l.calls = append(l.calls, r.URL.Path)
	l.mu.Unlock()
	if !known || at >= len(pages) {
		w.WriteHeader(http.StatusGone)
		return
	}
	if limit := r.URL.Query().Get("limit"); limit != "500" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		l.t.Errorf("limit %q, accepted is %q", limit, r.Header.Get("Accept"))
	}
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for _, name := range pages[at] {
		if name == "gone" { // The next page cannot be read any more.
			list.Continue = "999"
			continue
		}
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if at+1 < len(pages) {
		list.Continue = fmt.Sprint(at + 1)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		l.t.Error(err)
	}
}

func TestNamesAreCompleted(t *testing.T) {
	const (
		nodePath, podPath, namespacePath = "/api/v1/nodes", "/api/v1/namespaces/shop/pods", "/api/v1/namespaces"
		ours                             = "/apis/drawbridge.dev/v1alpha1/namespaces/shop/"
	)
	many := make([]string, completionPage)
	for i := range many {
		many[i] = fmt.Sprintf("node-%d", i)
	}
	nodes := func(names ...string) map[string][][]string { return map[string][][]string{nodePath: {names}} }
	cases := map[string]struct {
		pages    map[string][][]string
		complete func(*Options) cobra.CompletionFunc
		args     []string
		typed    string
		want     []string
		calls    int
	}{
		"nodes":                    {nodes("a-1", "b-1"), anyNode, nil, "", []string{"a-1", "b-1"}, 1},
		"by what was typed":        {nodes("a-1", "b-1"), anyNode, nil, "b", []string{"b-1"}, 1},
		"those given are left out": {nodes("a-1", "b-1", "c-1"), anyNode, []string{"a-1", "no/b-1"}, "", []string{"c-1"}, 1},
		"with their kind":          {nodes("a-1", "b-1"), anyNode, nil, "node/a", []string{"node/a-1"}, 1},
		"no second node":           {nodes("a-1"), func(o *Options) cobra.CompletionFunc { return o.CompleteNodes(1) }, []string{"b-1"}, "", nil, 0},
		"pods":                     {map[string][][]string{podPath: {{"db-0", "web-0"}}}, func(o *Options) cobra.CompletionFunc { return o.CompletePod }, nil, "pod/d", []string{"pod/db-0"}, 1},
		"namespaces":               {map[string][][]string{namespacePath: {{"shop", "vms"}}}, func(o *Options) cobra.CompletionFunc { return o.CompleteNamespaces }, nil, "v", []string{"vms"}, 1},
		"hooks":                    {map[string][][]string{ours + "evacuationhooks": {{"dump"}}}, func(o *Options) cobra.CompletionFunc { return o.CompleteFirst(HookResource) }, nil, "", []string{"dump"}, 1},
		"budgets":                  {map[string][][]string{ours + "evictionbudgets": {{"db"}}}, func(o *Options) cobra.CompletionFunc { return o.CompleteFirst(BudgetResource) }, nil, "", []string{"db"}, 1},
		"no second hook":           {nil, func(o *Options) cobra.CompletionFunc { return o.CompleteFirst(HookResource) }, []string{"dump"}, "", nil, 0},
		"from the second page":     {map[string][][]string{nodePath: {{"a-1"}, {"b-1"}}}, anyNode, nil, "b", []string{"b-1"}, 2},
		"not more than are read":   {map[string][][]string{nodePath: {many, {"node-x"}}}, anyNode, nil, "node", many, 1},
		"a page that is not there": {nodes("a-1", "gone"), anyNode, nil, "a", []string{"a-1"}, 2},
		"no kind of that name":     {nil, anyNode, nil, "", nil, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &lister{t: t, pages: tc.pages}
			server := httptest.NewServer(l)
			t.Cleanup(server.Close)
			got, directive := tc.complete(completing(t, server.URL))(completionCommand(t.Context()), tc.args, tc.typed)
			if diff := cmp.Diff(tc.want, got); diff != "" || directive != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("directive %d, names (-want +got):\n%s", directive, diff)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.calls) != tc.calls {
				t.Errorf("%d calls, want %d: %q", len(l.calls), tc.calls, l.calls)
			}
		})
	}
}

func anyNode(o *Options) cobra.CompletionFunc { return o.CompleteNodes(0) }

func completionCommand(ctx context.Context) *cobra.Command {
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	return cmd
}

// Whatever is wrong with the cluster, the shell gets an answer in time, and no names of files.
func TestNothingIsOfferedWithoutACluster(t *testing.T) {
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(hanging.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(refusing.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, server := range map[string]string{"it hangs": hanging.URL, "it refuses": refusing.URL, "it is gone": gone.URL, "it has no address": "://"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			got, directive := anyNode(completing(t, server))(completionCommand(ctx), nil, "")
			if len(got) > 0 || directive != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("directive %d, names %q", directive, got)
			}
		})
	}
}

// A call that discovers kinds does not know when a completion has to end.
func TestCallsOfCompletionsAreShort(t *testing.T) {
	o := completing(t, "http://127.0.0.1:1")
	for want, connect := range map[time.Duration]func() (*Connection, error){CallTimeout: o.Connect, completionTimeout: func() (*Connection, error) { return o.connect(completionTimeout) }} {
		c, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		if c.REST.Timeout != want {
			t.Errorf("timeout %s, want %s", c.REST.Timeout, want)
		}
	}
}
