// Package forecastpage is the page of the dashboard that foretells a drain.
package forecastpage

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/live"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/page"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/forecast"
)

//go:embed forecast.html
var source string

var templates = template.Must(template.New("forecast").Parse(source))

const (
	section = "Forecast"
	// maxRows of a table.
	maxRows = 200
	// runs are fewer than those of the command: the page is made again after changes.
	runs = 50
)

const (
	// settle is how old a forecast may be although something has changed: a page is rendered up
	// to four times a second, and a simulation takes longer than that in a large cluster.
	settle = 2 * time.Second
	// stale is how old one may be when nothing has changed: turns that run come nearer their end.
	stale = 10 * time.Second
	// remembered is of how many lists of nodes.
	remembered = 32
)

// Pages returns the page.
func Pages() []page.Page {
	told := &cache{known: lru.New(remembered)}
	return []page.Page{{Pattern: "/forecast", Section: section, Render: told.render}}
}

// cache has the last forecasts. Two pages at a time do not simulate the same twice.
type cache struct {
	mu    sync.Mutex
	known *lru.Cache
}

// told is a forecast, and what it was made of.
type told struct {
	forecast forecast.Forecast
	version  uint64
	at       time.Time
}

// of is the forecast for nodes, which are sorted.
func (c *cache) of(s *state.Snapshot, nodes []string) forecast.Forecast {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.Join(nodes, " ")
	if value, ok := c.known.Get(key); ok {
		last := value.(told) //nolint:forcetypeassert // Only this function adds.
		age := s.Now.Sub(last.at)
		if age >= 0 && (age < settle || age < stale && last.version == s.Version) {
			return last.forecast
		}
	}
	in := forecast.FromSnapshot(s, nodes)
	in.Runs = runs
	made := forecast.Of(in)
	c.known.Add(key, told{made, s.Version, s.Now})
	return made
}

type view struct {
	Asked    string
	Known    []string
	Missing  string
	Told     *forecast.Forecast
	Actions  bool
	Blockers []forecast.Blocker
	Pods     []podRow
	More     int
	History  []historyRow
}

type podRow struct {
	forecast.Pod
	Start, Gone, P95 string
}

type historyRow struct {
	Name, Samples, P50, P95 string
	Pods                    int
}

func (c *cache) render(_ context.Context, r page.Request) (page.Content, error) {
	v := view{Actions: !r.ReadOnly && !r.Export}
	// A node may be given several times, and several in one field.
	var nodes []string
	for _, value := range r.Query["node"] {
		nodes = append(nodes, strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == ' ' })...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	v.Asked = strings.Join(nodes, " ")
	for _, node := range r.Snapshot.Nodes {
		v.Known = append(v.Known, node.Name)
	}
	for _, name := range nodes {
		if r.Snapshot.NodeByName[name] == nil {
			v.Missing, nodes = name, nil
			break
		}
	}
	if len(nodes) > 0 {
		v.fill(c.of(r.Snapshot, nodes))
	}
	content := page.Content{Title: section, Section: section}
	for _, name := range []string{"ask", "told"} {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, v); err != nil {
			return page.Content{}, fmt.Errorf("render the forecast: %w", err)
		}
		// The template has escaped it.
		content.Fragments = append(content.Fragments, live.Fragment{ID: "forecast-" + name, HTML: template.HTML(b.String())}) //nolint:gosec // See above.
	}
	return content, nil
}

func (v *view) fill(told forecast.Forecast) {
	v.Told = &told
	v.Blockers = told.Blockers[:min(len(told.Blockers), maxRows)]
	for _, p := range told.Pods[:min(len(told.Pods), maxRows)] {
		row := podRow{Pod: p}
		row.Start, row.Gone, row.P95 = p.Times()
		v.Pods = append(v.Pods, row)
	}
	v.More = len(told.Pods) - len(v.Pods)
	for _, h := range told.History {
		p50, p95 := h.Times()
		v.History = append(v.History, historyRow{h.Name, strconv.Itoa(h.Samples), p50, p95, h.Pods})
	}
}
