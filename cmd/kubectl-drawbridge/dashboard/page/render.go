package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// perPage is how many rows a list shows at a time.
const perPage = 50

//go:embed templates/*.html
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"node": nodeHref, "pod": podHref, "after": func(a, b int) int { return a + b }, "act": actHref, "clean": text.Clean,
}).ParseFS(files, "templates/*.html"))

// Pages are those of this package.
func Pages() []Page {
	return []Page{
		{Pattern: "/", Section: SectionDrains, Render: renderDrains},
		{Pattern: "/nodes/{node}", Section: SectionDrains, Render: renderNode},
		{Pattern: "/pods/{namespace}/{pod}", Section: SectionDrains, Render: renderPod},
		{Pattern: "/interceptors", Section: SectionInterceptors, Render: renderInterceptors},
		{Pattern: "/budgets", Section: SectionBudgets, Render: renderBudgets},
	}
}

// fragment renders an element. The templates and their values are ours, so it fails only by a
// mistake of ours, which the tests of each page find.
func fragment(id, name string, data any) live.Fragment {
	return live.Fragment{ID: id, HTML: rendered(name, data)}
}

func rendered(name string, data any) template.HTML {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic(fmt.Sprintf("template %s: %v", name, err))
	}
	return template.HTML(b.String()) //nolint:gosec // The template has escaped it.
}

// tableOf is a table whose rows can change by themselves.
type tableOf struct {
	ID, Title string
	Heads     []string
	// Empty is what is said if there are no rows.
	Empty string
	Pager *pager
}

func (t tableOf) with(rows []live.Fragment) live.Fragment {
	if len(rows) == 0 {
		return fragment(t.ID, "table-empty", t)
	}
	return live.Fragment{ID: t.ID, Before: rendered("table-begin", t), Children: rows, After: rendered("table-end", t)}
}

// pager is where a list is.
type pager struct {
	// Page from 1, of Pages, with Total rows.
	Page, Pages, Total int
	// Before and After are the addresses of the neighbours; empty if there are none.
	Before, After string
}

// paged returns the rows of the page that the query asks for, by the parameter of that name.
// What is not there is the last page; a file has all of them.
func paged[T any](all []T, r Request, parameter string) ([]T, *pager) {
	if r.Export {
		return all, nil
	}
	query := r.Query
	p := &pager{Page: 1, Pages: max(1, (len(all)+perPage-1)/perPage), Total: len(all)}
	if n, err := strconv.Atoi(query.Get(parameter)); err == nil {
		p.Page = min(max(n, 1), p.Pages)
	}
	address := func(n int) string {
		if n < 1 || n > p.Pages {
			return ""
		}
		return with(query, parameter, strconv.Itoa(n))
	}
	p.Before, p.After = address(p.Page-1), address(p.Page+1)
	shown := all[(p.Page-1)*perPage : min(p.Page*perPage, len(all))]
	if p.Pages == 1 {
		return shown, nil
	}
	return shown, p
}

// idOf is an id that no name can break.
func idOf(kind string, names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	const digits = 8
	return kind + "-" + hex.EncodeToString(sum[:digits])
}

func nodeHref(node string) string { return "/nodes/" + url.PathEscape(node) }

func podHref(namespace, pod string) string {
	return "/pods/" + url.PathEscape(namespace) + "/" + url.PathEscape(pod)
}

// actHref is the address of an action; pairs are names and values.
func actHref(verb string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "/act/" + verb + "?" + values.Encode()
}

// moment is a time for people and for programs; nil if there is none.
type moment struct{ ISO, Clock, Ago string }

func momentOf(t, now time.Time) *moment {
	if t.IsZero() {
		return nil
	}
	t = t.In(now.Location())
	m := &moment{ISO: t.Format(time.RFC3339), Clock: t.Format(time.TimeOnly)}
	if t.After(now) {
		m.Ago = "in " + duration.HumanDuration(t.Sub(now))
	} else {
		m.Ago = duration.HumanDuration(now.Sub(t)) + " ago"
	}
	return m
}
