//go:build unix

package dashboard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	plugin "github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/app/cli"
	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
)

// Every page of a cluster in which a lot is going on: without an error of the browser,
// without a serious violation of accessibility, narrow and wide, light and dark. It also
// takes the pictures.
func TestEveryPage(t *testing.T) {
	needBrowser(t)
	s := tell(t)
	pictureTerminal(t, s.terminal, "kubectl drawbridge drain worker-a1 --reason='kernel update'", "terminal-drain")
	d := runDashboard(t, olga(t), s.clock)
	tab := newTab(t)
	tab.Open(d.first)

	pages := map[string]struct {
		path string
		// shows is what must be on it.
		shows []string
	}{
		"drains":       {"/", []string{"worker-a1", "worker-b1", "kernel update", "alice"}},
		"node":         {"/nodes/worker-a1", []string{"vm-mail", "ledger-0", "queue-0", "copying memory"}},
		"pod":          {"/pods/shop/ledger-0", []string{handover, "handing over to a peer"}},
		"interceptors": {"/interceptors", []string{migrate, "dump"}},
		"budgets":      {"/budgets", []string{"db", "queue"}},
		"forecast":     {"/forecast?node=worker-a2", []string{"worker-a2", "queue-1"}},
		"confirm":      {"/act/drain?node=worker-a2", []string{"worker-a2", "kubectl drawbridge drain worker-a2"}},
	}
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			tab.Scheme("light")
			tab.Size(browser.Wide, 800)
			tab.Open(d.at(page.path))
			for _, words := range page.shows {
				tab.Shows("main", words)
			}
			if name != "confirm" {
				picture(tab, "dashboard-"+name)
			}
			for _, scheme := range []string{"light", "dark"} {
				for _, width := range []int64{browser.Wide, browser.Narrow} {
					tab.Scheme(scheme)
					tab.Size(width, 800)
					what := fmt.Sprintf("%s, %s, %d px", name, scheme, width)
					for _, v := range tab.Accessible(what) {
						t.Logf("%s: %s", what, v)
					}
					fits(t, tab, what)
					if *every != "" {
						tab.Picture(filepath.Join(*every, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)))
					}
					if name == "node" && scheme == "dark" && width == browser.Wide {
						picture(tab, "dashboard-node-dark")
					}
				}
			}
		})
	}
	t.Run("a page that is not there", func(*testing.T) {
		tab.Expect("404")
		tab.Open(d.at("/nodes/no-such-node"))
		tab.Shows("body", "no-such-node")
		tab.Accessible("a page that is not there")
	})
	t.Run("export", func(t *testing.T) { export(t, s.clock) })
}

// fits wants that nothing is wider than the window but what scrolls by itself.
func fits(t *testing.T, tab *browser.Tab, what string) {
	t.Helper()
	if wide := browser.Eval[int](tab, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); wide > 0 {
		widest := browser.Eval[string](tab, `[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.tagName + '.' + e.getAttribute('class') + '#' + e.id).slice(0, 5).join(' ')`)
		t.Errorf("%s: the page is %d px wider than the window: %s", what, wide, widest)
	}
}

// export saves a page as a file, which needs nothing else.
func export(t *testing.T, c clock.WithTicker) {
	t.Helper()
	file := runPlugin(t, c, "dashboard", "export", "--node=worker-a1")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("the file needs %s", r.URL)
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, file) // The browser has gone.
	}))
	t.Cleanup(server.Close)
	tab := newTab(t)
	tab.Open(server.URL)
	tab.Shows("main", "vm-mail")
	if n := browser.Eval[int](tab, `document.querySelectorAll('[src]:not([src^="data:"]), link[href]:not([href^="data:"]), form, script[src]').length`); n != 0 {
		t.Errorf("the file has %d references to others, or forms", n)
	}
	tab.Accessible("the exported file")
	fits(t, tab, "the exported file")
}

// runPlugin runs a command of the plugin to its end, as olga, and returns what it prints.
func runPlugin(t *testing.T, c clock.WithTicker, args ...string) string {
	t.Helper()
	return runPluginWith(t, olga(t), c, append(args, "--drawbridge-namespace="+inst.Namespace)...)
}

// runPluginWith does so with another kubeconfig. The clock may be nil.
func runPluginWith(t *testing.T, kubeconfig string, c clock.WithTicker, args ...string) string {
	t.Helper()
	var out, stderr strings.Builder
	o := cli.DefaultOptions()
	o.IOStreams = genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &stderr}
	if c != nil {
		o.Clock = c
	}
	o.Size = func() (int, int, bool) { return 0, 0, false }
	command := plugin.NewCommand(o)
	command.SetArgs(append(args, "--kubeconfig="+kubeconfig))
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %s %s", args, plugin.Explain(err), stderr.String())
	}
	return out.String()
}
