package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/guard"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

const evil = `<script>alert("x")</script>`

// source is a cluster that changes when the test wants.
type source struct {
	mu    sync.Mutex
	now   state.Snapshot
	newer chan struct{}
}

func (s *source) Snapshot() *state.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now
	return &now
}

func (s *source) Wait(ctx context.Context, version uint64) {
	s.mu.Lock()
	now, newer := s.now.Version, s.newer
	s.mu.Unlock()
	if now != version {
		return
	}
	select {
	case <-newer:
	case <-ctx.Done():
	}
}

func (s *source) change(change func(*state.Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.now)
	s.now.Version++
	close(s.newer)
	s.newer = make(chan struct{})
}

// actions note what they are told.
type actions struct {
	mu   sync.Mutex
	done []string
	err  error
}

func (a *actions) Plan(_ context.Context, verb string, values url.Values) (act.Plan, error) {
	switch verb {
	case "drain":
		return act.Plan{
			Title: "Drain " + values.Get("node"), Lines: []string{evil}, Table: [][]string{{"POD"}, {evil}}, Command: "kubectl drawbridge drain " + evil,
			Fields: []act.Field{{Name: "reason", Label: evil, Value: evil}, {Name: "force", Label: "Force", Check: true, Value: "true"}}, Submit: "Drain",
		}, nil
	case "refused":
		return act.Plan{Title: "No", Refused: evil, Submit: "Do"}, nil
	case "broken":
		return act.Plan{}, errors.New(evil)
	default:
		return act.Plan{}, act.ErrUnknown
	}
}

func (a *actions) Do(_ context.Context, verb string, values url.Values) (act.Result, error) {
	if verb != "drain" {
		return act.Result{}, act.ErrUnknown
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = append(a.done, verb+" "+values.Encode())
	return act.Result{Lines: []string{"done " + evil}, Warnings: []string{evil}, Command: evil}, a.err
}

// world is a dashboard that is served, and a browser of its user.
type world struct {
	*testing.T
	source  *source
	actions *actions
	url     string
	browser *http.Client
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "db-0", errors.New(evil))

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{T: t, source: &source{newer: make(chan struct{}), now: state.Snapshot{Version: 1}}, actions: &actions{}}
	server := httptest.NewUnstartedServer(nil)
	port := server.Listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // It listens on TCP.
	door, err := guard.New(port)
	if err != nil {
		t.Fatal(err)
	}
	fails := func(err error) func(context.Context, page.Request) (page.Content, error) {
		return func(context.Context, page.Request) (page.Content, error) { return page.Content{Title: "x"}, err }
	}
	o := Options{
		Clock: clock.RealClock{}, Guard: door, Source: w.source, Actions: w.actions, Cluster: evil,
		Pages: []page.Page{
			{Pattern: "/", Section: "Drains", Render: func(context.Context, page.Request) (page.Content, error) {
				return page.Content{Title: evil, Section: "Drains", Fragments: []live.Fragment{{ID: "n", HTML: "<p id=\"n\">nodes</p>"}}}, nil
			}},
			{Pattern: "/nodes/{node}", Render: func(_ context.Context, r page.Request) (page.Content, error) {
				if r.Snapshot.NodeByName[r.Values["node"]] == nil {
					return page.Content{}, errors.Join(page.ErrNotFound, errors.New(evil))
				}
				return page.Content{Title: r.Values["node"], Fragments: []live.Fragment{{ID: "n", HTML: "<p id=\"n\">the node</p>"}}}, nil
			}},
			{Pattern: "/forbidden", Render: fails(forbidden)},
			{Pattern: "/broken", Render: fails(errors.New("the API server is away"))},
		},
	}
	if change != nil {
		change(&o)
	}
	server.Config.Handler = Handler(o)
	server.Start()
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.url, w.browser = server.URL, &http.Client{Jar: jar}
	if got := w.get(strings.TrimPrefix(door.URL(), server.URL)); got.status != http.StatusOK {
		t.Fatalf("the first address answers %d", got.status)
	}
	return w
}

type answer struct {
	status int
	body   string
	header http.Header
}

func (w *world) ask(method, path string, form url.Values) answer {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		w.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", w.url)
	}
	response, err := w.browser.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	return answer{response.StatusCode, string(body), response.Header}
}

func (w *world) get(path string) answer { w.Helper(); return w.ask(http.MethodGet, path, nil) }

var csrf = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// form is what a browser posts from the page of an action.
func (w *world) form(path string, more url.Values) url.Values {
	w.Helper()
	found := csrf.FindStringSubmatch(w.get(path).body)
	if found == nil {
		w.Fatalf("%s has no form", path)
	}
	more.Set("csrf", found[1])
	return more
}

func TestPages(t *testing.T) {
	w := newWorld(t, nil)
	node := builder.Node("node-1").Obj()
	w.source.change(func(s *state.Snapshot) {
		*s = *state.NewSnapshot(time.Time{}, node)
		s.Gaps = []state.Gap{{Resource: "pods", Why: evil, Since: time.Now()}}
	})
	cases := map[string]struct {
		path   string
		status int
		says   string
	}{
		"a page":                             {"/", http.StatusOK, "nodes"},
		"a page of a node":                   {"/nodes/node-1", http.StatusOK, "the node"},
		"a node that is not there":           {"/nodes/nowhere", http.StatusNotFound, "not found"},
		"no page":                            {"/nowhere", http.StatusNotFound, "There is no such page."},
		"a page that may not be read":        {"/forbidden", http.StatusForbidden, "forbidden"},
		"a page whose cluster is away":       {"/broken", http.StatusBadGateway, "the API server is away"},
		"the page of an action":              {"/act/drain?node=node-1", http.StatusOK, "Drain node-1"},
		"an action that cannot be done":      {"/act/refused", http.StatusOK, "disabled"},
		"an action that cannot be planned":   {"/act/broken", http.StatusBadGateway, "Not possible"},
		"no action":                          {"/act/nothing", http.StatusNotFound, "there is no such action"},
		"changes of a page elsewhere":        {"/live?path=http://example.com/", http.StatusBadRequest, "does not name a page"},
		"changes of no page":                 {"/live", http.StatusBadRequest, "does not name a page"},
		"the stylesheet":                     {"/assets/style.css", http.StatusOK, ".state"},
		"what is missing, on every page":     {"/", http.StatusOK, "<code>pods</code>"},
		"a file that is none of the assets'": {"/assets/assets.go", http.StatusNotFound, "404"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := w.get(tc.path)
			if got.status != tc.status || !strings.Contains(got.body, tc.says) {
				t.Errorf("want %d and %q, got %d:\n%s", tc.status, tc.says, got.status, got.body)
			}
			// Each of these pages has words of strangers: in its title, its notices, its form.
			if strings.Contains(got.body, "<script>alert") {
				t.Errorf("a script of strangers is in:\n%s", got.body)
			}
			if got.header.Get("Content-Security-Policy") != guard.Policy {
				t.Errorf("the policy is %q", got.header.Get("Content-Security-Policy"))
			}
		})
	}
}

func TestAnActionIsAskedForOnceMore(t *testing.T) {
	w := newWorld(t, nil)
	path := "/act/drain?node=node-1&other=x"
	asked := w.get(path).body
	for _, want := range []string{`name="node" value="node-1"`, `name="force" value="true" checked`, `type="submit"`} {
		if !strings.Contains(asked, want) {
			t.Errorf("want %s in:\n%s", want, asked)
		}
	}
	if strings.Contains(asked, `name="other"`) {
		t.Error("the form has a value that no action knows")
	}
	if len(w.actions.done) != 0 {
		t.Errorf("asking has done %v", w.actions.done)
	}
	got := w.ask(http.MethodPost, path, w.form(path, url.Values{"node": {"node-1"}, "reason": {"it's time"}}))
	if got.status != http.StatusOK || !strings.Contains(got.body, "done &lt;script&gt;") || strings.Contains(got.body, "<script>alert") {
		t.Errorf("got %d:\n%s", got.status, got.body)
	}
	if diff := cmp.Diff([]string{"drain node=node-1&reason=it%27s+time"}, w.actions.done); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	w.actions.err = forbidden
	got = w.ask(http.MethodPost, path, w.form(path, url.Values{"node": {"node-1"}}))
	if got.status != http.StatusForbidden || !strings.Contains(got.body, "Not done") || strings.Contains(got.body, "<script>alert") {
		t.Errorf("got %d:\n%s", got.status, got.body)
	}
	w.actions.err = errors.New("it has changed")
	if got := w.ask(http.MethodPost, path, w.form(path, url.Values{})); got.status != http.StatusConflict {
		t.Errorf("want 409, got %d:\n%s", got.status, got.body)
	}
}

func TestNothingIsDoneWithoutTheForm(t *testing.T) {
	w := newWorld(t, nil)
	for name, form := range map[string]url.Values{"no token": {"node": {"node-1"}}, "another token": {"node": {"node-1"}, "csrf": {"AAAA"}}} {
		if got := w.ask(http.MethodPost, "/act/drain", form); got.status != http.StatusForbidden {
			t.Errorf("%s: want 403, got %d:\n%s", name, got.status, got.body)
		}
	}
	if len(w.actions.done) != 0 {
		t.Errorf("done: %v", w.actions.done)
	}
}

func TestAReadOnlyDashboardDoesNothing(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"because it was told":         func(o *Options) { o.Guard.ReadOnly = true },
		"because it has no actions":   func(o *Options) { o.Actions = nil },
		"and both reasons are enough": func(o *Options) { o.Guard.ReadOnly, o.Actions = true, nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, change)
			if got := w.get("/act/drain?node=node-1"); got.status != http.StatusForbidden || csrf.MatchString(got.body) {
				t.Errorf("the page of an action is %d:\n%s", got.status, got.body)
			}
			if got := w.get("/"); !strings.Contains(got.body, "read-only") {
				t.Errorf("the page does not say so:\n%s", got.body)
			}
			if got := w.ask(http.MethodPost, "/act/drain", url.Values{"node": {"node-1"}}); got.status != http.StatusForbidden {
				t.Errorf("want 403, got %d", got.status)
			}
			if len(w.actions.done) != 0 {
				t.Errorf("done: %v", w.actions.done)
			}
		})
	}
}

// open starts to read the changes of a page.
func (w *world) open(path string) (next func() string, status int) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+"/live?"+url.Values{"path": {path}}.Encode(), nil)
	if err != nil {
		w.Fatal(err)
	}
	response, err := w.browser.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = response.Body.Close() })
	in := bufio.NewReader(response.Body)
	return func() string {
		w.Helper()
		var all strings.Builder
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				w.Fatal(err)
			}
			if line == "\n" {
				return all.String()
			}
			all.WriteString(line)
		}
	}, response.StatusCode
}

// A page that fails goes on: its stream shows what comes later. An address that has to be
// escaped is that of the same page.
func TestChangesComeToThePage(t *testing.T) {
	w := newWorld(t, nil)
	const name = "a/<b>"
	next, status := w.open("/nodes/" + url.PathEscape(name))
	if first := next(); status != http.StatusOK || !strings.HasPrefix(first, "event: update\n") || !strings.Contains(first, "not found") || strings.Contains(first, "<script>alert") {
		t.Errorf("the first message, %d: %s", status, first)
	}
	w.source.change(func(s *state.Snapshot) { *s = *state.NewSnapshot(time.Time{}, builder.Node(name).Obj()) })
	if second := next(); !strings.Contains(second, "the node") {
		t.Errorf("the second message: %s", second)
	}
}

func TestTooManyPages(t *testing.T) {
	w := newWorld(t, nil)
	for range maxStreams {
		if next, status := w.open("/"); status != http.StatusOK || next() == "" {
			t.Fatalf("a page is refused: %d", status)
		}
	}
	if got := w.get("/live?path=/"); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("want 503 with Retry-After, got %d", got.status)
	}
	if got := w.get("/"); got.status != http.StatusOK {
		t.Errorf("pages without changes: %d", got.status)
	}
}
