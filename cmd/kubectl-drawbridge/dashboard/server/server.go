// Package server serves the dashboard to the user's own browser.
package server

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/assets"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/guard"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// maxStreams is how many pages may be open at a time.
const maxStreams = 32

//go:embed templates/*.html
var files embed.FS

var templates = template.Must(template.ParseFS(files, "templates/*.html"))

// Source is the watched cluster.
type Source interface {
	// Snapshot returns what is known now.
	Snapshot() *state.Snapshot
	// Wait returns when there is something newer than the version, or when the context ends.
	Wait(ctx context.Context, version uint64)
}

// Options of a dashboard. All but Actions are required; without them nothing can be done.
type Options struct {
	Clock   clock.WithTicker
	Guard   *guard.Guard
	Source  Source
	Backend page.Backend
	Actions act.Actions
	Pages   []page.Page
	// Cluster is what the user calls the cluster.
	Cluster string
}

type server struct {
	Options
	pages   *http.ServeMux
	streams chan struct{}
}

// Handler serves the dashboard.
func Handler(o Options) http.Handler {
	s := &server{Options: o, pages: http.NewServeMux(), streams: make(chan struct{}, maxStreams)}
	for _, p := range o.Pages {
		pattern := p.Pattern
		if pattern == "/" {
			pattern = "/{$}"
		}
		s.pages.HandleFunc("GET "+pattern, s.page(p))
	}
	s.pages.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		s.plain(w, http.StatusNotFound, "Not found", "There is no such page.")
	})
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", assets.Handler()))
	mux.HandleFunc("GET /live", s.live)
	mux.HandleFunc("GET /act/{verb}", s.plan)
	mux.HandleFunc("POST /act/{verb}", s.do)
	mux.Handle("/", s.pages)
	return o.Guard.Wrap(mux)
}

// layout is what stands around every page.
type layout struct {
	Title, Section, Cluster string
	Menu                    []page.Page
	ReadOnly                bool
	// Live is the address of the page's changes; empty if it has none.
	Live string
	// Main is what the page shows.
	Main template.HTML
}

type streaming struct{}

// page serves one page, or its changes.
func (s *server) page(p page.Page) http.HandlerFunc {
	wildcards := wildcard.FindAllStringSubmatch(p.Pattern, -1)
	return func(w http.ResponseWriter, r *http.Request) {
		values := map[string]string{}
		for _, name := range wildcards {
			values[name[1]] = r.PathValue(name[1])
		}
		query := r.URL.Query()
		render := func(ctx context.Context) (page.Content, *state.Snapshot, error) {
			snapshot := s.Source.Snapshot()
			content, err := p.Render(ctx, page.Request{Snapshot: snapshot, Values: values, Query: query, ReadOnly: s.readOnly(), Backend: s.Backend})
			content.Fragments = append([]live.Fragment{gaps(snapshot)}, content.Fragments...)
			return content, snapshot, err
		}
		if r.Context().Value(streaming{}) != nil {
			s.stream(w, r, render)
			return
		}
		content, _, err := render(r.Context())
		status := http.StatusOK
		if err != nil {
			status = statusOf(err)
			content.Title = http.StatusText(status)
			content.Fragments = append(content.Fragments[:1:1], problem(err))
		}
		path := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
		s.show(w, status, layout{
			Title: content.Title, Section: content.Section, Main: joined(content.Fragments),
			Live: "/live?" + url.Values{"path": {path.String()}}.Encode(),
		})
	}
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

// live serves the changes of the page of that path.
func (s *server) live(w http.ResponseWriter, r *http.Request) {
	target, err := url.Parse(r.URL.Query().Get("path"))
	if err != nil || target.Host != "" || target.Scheme != "" || !strings.HasPrefix(target.Path, "/") {
		s.plain(w, http.StatusBadRequest, "Bad request", "The address does not name a page of the dashboard.")
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		s.plain(w, http.StatusServiceUnavailable, "Too many pages", fmt.Sprintf("More than %d pages are open: close some.", maxStreams))
		return
	}
	of := r.Clone(context.WithValue(r.Context(), streaming{}, true))
	of.URL = target
	s.pages.ServeHTTP(w, of)
}

// stream sends the changes of a page until the browser leaves.
func (s *server) stream(w http.ResponseWriter, r *http.Request, render func(context.Context) (page.Content, *state.Snapshot, error)) {
	changes := &live.Stream{Clock: s.Clock, Wait: s.Source.Wait, Render: func(ctx context.Context) ([]live.Fragment, uint64, error) {
		content, snapshot, err := render(ctx)
		if err != nil { // Also that ends by itself, for example when a pod is made again.
			content.Fragments = append(content.Fragments[:1:1], problem(err))
		}
		return content.Fragments, snapshot.Version, nil
	}}
	// What cannot be sent to a browser that has left is not missed by anybody.
	_ = changes.Serve(w, r)
}

func (s *server) readOnly() bool { return s.Guard.ReadOnly || s.Actions == nil }

// statusOf is the status of a page that could not be rendered.
func statusOf(err error) int {
	switch {
	case errors.Is(err, page.ErrNotFound), errors.Is(err, act.ErrUnknown), apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return http.StatusNotFound
	case apierrors.IsForbidden(err):
		return http.StatusForbidden
	default:
		return http.StatusBadGateway
	}
}

// show writes a page.
func (s *server) show(w http.ResponseWriter, status int, l layout) {
	l.Cluster, l.ReadOnly = text.Clean(s.Cluster), s.readOnly()
	for _, p := range s.Pages {
		if p.Section != "" && !strings.Contains(p.Pattern, "{") {
			l.Menu = append(l.Menu, p)
		}
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "layout.html", l); err != nil {
		http.Error(w, "the page could not be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // A browser that has left misses nothing.
}

// plain shows a page with one sentence.
func (s *server) plain(w http.ResponseWriter, status int, title, sentence string) {
	s.show(w, status, layout{Title: title, Main: rendered("notice", notice{ID: "problem", Text: sentence, Bad: true})})
}

type notice struct {
	ID, Text string
	Bad      bool
}

// problem is the error of a page.
func problem(err error) live.Fragment {
	return live.Fragment{ID: "problem", HTML: rendered("notice", notice{ID: "problem", Text: text.Clean(err.Error()), Bad: true})}
}

// gaps says what the page does not know.
func gaps(snapshot *state.Snapshot) live.Fragment {
	return live.Fragment{ID: "gaps", HTML: rendered("gaps", snapshot)}
}

// rendered executes one of our own templates, with values of our own types: it fails only by
// a mistake of ours.
func rendered(name string, data any) template.HTML {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Sprintf("template %s: %v", name, err))
	}
	return template.HTML(b.String()) //nolint:gosec // The template has escaped it.
}

func joined(fragments []live.Fragment) template.HTML {
	var b strings.Builder
	for _, f := range fragments {
		b.WriteString(string(f.Element()))
	}
	return template.HTML(b.String()) //nolint:gosec // It is made of HTML only.
}
